/* Tokenizers written as tokenizer.json and as GGUF metadata and read again: the same ids and texts as before. The small
 * vocabularies of tests/golden/tokenizer, and with HEARTH_TEST_MODELS the real ones. */
#include "base/file.h"
#include "support/metadata_file.h"
#include "support/scratch.h"
#include "support/tokenizers.h"
#include "support/warnings.h"
#include "tokenizer/gguf_stages.h"
#include "tokenizer/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- comparisons ---- */

static const unsigned flags_of[] = {0, HT_ENCODE_PARSE_SPECIAL, HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL};

static void same_text(const char *name, const ht_tokenizer *a, const ht_tokenizer *b, const int32_t *ids, size_t n) {
    char *x, *y;
    size_t n_x, n_y;
    for (int skip = 0; skip < 2; skip++) {
        assert_works(ht_tokenizer_decode, a, ids, n, skip, &x, &n_x);
        assert_works(ht_tokenizer_decode, b, ids, n, skip, &y, &n_y);
        if (n_x != n_y || memcmp(x, y, n_x) != 0) fail_msg("%s: decodes to \"%s\", not to \"%s\"", name, y, x);
        free(x);
        free(y);
    }
}

static void same_ids(const char *name, const ht_tokenizer *a, const ht_tokenizer *b, const char *text, size_t n) {
    for (size_t f = 0; f < sizeof flags_of / sizeof *flags_of; f++) {
        size_t n_x, n_y;
        int32_t *x = tokenizer_ids(a, text, n, flags_of[f], &n_x), *y = tokenizer_ids(b, text, n, flags_of[f], &n_y);
        if (n_x != n_y || (n_x && memcmp(x, y, n_x * sizeof *x) != 0))
            fail_msg("%s: \"%.200s\" gives other ids (flags %u): %zu, was %zu", name, text, flags_of[f], n_y, n_x);
        same_text(name, a, b, x, n_x);
        free(x);
        free(y);
    }
}

/* Two texts together: ids and token types. */
static void same_pair(const char *name, const ht_tokenizer *a, const ht_tokenizer *b, const ht_json *first,
                      const ht_json *second) {
    const ht_pair_options options = {.flags = HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL};
    const ht_tokenizer *both[] = {a, b};
    ht_encoding e[2];
    for (int i = 0; i < 2; i++)
        assert_works(ht_tokenizer_encode_pair, both[i], ht_json_string_value(first), ht_json_string_length(first),
                     ht_json_string_value(second), ht_json_string_length(second), &options, &e[i]);
    if (e[0].n != e[1].n || memcmp(e[0].ids, e[1].ids, e[0].n * sizeof *e[0].ids) != 0 ||
        memcmp(e[0].types, e[1].types, e[0].n * sizeof *e[0].types) != 0)
        fail_msg("%s: \"%s\" and \"%s\" give another pair", name, ht_json_string_value(first),
                 ht_json_string_value(second));
    for (int i = 0; i < 2; i++) ht_encoding_free(&e[i]);
}

/* Spelled as in a text: each of the added tokens alone, between words, and in pieces. */
static void same_added(const char *name, const ht_tokenizer *a, const ht_tokenizer *b) {
    const size_t step = a->n_added / 200 + 1;
    char text[512];
    for (size_t i = 0; i < a->n_added; i += step) {
        if (a->added[i].n_text > 200) continue;
        snprintf(text, sizeof text, "a %s b%s%.*s", a->added[i].text, a->added[i].text, (int)a->added[i].n_text - 1,
                 a->added[i].text);
        same_ids(name, a, b, text, strlen(text));
    }
}

/* ---- the way through a file ---- */

static ht_tokenizer *through_json(const char *name, const ht_tokenizer *t) {
    char *text;
    ht_error err = {0};
    if (ht_tokenizer_save_json(t, &text, &err)) fail_msg("%s: %s", name, err.message);
    ht_tokenizer *read = tokenizer_of(text);
    free(text);
    read->bos = t->bos; /* those are in tokenizer_config.json */
    read->eos = t->eos;
    return read;
}

static ht_json *id_of(int32_t id) { return ht_json_pack("{s:s, s:i}", "dtype", "u32", "value", (int)id); }

/* NULL with an error where GGUF cannot express the tokenizer. */
static ht_tokenizer *through_gguf(const ht_tokenizer *t, int64_t n_rows, bool list_merges, ht_error *err) {
    ht_json *metadata = ht_json_new_object();
    ht_tokenizer *read = NULL;
    *err = (ht_error){0};
    assert_non_null(metadata);
    if (!ht_tokenizer_save_gguf(t, n_rows, list_merges, metadata, err)) {
        ht_json_object_set_new(metadata, "general.architecture", ht_json_string("llama"));
        if (t->bos >= 0) ht_json_object_set_new(metadata, "tokenizer.ggml.bos_token_id", id_of(t->bos));
        if (t->eos >= 0) ht_json_object_set_new(metadata, "tokenizer.ggml.eos_token_id", id_of(t->eos));
        if (t->unk >= 0) ht_json_object_set_new(metadata, "tokenizer.ggml.unknown_token_id", id_of(t->unk));
        metadata_file_write(scratch_path("t.gguf"), metadata, NULL);
        if (ht_tokenizer_load(scratch_path("t.gguf"), &read, err)) fail_msg("%s", err->message);
    }
    ht_json_decref(metadata);
    return read;
}

/* ---- small vocabularies ---- */

static int start(void **state) { return tokenizer_cases_open(state) || scratch_start(state); }

static int finish(void **state) { return tokenizer_cases_close(state) || scratch_finish(state); }

static ht_tokenizer *open_case(const ht_json *c) { return tokenizer_of_document(tokenizer_document(c)); }

static void compare_case(const ht_json *c, const ht_tokenizer *a, const ht_tokenizer *b) {
    const char *name = tokenizer_case_name(c);
    const ht_json *row, *before = NULL;
    size_t i;
    ht_json_array_foreach(ht_json_object_get(c, "texts"), i, row) {
        const ht_json *text = ht_json_object_get(row, "text");
        same_ids(name, a, b, ht_json_string_value(text), ht_json_string_length(text));
        if (before && a->model != HT_MODEL_BPE) same_pair(name, a, b, before, text);
        before = text;
    }
    same_added(name, a, b);
}

UNIT_TEST(json_keeps_every_stage) {
    const ht_json *c;
    size_t i;
    ht_json_array_foreach(tokenizer_cases(), i, c) {
        ht_tokenizer *t = open_case(c), *read = through_json(tokenizer_case_name(c), t);
        compare_case(c, t, read);
        ht_tokenizer_free(read);
        ht_tokenizer_free(t);
    }
}

/* Cases that GGUF has a name for; all others must be refused. */
static const char *const expressible[] = {
    "gpt2",        "gpt2 as split", "qwen2",       "llama3",        "smollm",
    "falcon",      "bert",          "bert cased",  "bert accents",  "bert dirty",
    "bert forms",  "unigram",       "unigram spm", "unigram whole", "unigram albert",
    "unigram NFC", "unigram NFKC",  "unigram NFD", "unigram f64",   "unigram fallback",
    NULL};

/* Stages that have no keys but one of this program come with a warning. */
static bool warns(const ht_tokenizer *t) { return t->model != HT_MODEL_BPE; }

/* The name of the pre-tokenizer that a case is made for, or NULL. */
static const char *pre_of(const char *name) { return strncmp(name, "pre ", 4) == 0 ? name + 4 : NULL; }

static bool is_expressible(const char *name) {
    for (const char *const *known = expressible; *known; known++)
        if (!strcmp(name, *known)) return true;
    return pre_of(name);
}

static bool same_stages(const ht_gguf_stages *a, const ht_gguf_stages *b) {
    for (int i = 0; i < HT_GGUF_STAGES && (a->steps[i] || b->steps[i]); i++)
        if (!a->steps[i] || !b->steps[i] || strcmp(a->steps[i], b->steps[i]) != 0) return false;
    return a->nfc == b->nfc && a->ignore_merges == b->ignore_merges;
}

/* The name that a tokenizer.json gets stands for the same stages as the name of the case. */
UNIT_TEST(pre_tokenizers_keep_their_names) {
    const ht_json *c;
    size_t i;
    int n = 0;
    ht_json_array_foreach(tokenizer_cases(), i, c) {
        const char *pre = pre_of(tokenizer_case_name(c));
        if (!pre) continue;
        ht_tokenizer *t = open_case(c);
        ht_json *metadata = ht_json_new_object();
        assert_works(ht_tokenizer_save_gguf, t, t->vocab.n, false, metadata);
        const char *given = ht_json_string_value(ht_json_object_get(metadata, "tokenizer.ggml.pre"));
        const ht_gguf_stages *found = ht_gguf_stages_named((ht_bytes){given, strlen(given)}),
                             *wanted = ht_gguf_stages_named((ht_bytes){pre, strlen(pre)});
        if (!found || !wanted || !same_stages(found, wanted)) fail_msg("%s is written as %s", pre, given);
        n++;
        ht_json_decref(metadata);
        ht_tokenizer_free(t);
    }
    assert_true(n > 20);
}

UNIT_TEST(gguf_keeps_or_refuses) {
    const ht_json *c;
    size_t i;
    int n_kept = 0;
    ht_json_array_foreach(tokenizer_cases(), i, c) {
        const char *name = tokenizer_case_name(c);
        ht_tokenizer *t = open_case(c);
        ht_error err;
        warnings_begin();
        ht_tokenizer *read = through_gguf(t, t->vocab.n + 3, false, &err);
        if (!read) {
            if (is_expressible(name)) fail_msg("%s: %s", name, err.message);
            assert_error(err.status, &err, HT_ERR_UNSUPPORTED, "tokenizer.json");
        } else {
            n_kept++;
            if (!strstr(name, "first")) { /* which comes with a warning */
                compare_case(c, t, read);
                if (!warns(t)) (void)warnings_end(0);
            }
            assert_int_equal(read->vocab.n, t->vocab.n + 3);
            assert_true(ht_tokenizer_find(read, "[PAD0]") < 0);
        }
        ht_tokenizer_free(read);
        ht_tokenizer_free(t);
    }
    assert_true(n_kept >= (int)(sizeof expressible / sizeof *expressible) - 1);
}

/* ---- what cannot be written ---- */

#define MODEL(more, vocab, merges)                                                                                     \
    "{\"model\":{\"type\":\"BPE\"," more "\"vocab\":" vocab ",\"merges\":" merges                                      \
    "},\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static void refuse_gguf(const char *json, int64_t n_rows, ht_status status, const char *says) {
    ht_tokenizer *t = tokenizer_of(json);
    ht_json *metadata = ht_json_new_object();
    assert_fails(status, says, ht_tokenizer_save_gguf, t, n_rows, false, metadata);
    ht_json_decref(metadata);
    ht_tokenizer_free(t);
}

UNIT_TEST(what_gguf_cannot_say_is_named) {
#define V "{\"a\":0,\"b\":1,\"ab\":2}"
#define M "[[\"a\",\"b\"]]"
    refuse_gguf(MODEL("", V, M) ",\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"single_word\":true}]}", 9,
                HT_ERR_UNSUPPORTED, "`<x>` has `single_word`");
    refuse_gguf(MODEL("", V, M) ",\"normalizer\":{\"type\":\"Lowercase\"}}", 9, HT_ERR_UNSUPPORTED, "`normalizer`");
    refuse_gguf(MODEL("\"ignore_merges\":true,", V, "[]") "}", 9, HT_ERR_UNSUPPORTED, "ignore_merges");
    refuse_gguf(MODEL("", V, M) ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
                                "\"id\":\"a\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}},{"
                                "\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"a\":{\"id\":\"a\","
                                "\"ids\":[0]}}}}",
                9, HT_ERR_UNSUPPORTED, "`post_processor`");
    refuse_gguf(MODEL("", V, M) "}", 2, HT_ERR_FORMAT, "`ab` has the id 2, but the embedding 2 rows");
    refuse_gguf(MODEL("", V, M) "}", 0, HT_ERR_LIMIT, "0 rows");
    refuse_gguf(MODEL("", "{\"a\":0,\"b\":1,\"ab\":2,\"[PAD4]\":3}", M) "}", 5, HT_ERR_UNSUPPORTED,
                "tokens 3 and 4 would both be `[PAD4]`");
    /* Added tokens behind the last row are left out. */
    warnings_begin();
    ht_error err;
    ht_tokenizer *t =
        tokenizer_of(MODEL("", V, M) ",\"added_tokens\":[{\"id\":3,\"content\":\"<image>\",\"special\":true}]}");
    ht_tokenizer *read = through_gguf(t, 3, false, &err);
    assert_non_null(read);
    assert_non_null(strstr(warnings_end(1), "1 added token is left out"));
    assert_int_equal(read->vocab.n, 3);
    ht_tokenizer_free(read);
    ht_tokenizer_free(t);
}

/* ignore_merges of the file and of the name may differ where every token is what its own text merges to. */
UNIT_TEST(whole_tokens_without_effect) {
#define SMOLLM(vocab, merges)                                                                                          \
    "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":" vocab ",\"merges\":" merges                       \
    "},\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"    \
    "\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}}"
    ht_error err;
    ht_tokenizer *t = tokenizer_of(
                     SMOLLM("{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4}", "[[\"a\",\"b\"],[\"ab\",\"c\"]]")),
                 *read = through_gguf(t, 5, false, &err);
    assert_non_null(read);
    same_ids("merges suffice", t, read, "abcab a", 7);
    ht_tokenizer_free(read);
    ht_tokenizer_free(t);
    refuse_gguf(SMOLLM("{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4}", "[[\"a\",\"b\"]]"), 5, HT_ERR_UNSUPPORTED,
                "ignore_merges");
}

UNIT_TEST(added_tokens_keep_their_strips) {
    ht_tokenizer *t = tokenizer_of(
        MODEL("", V, M) ",\"added_tokens\":[{\"id\":3,\"content\":\"<l>\",\"lstrip\":true,\"normalized\":false},"
                        "{\"id\":4,\"content\":\"<r>\",\"rstrip\":true,\"normalized\":false},{\"id\":5,\"content\":"
                        "\"<n>\",\"normalized\":false}]}");
    ht_error err;
    warnings_begin();
    ht_tokenizer *read = through_gguf(t, t->vocab.n, false, &err);
    assert_non_null(strstr(warnings_end(2), "1 added token has `rstrip`"));
    assert_non_null(read);
    static const char *const texts[] = {"a <l> b", "a <r>  b", "a <n> b", "<r> <l> <r>\n\n<n> a"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) same_ids("strips", t, read, texts[i], strlen(texts[i]));
    size_t n;
    free(tokenizer_ids(read, "a <l>b", 6, 0, &n));
    assert_int_equal(n, 3);
    ht_tokenizer_free(read);
    ht_tokenizer_free(t);
}

/* Encoders with byte-level BPE: ModernBERT's pairs have one separator between the texts, RoBERTa's two. */
UNIT_TEST(separators_of_pairs_are_kept) {
#define ITEM(kind, id) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":0}}"
#define TEMPLATE(pair)                                                                                                 \
    MODEL("", V, M)                                                                                                    \
    ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" ITEM("SpecialToken", "a") "," ITEM(            \
        "Sequence", "A") "," ITEM("SpecialToken", "b") "],\"pair\":[" pair                                             \
                                                       "],\"special_tokens\":{\"a\":{\"id\":\"a\",\"ids\":[0]},\"b\":" \
                                                       "{\"id\":\"b\",\"ids\":[1]}}}}"
#define FIRST ITEM("SpecialToken", "a") "," ITEM("Sequence", "A") "," ITEM("SpecialToken", "b")
#define LAST  ITEM("Sequence", "B") "," ITEM("SpecialToken", "b")
    static const struct {
        const char *json;
        size_t n;
        int32_t ids[8];
    } cases[] = {{TEMPLATE(FIRST "," LAST), 5, {0, 2, 1, 2, 1}},
                 {TEMPLATE(FIRST "," ITEM("SpecialToken", "b") "," LAST), 6, {0, 2, 1, 1, 2, 1}},
                 {TEMPLATE(FIRST "," ITEM("SpecialToken", "a") "," LAST), 6, {0, 2, 1, 0, 2, 1}}};
    const ht_pair_options options = {.flags = HT_ENCODE_ADD_SPECIAL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_tokenizer *t = tokenizer_of(cases[i].json);
        t->bos = 0;
        t->eos = 1;
        ht_error err;
        ht_tokenizer *read = through_gguf(t, 3, false, &err);
        if (!read) fail_msg("%s", err.message);
        ht_encoding e;
        assert_works(ht_tokenizer_encode_pair, read, "ab", 2, "ab", 2, &options, &e);
        assert_int_equal(e.n, cases[i].n);
        assert_memory_equal(e.ids, cases[i].ids, e.n * sizeof *e.ids);
        ht_encoding_free(&e);
        ht_tokenizer_free(read);
        ht_tokenizer_free(t);
    }
}

#define SENTENCES(normalizer, vocab, merges)                                                                           \
    "{\"normalizer\":" normalizer ",\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,"                \
    "\"byte_fallback\":true,\"vocab\":{\"?\":9," vocab "},\"merges\":" merges                                          \
    "},\"added_tokens\":[{\"id\":9,\"content\":\"?\",\"special\":true,\"normalized\":false}],"                         \
    "\"decoder\":{\"type\":\"ByteFallback\"}}"
#define SPACES "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}"

/* The model that a SentencePiece vocabulary becomes: scores where they give the same ids, else the list. */
UNIT_TEST(scores_are_written_where_they_do) {
    static const struct {
        const char *vocab, *merges, *model;
    } cases[] = {{"\"a\":0,\"b\":1,\"ab\":2,\"abab\":3", "[[\"a\",\"b\"],[\"ab\",\"ab\"]]", "llama"},
                 /* "ab" + "c" is no merge, though its parts and the whole are tokens */
                 {"\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"abc\":5", "[[\"a\",\"b\"],[\"b\",\"c\"],[\"a\",\"bc\"]]",
                  "gemma4"},
                 /* merges of "abc" around that of "bb" */
                 {"\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"abc\":5,\"bb\":6",
                  "[[\"a\",\"b\"],[\"b\",\"c\"],[\"a\",\"bc\"],[\"b\",\"b\"],[\"ab\",\"c\"]]", "gemma4"},
                 /* runs as converters list them, the longest parts first */
                 {"\"a\":0,\"aa\":1,\"aaa\":2,\"aaaa\":3",
                  "[[\"aaa\",\"a\"],[\"aa\",\"aa\"],[\"aa\",\"a\"],[\"a\",\"aaa\"],[\"a\",\"aa\"],[\"a\",\"a\"]]",
                  "llama"},
                 {"\"a\":0,\"aa\":1,\"aaa\":2", "[[\"a\",\"a\"],[\"aa\",\"a\"],[\"a\",\"aa\"]]", "llama"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[1024];
        snprintf(json, sizeof json, SENTENCES(SPACES, "%s", "%s"), cases[i].vocab, cases[i].merges);
        ht_tokenizer *t = tokenizer_of(json), *read;
        ht_error err = {0};
        ht_json *metadata = ht_json_new_object();
        assert_works(ht_tokenizer_save_gguf, t, t->vocab.n, false, metadata);
        assert_string_equal(ht_json_string_value(ht_json_object_get(metadata, "tokenizer.ggml.model")), cases[i].model);
        ht_json_decref(metadata);
        for (int list = 0; list < 2; list++) {
            read = through_gguf(t, t->vocab.n, list, &err);
            assert_non_null(read);
            for (int word = 0; word < 3 * 3 * 3 * 3 * 3 * 3; word++) {
                char text[7] = "";
                for (int k = 0, rest = word; k < 6; k++, rest /= 3) text[k] = (char)('a' + rest % 3);
                same_ids(cases[i].vocab, t, read, text, 6);
            }
            for (size_t n = 1; n < 12; n++) same_ids(cases[i].vocab, t, read, "aaaaaaaaaaaa", n);
            ht_tokenizer_free(read);
        }
        ht_tokenizer_free(t);
    }
    /* A list, but a space before the text: neither of the two models. */
    const char *both = SENTENCES("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
                                 "\"\xE2\x96\x81\"}," SPACES "]}",
                                 "\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"abc\":5",
                                 "[[\"a\",\"b\"],[\"b\",\"c\"],[\"a\",\"bc\"]]");
    refuse_gguf(both, 12, HT_ERR_UNSUPPORTED, "`model.merges`");
    refuse_gguf(SENTENCES(SPACES, "\"a\":0,\"\\n\":1,\"b\":2,\"a\\nb\":3,\"a\\n\":4,\"\\nb\":5",
                          "[[\"a\",\"\\n\"],[\"a\\n\",\"b\"]]"),
                12, HT_ERR_UNSUPPORTED, "line break");
}

/* Two tokens of a GGUF with one text have one place in a vocabulary of texts. */
UNIT_TEST(equal_texts_are_refused) {
    ht_json *metadata = ht_json_pack("{s:s, s:s, s:s, s:[s,s,s], s:[]}", "general.architecture", "llama",
                                     "tokenizer.ggml.model", "gpt2", "tokenizer.ggml.pre", "gpt-2",
                                     "tokenizer.ggml.tokens", "a", "b", "a", "tokenizer.ggml.merges");
    metadata_file_write(scratch_path("twice.gguf"), metadata, NULL);
    ht_json_decref(metadata);
    ht_tokenizer *t = tokenizer_load(scratch_path("twice.gguf"));
    char *text = (char *)&t;
    assert_fails(HT_ERR_UNSUPPORTED, "tokens 0 and 2 are both `a`", ht_tokenizer_save_json, t, &text);
    assert_null(text);
    ht_tokenizer_free(t);
}

/* ---- real vocabularies ---- */

/* The texts that stand beside a vocabulary; NULL when there are none. */
static char *texts_of(const char *path) {
    char name[1100];
    char *text, *whole;
    size_t n;
    snprintf(name, sizeof name, "%s.inp", path);
    if (ht_file_read_all(name, 1 << 20, &text, &n, NULL)) return NULL;
    whole = strndup(text, n);
    free(text);
    return whole;
}

static void compare_real(const char *name, const char *path, const ht_tokenizer *a, const ht_tokenizer *b) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    static const char *const some[] = {
        "Hello  world,   this is    a test.\n\n\n\tTabs\t\tand 12345 digits; don't!",
        "def f(x):\n        return x ** 2  # \xC3\xA9t\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87",
        "\xF0\x9F\x91\xA9\xF0\x9F\x8F\xBD\xE2\x80\x8D\xF0\x9F\x9A\x80 \x01\x7F \xEF\xBF\xBD"};
    char run[101] = "", *texts = texts_of(path);
    for (char *text = texts, *end; text; text = end ? end + sizeof separator - 1 : NULL) {
        end = strstr(text, separator);
        same_ids(name, a, b, text, end ? (size_t)(end - text) : strlen(text));
    }
    free(texts);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) same_ids(name, a, b, some[i], strlen(some[i]));
    for (const char *c = " \n\ta0-="; *c; c++) {
        memset(run, *c, sizeof run - 1);
        for (size_t n = 1; n < sizeof run; n += 1 + n / 8) same_ids(name, a, b, run, n);
    }
    same_added(name, a, b);
}

static void compare_through_both(const char *directory, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ht_tokenizer *t = tokenizer_load(path), *json = through_json(name, t);
    ht_error err;
    compare_real(name, path, t, json);
    for (int list_merges = 0; list_merges < (strstr(name, "gemma") ? 2 : 1); list_merges++) {
        ht_tokenizer *gguf = through_gguf(json, t->vocab.n, list_merges, &err);
        if (!gguf) fail_msg("%s: %s", name, err.message);
        if (strstr(name, "gemma")) assert_int_equal(gguf->merges.order == NULL, list_merges);
        compare_real(name, path, json, gguf);
        ht_tokenizer_free(gguf);
    }
    ht_tokenizer_free(json);
    ht_tokenizer_free(t);
}

UNIT_TEST(real_vocabularies) {
    static const char *const names[] = {"command-r", "deepseek-coder", "deepseek-llm", "falcon",
                                        "gemma-4",   "gpt-2",          "llama-bpe",    "llama-spm",
                                        "mpt",       "phi-3",          "qwen2",        "qwen35",
                                        "refact",    "starcoder",      "bert-bge",     "nomic-bert-moe"},
                             *const models[] = {"smollm2-135m.gguf", "qwen2.5-coder-0.5b.gguf", "gemma3-270m.gguf"};
    const size_t n_models = sizeof models / sizeof *models;
    const char *directory = getenv("HEARTH_TEST_MODELS");
    if (!directory) {
        print_message("skipped: HEARTH_TEST_MODELS does not name a directory\n");
        skip();
    }
    for (size_t i = 0; i < n_models + sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, i < n_models ? "%s" : "vocab/ggml-vocab-%s.gguf",
                 i < n_models ? models[i] : names[i - n_models]);
        if (test_takes((int64_t)i + 2, 3)) compare_through_both(directory, name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_keeps_every_stage),
        cmocka_unit_test(gguf_keeps_or_refuses),
        cmocka_unit_test(what_gguf_cannot_say_is_named),
        cmocka_unit_test(scores_are_written_where_they_do),
        cmocka_unit_test(added_tokens_keep_their_strips),
        cmocka_unit_test(whole_tokens_without_effect),
        cmocka_unit_test(separators_of_pairs_are_kept),
        cmocka_unit_test(equal_texts_are_refused),
        cmocka_unit_test(real_vocabularies),
        cmocka_unit_test(pre_tokenizers_keep_their_names),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
