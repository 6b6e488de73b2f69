/* Small trained vocabularies under every kind of step, against Hugging Face tokenizers
 * (tests/golden/make_tokenizer_golden.py), and the same texts fed to the streaming decoder. */
#include "support/tokenizers.h"

#include <stdlib.h>
#include <string.h>

static void expect_ids(const char *name, const char *text, const int32_t *ids, size_t n, const ht_json *expected) {
    bool same = n == ht_json_array_size(expected);
    for (size_t i = 0; same && i < n; i++) same = ids[i] == ht_json_integer_value(ht_json_array_get(expected, i));
    if (same) return;
    char *wanted = ht_json_dump(expected, HT_JSON_COMPACT);
    print_error("%s: \"%s\"\n  expected %s\n  found    [", name, text, wanted);
    for (size_t i = 0; i < n; i++) print_error("%s%d", i ? "," : "", (int)ids[i]);
    print_error("]\n");
    free(wanted);
    fail();
}

static int32_t *encode(const ht_tokenizer *t, const ht_json *text, unsigned options, size_t *n) {
    return tokenizer_ids(t, ht_json_string_value(text), ht_json_string_length(text), options, n);
}

static void expect_decoded(const char *name, const ht_tokenizer *t, const int32_t *ids, size_t n, bool skip,
                           const ht_json *wanted) {
    const char *expected = ht_json_string_value(wanted);
    size_t n_expected = ht_json_string_length(wanted), length;
    char *text;
    ht_error err = {0};
    assert_works(ht_tokenizer_decode, t, ids, n, skip, &text, &length);
    if (length != n_expected || memcmp(text, expected, length) != 0)
        fail_msg("%s: expected \"%s\", found \"%s\"", name, expected, text);
    free(text);
    ht_text streamed = {0};
    ht_decoder *d;
    assert_works(ht_decoder_new, t, skip, &d);
    const char *piece;
    for (int round = 0; round < 2; round++) { /* a flushed decoder starts afresh */
        ht_text_clear(&streamed);
        for (size_t i = 0; i <= n; i++) {
            ht_status st =
                i < n ? ht_decoder_feed(d, ids[i], &piece, &length, &err) : ht_decoder_flush(d, &piece, &length, &err);
            assert_int_equal(st, HT_OK);
            assert_true(ht_utf8_valid(piece, length));
            assert_int_equal(piece[length], 0);
            ht_text_append(&streamed, piece, length);
        }
        if (streamed.len != n_expected || memcmp(streamed.data, expected, n_expected) != 0)
            fail_msg("%s, streamed: expected \"%s\", found \"%s\"", name, expected, streamed.data);
    }
    ht_text_discard(&streamed);
    ht_decoder_free(d);
}

/* ids and token types, and with `offsets` the bytes that the tokens come from. */
static void expect_encoding(const char *name, const char *text, const ht_encoding *e, const ht_json *row,
                            const ht_json *offsets) {
    const ht_json *types = ht_json_object_get(row, "types");
    expect_ids(name, text, e->ids, e->n, ht_json_object_get(row, "ids"));
    if (types) expect_ids(name, text, e->types, e->n, types);
    for (size_t i = 0; offsets && i < e->n; i++) {
        const ht_json *pair = ht_json_array_get(offsets, i);
        const int64_t begin = ht_json_integer_value(ht_json_array_get(pair, 0)),
                      end = ht_json_integer_value(ht_json_array_get(pair, 1));
        if (e->offsets[i].begin != begin || e->offsets[i].end != end)
            fail_msg("%s: \"%s\": token %zu comes from %u-%u, expected %d-%d", name, text, i, e->offsets[i].begin,
                     e->offsets[i].end, (int)begin, (int)end);
    }
}

static void check_offsets(const char *name, const ht_tokenizer *t, const ht_json *row) {
    const ht_json *text = ht_json_object_get(row, "text"), *offsets = ht_json_object_get(row, "offsets");
    const ht_pair_options options = {.flags = HT_ENCODE_PARSE_SPECIAL, .offsets = true};
    ht_encoding e;
    assert_works(ht_tokenizer_encode_pair, t, ht_json_string_value(text), ht_json_string_length(text), NULL, 0,
                 &options, &e);
    expect_encoding(name, ht_json_string_value(text), &e, row, offsets);
    ht_encoding_free(&e);
}

static void check_pair(const char *name, const ht_tokenizer *t, const ht_json *row) {
    const ht_json *first = ht_json_object_get(row, "first"), *second = ht_json_object_get(row, "second");
    const ht_pair_options options = {.flags = HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL};
    ht_encoding e;
    assert_works(ht_tokenizer_encode_pair, t, ht_json_string_value(first), ht_json_string_length(first),
                 ht_json_string_value(second), ht_json_string_length(second), &options, &e);
    expect_encoding(name, ht_json_string_value(first), &e, row, NULL);
    ht_encoding_free(&e);
}

UNIT_TEST(follows_the_reference) {
    const ht_json *cases = tokenizer_cases(), *c, *row;
    size_t i, k, n;
    assert_true(ht_json_array_size(cases) > 50);
    ht_json_array_foreach(cases, i, c) {
        const char *name = tokenizer_case_name(c);
        ht_tokenizer *t = tokenizer_of_document(tokenizer_document(c));
        ht_json_array_foreach(ht_json_object_get(c, "texts"), k, row) {
            const ht_json *text = ht_json_object_get(row, "text");
            int32_t *ids = encode(t, text, HT_ENCODE_PARSE_SPECIAL, &n);
            expect_ids(name, ht_json_string_value(text), ids, n, ht_json_object_get(row, "ids"));
            expect_decoded(name, t, ids, n, false, ht_json_object_get(row, "decoded"));
            if (ht_json_object_get(row, "offsets")) check_offsets(name, t, row);
            bool has_own = n && t->n_prefix && ids[0] == t->prefix[0];
            bool ends_own = n && t->n_suffix && ids[n - 1] == t->suffix[0];
            free(ids);
            if (has_own || ends_own) continue; /* the reference doubles them */
            ids = encode(t, text, HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL, &n);
            expect_ids(name, ht_json_string_value(text), ids, n, ht_json_object_get(row, "with_special"));
            free(ids);
        }
        ht_json_array_foreach(ht_json_object_get(c, "decodes"), k, row) {
            const ht_json *list = ht_json_object_get(row, "ids");
            int32_t ids[16];
            n = ht_json_array_size(list);
            for (size_t j = 0; j < n; j++) ids[j] = (int32_t)ht_json_integer_value(ht_json_array_get(list, j));
            expect_decoded(name, t, ids, n, false, ht_json_object_get(row, "all"));
            expect_decoded(name, t, ids, n, true, ht_json_object_get(row, "skipped"));
        }
        ht_json_array_foreach(ht_json_object_get(c, "pairs"), k, row) check_pair(name, t, row);
        ht_tokenizer_free(t);
    }
}

/* The scanner of a pattern and PCRE2. */
UNIT_TEST(scanners_agree_with_pcre2) {
    static const char *const cases[] = {"gpt2 as split",  "llama3",         "qwen2",          "pre qwen35",
                                        "pre seed-coder", "pre exaone-moe", "pre bailingmoe", "pre minicpm5",
                                        "pre gpt-4o",     "pre tekken",     "pre kimi-k2",    "pre youtu"};
    static const char *const parts[] = {" ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "\xC2\xA0",
                                        "'s",
                                        "'LL",
                                        "'\xC5\xBF",
                                        "'",
                                        "a",
                                        "Zz",
                                        "\xC3\xA9",
                                        "\xCC\x81",
                                        "\xE6\x97\xA5",
                                        "1",
                                        "23",
                                        "456",
                                        "\xC2\xBD",
                                        "\xD9\xA3",
                                        ".",
                                        "!?",
                                        "_",
                                        "\xF0\x9F\x98\x80",
                                        "\xE2\x80\xA8",
                                        "\xE3\x80\x80",
                                        "\xE0\xA5\x8D",
                                        "<|",
                                        "$",
                                        "\xE2\x85\xA6",
                                        "AB",
                                        "\xC7\x85",     /* title case */
                                        "\xCA\xB0",     /* a modifier letter */
                                        "\xE3\x80\x85", /* a modifier letter, and Han */
                                        "\xE3\x80\xA1", /* a number, and Han */
                                        "\xE2\xBA\x80", /* a symbol, and Han */
                                        "\xED\x95\x9C",
                                        "/"};
    uint32_t seed = 12345;
    for (size_t p = 0; p < sizeof cases / sizeof *cases; p++) {
        ht_tokenizer *t = tokenizer_named(cases[p]);
        const ht_pre_step *step = &t->pre[t->n_pre - 2]; /* before ByteLevel */
        ht_regex *regex;
        ht_regex_work *w = ht_regex_work_new();
        assert_true(step->scan && !step->regex && w);
        assert_works(ht_regex_new, step->pattern, step->n_pattern, &regex);
        for (int round = 0; round < 3000; round++) {
            ht_text text = {0};
            for (int i = 0; i < 12; i++) {
                seed = seed * 1664525u + 1013904223u;
                ht_text_append_str(&text, parts[(seed >> 8) % (sizeof parts / sizeof *parts)]);
            }
            for (size_t at = 0, end; at < text.len; at = end) {
                ht_regex_match match;
                end = step->scan(text.data, text.len, at);
                assert_works(ht_regex_find, regex, w, text.data, text.len, at, &match);
                if (!match.found || match.begin != at || match.end != end)
                    fail_msg("%s at %zu of \"%s\": scanned to %zu, matched %zu-%zu", cases[p], at, text.data, end,
                             match.begin, match.end);
            }
            ht_text_discard(&text);
        }
        ht_regex_free(regex);
        ht_regex_work_free(w);
        ht_tokenizer_free(t);
    }
}

static size_t count_ids(const ht_tokenizer *t, const char *text, size_t length, unsigned options, int32_t *first) {
    size_t n;
    int32_t *ids = tokenizer_ids(t, text, length, options, &n);
    *first = n ? ids[0] : -1;
    free(ids);
    return n;
}

UNIT_TEST(bos_is_never_doubled) {
    ht_tokenizer *t = tokenizer_named("gemma");
    const unsigned with = HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL;
    int32_t first;
    size_t one = count_ids(t, "<s>hello", 8, with, &first);
    assert_int_equal(first, 1);
    assert_int_equal(count_ids(t, "hello", 5, with, &first), one);
    assert_int_equal(first, 1);
    assert_int_equal(count_ids(t, "", 0, with, &first), 1);
    /* special tokens read as text */
    assert_true(count_ids(t, "<s>hello", 8, 0, &first) > one);
    assert_int_not_equal(first, 1);
    int32_t *ids;
    size_t n;
    assert_fails(HT_ERR_ARGUMENT, "", ht_tokenizer_encode, t, "hello", 5, 4, &ids, &n);
    ht_tokenizer_free(t);
}

UNIT_TEST(invalid_text_is_repaired) {
    static const struct {
        const char *text, *same;
    } cases[] = {
        {"a\xFF"
         "b",
         "a\xEF\xBF\xBD"
         "b"},
        {"\xE2\x82", "\xEF\xBF\xBD"},
        {"\xF0\x9F\x98x", "\xEF\xBF\xBDx"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    ht_tokenizer *t = tokenizer_named("gpt2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n, m;
        int32_t *a = tokenizer_ids(t, cases[i].text, strlen(cases[i].text), 0, &n);
        int32_t *b = tokenizer_ids(t, cases[i].same, strlen(cases[i].same), 0, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n * sizeof *a);
        free(a);
        free(b);
    }
    ht_tokenizer_free(t);
}

/* Long pieces go another way than short ones; a long text remembers words. Both must give the same ids. */
UNIT_TEST(long_texts_are_like_short_ones) {
    ht_tokenizer *t = tokenizer_named("gpt2"), *whole = tokenizer_named("bytes whole");
    static const char words[] = " the quick brown fox jumps over lazy dogs 1234 values[i] hello";
    ht_text text = {0};
    for (int i = 0; i < 400; i++) ht_text_append(&text, words, sizeof words - 1);
    size_t n_many, n_once;
    int32_t *many = tokenizer_ids(t, text.data, text.len, 0, &n_many);
    int32_t *once = tokenizer_ids(t, words, sizeof words - 1, 0, &n_once);
    assert_int_equal(n_many, 400 * n_once);
    for (size_t i = 0; i < n_many; i++) assert_int_equal(many[i], once[i % n_once]);
    free(many);
    free(once);
    /* one piece of 60 symbols by the heap, its first 40 by scanning: the merges at the front are the same */
    char run[61];
    memset(run, 'o', 60);
    run[60] = '\0';
    int32_t first_long, first_short;
    count_ids(whole, run, 60, 0, &first_long);
    count_ids(whole, run, 40, 0, &first_short);
    assert_int_equal(first_long, first_short);
    ht_text_discard(&text);
    ht_tokenizer_free(t);
    ht_tokenizer_free(whole);
}

/* Runs that patterns match with much backtracking, or again from each of their characters. */
UNIT_TEST(long_runs_are_split) {
    static const char *const cases[] = {"pre gpt-4o",   "pre kimi-k2",    "pre cohere2moe",
                                        "pre superbpe", "pre exaone-moe", "pre deepseek-v3"};
    enum { LENGTH = 200000 };
    char *text = malloc(LENGTH), *decoded;
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_tokenizer *t = tokenizer_named(cases[i]);
        for (const char *c = "A 1"; *c; c++) {
            memset(text, *c, LENGTH);
            text[LENGTH - 1] = 'x';
            size_t n, n_decoded;
            int32_t *ids = tokenizer_ids(t, text, LENGTH, 0, &n);
            assert_works(ht_tokenizer_decode, t, ids, n, false, &decoded, &n_decoded);
            assert_int_equal(n_decoded, LENGTH);
            assert_memory_equal(decoded, text, LENGTH);
            free(decoded);
            free(ids);
        }
        ht_tokenizer_free(t);
    }
    free(text);
}

/* Words and pieces without an end, also for graphemes and normal forms. */
UNIT_TEST(long_words_are_tokenized) {
    static const char *const cases[] = {"bert",          "bert plain",  "unigram",
                                        "unigram whole", "unigram spm", "unigram NFKC"};
    static const char *const units[] = {"a", "\xCC\x81", "\xE2\x96\x81", "\xE6\x97\xA5", "a ", "  "};
    enum { LENGTH = 1 << 20 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_tokenizer *t = tokenizer_named(cases[i]);
        for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
            ht_text text = {0};
            size_t n;
            while (text.len < LENGTH) ht_text_append_str(&text, units[k]);
            free(tokenizer_ids(t, text.data, text.len, 0, &n));
            ht_text_discard(&text);
        }
        ht_tokenizer_free(t);
    }
}

static bool has_id(const int32_t *ids, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The vocabulary of a Unigram model has its special tokens. Texts become them only where they may, also after a normal form
 * that makes one. */
UNIT_TEST(models_find_no_special_tokens) {
    static const char spelled[] = "a<s>b", wide[] = "\xEF\xBC\x9Cs\xEF\xBC\x9E"; /* U+FF1C, s, U+FF1E */
    ht_text_run input = {.end = sizeof spelled - 1, .input = true};
    const struct {
        ht_written text;
        unsigned flags;
        bool found;
    } cases[] = {
        {{.text = (char *)(uintptr_t)spelled, .n = 5}, HT_ENCODE_PARSE_SPECIAL, true},
        {{.text = (char *)(uintptr_t)spelled, .n = 5}, 0, false},
        {{.text = (char *)(uintptr_t)spelled, .n = 5, .runs = &input, .n_runs = 1}, HT_ENCODE_PARSE_SPECIAL, false},
        {{.text = (char *)(uintptr_t)wide, .n = 7}, HT_ENCODE_PARSE_SPECIAL, true},
        {{.text = (char *)(uintptr_t)wide, .n = 7}, 0, false},
        {{.text = (char *)(uintptr_t)wide, .n = 7, .runs = &input, .n_runs = 1}, HT_ENCODE_PARSE_SPECIAL, false}};
    ht_tokenizer *t = tokenizer_named("unigram NFKC");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t *ids;
        size_t n;
        assert_works(ht_tokenizer_encode_runs, t, &cases[i].text, cases[i].flags, &ids, &n);
        assert_true(n > 0 && has_id(ids, n, 1) == cases[i].found);
        free(ids);
    }
    ht_tokenizer_free(t);
}

UNIT_TEST(pairs_that_are_refused) {
    static const char text[] = "the quick brown fox";
    const ht_pair_options unknown = {.flags = 8}, offsets = {.offsets = true};
    ht_encoding e;
    ht_tokenizer *t = tokenizer_named("bert");
    assert_fails(HT_ERR_ARGUMENT, "does not know", ht_tokenizer_encode_pair, t, text, 4, text, 4, &unknown, &e);
    assert_null(e.ids);
    ht_tokenizer_free(t);
    t = tokenizer_named("gpt2");
    assert_fails(HT_ERR_UNSUPPORTED, "byte-level BPE", ht_tokenizer_encode_pair, t, text, 4, NULL, 0, &offsets, &e);
    assert_null(e.ids);
    ht_tokenizer_free(t);
}

UNIT_TEST(long_runs_of_marks_are_ordered) {
    enum { MARKS = 100000 };
    ht_text text = {0}, out = {0};
    ht_text_append_str(&text, "q");
    for (int i = 0; i < MARKS; i++) ht_text_append_str(&text, "\xCC\x81\xCC\xA3"); /* class 230, then 220 */
    assert_works(ht_unicode_normalize, HT_NFC, text.data, text.len, &out);
    assert_int_equal(out.len, text.len);
    for (size_t i = 1; i < out.len; i += 2)
        assert_memory_equal(out.data + i, i <= 2 * MARKS ? "\xCC\xA3" : "\xCC\x81", 2);
    ht_text_discard(&text);
    ht_text_discard(&out);
}

UNIT_TEST(answers_questions) {
    ht_tokenizer *t = tokenizer_named("added");
    int32_t start = ht_tokenizer_find(t, "<|im_start|>");
    assert_true(start >= 0 && start < ht_tokenizer_vocab_size(t));
    assert_string_equal(ht_tokenizer_piece(t, start), "<|im_start|>");
    assert_true(ht_tokenizer_is_special(t, start));
    assert_false(ht_tokenizer_is_special(t, ht_tokenizer_find(t, "<tool>")));
    assert_int_equal(ht_tokenizer_find(t, "no such token"), -1);
    assert_null(ht_tokenizer_piece(t, -1));
    assert_null(ht_tokenizer_piece(t, ht_tokenizer_vocab_size(t)));
    assert_false(ht_tokenizer_is_special(t, -1));
    assert_string_equal(ht_tokenizer_kind(t), "byte-level BPE");
    assert_null(ht_tokenizer_chat_template(t));
    int32_t bad = ht_tokenizer_vocab_size(t);
    char *text;
    size_t n;
    assert_fails(HT_ERR_ARGUMENT, "", ht_tokenizer_decode, t, &bad, 1, false, &text, &n);
    assert_null(text);
    ht_tokenizer_free(t);
    ht_tokenizer_free(NULL);
    ht_decoder_free(NULL);
}

/* A run of byte tokens is not held back: each character comes with its last byte, and one that the end cuts costs no
 * other. */
UNIT_TEST(byte_tokens_are_streamed) {
    static const char bytes[] = "\xF0\x93\x80\x80\xF0\x93\x80\x81\xF0\x93";
    static const char *const expected[] = {"", "", "", "\xF0\x93\x80\x80", "", "", "", "\xF0\x93\x80\x81", "", ""};
    ht_tokenizer *t = tokenizer_named("gemma");
    int32_t ids[10];
    ht_decoder *d;
    const char *piece;
    char *whole;
    size_t n;
    assert_works(ht_decoder_new, t, false, &d);
    for (int i = 0; i < 10; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char)bytes[i]);
        ids[i] = ht_tokenizer_find(t, name);
        assert_works(ht_decoder_feed, d, ids[i], &piece, &n);
        assert_string_equal(piece, expected[i]);
    }
    assert_works(ht_decoder_flush, d, &piece, &n);
    assert_string_equal(piece, "\xEF\xBF\xBD");
    ht_decoder_free(d);
    assert_works(ht_tokenizer_decode, t, ids, 10, false, &whole, &n);
    assert_string_equal(whole, "\xF0\x93\x80\x80\xF0\x93\x80\x81\xEF\xBF\xBD");
    free(whole);
    ht_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_tokens_are_streamed),
        cmocka_unit_test(follows_the_reference),
        cmocka_unit_test(scanners_agree_with_pcre2),
        cmocka_unit_test(bos_is_never_doubled),
        cmocka_unit_test(invalid_text_is_repaired),
        cmocka_unit_test(long_texts_are_like_short_ones),
        cmocka_unit_test(answers_questions),
        cmocka_unit_test(long_runs_are_split),
        cmocka_unit_test(long_words_are_tokenized),
        cmocka_unit_test(pairs_that_are_refused),
        cmocka_unit_test(models_find_no_special_tokens),
        cmocka_unit_test(long_runs_of_marks_are_ordered),
    };
    return cmocka_run_group_tests(tests, tokenizer_cases_open, tokenizer_cases_close);
}
