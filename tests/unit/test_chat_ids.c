/* Texts of which some came from a user: special tokens that those spell are text, all else has the ids of the whole. */
#include "support/tokenizers.h"

#include <hearth/hearth.h>

#include <stdlib.h>
#include <string.h>

/* A special token of every kind beside what the case has: found in the text as it is, or in the normalised one. */
static ht_tokenizer *open_case(const ht_json *c, bool normalized) {
    ht_json *whole = tokenizer_document(c), *added = ht_json_object_get(whole, "added_tokens");
    added = ht_json_is_array(added) ? ht_json_copy(added) : ht_json_new_array();
    ht_json_object_set_new(whole, "added_tokens", added);
    int64_t next = 0;
    const char *name;
    ht_json *id;
    ht_json_object_foreach(ht_json_object_get(ht_json_object_get(whole, "model"), "vocab"), name,
                           id) if (ht_json_integer_value(id) >= next) next = ht_json_integer_value(id) + 1;
    size_t i;
    ht_json *token;
    ht_json_array_foreach(added, i, token) {
        int64_t taken = ht_json_integer_value(ht_json_object_get(token, "id"));
        if (taken >= next) next = taken + 1;
    }
    ht_json_array_append_new(added,
                             ht_json_pack("{sI ss sb sb sb sb sb}", "id", next, "content", "<|turn|>", "special", 1,
                                          "normalized", normalized, "lstrip", 0, "rstrip", 0, "single_word", 0));
    ht_json_array_append_new(added,
                             ht_json_pack("{sI ss sb sb sb sb sb}", "id", next + 1, "content", "<think>", "special", 0,
                                          "normalized", normalized, "lstrip", 0, "rstrip", 0, "single_word", 0));
    return tokenizer_of_document(whole);
}

/* ---- texts in runs ---- */

static uint64_t seed = 7;
static size_t below(size_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(seed >> 33) % n;
}

/* None of which spell a mark together. */
static const char *const plain[] = {"hello", " world", "\n", "é",  "e\xCC\x81",     "日本", "<|",  "a b", "  ",
                                    "ﬁ",     "\t",     "İX", "12", " \xE2\x96\x81", "|>",   "<|t", "ẛ̣",   "Ünï"};
enum { N_PLAIN = sizeof plain / sizeof *plain };
static const char *const marks[] = {"<|turn|>", "<think>"};

typedef struct pieces {
    ht_text text;
    ht_text_run runs[64];
    size_t n;
} pieces;

static void add(pieces *p, const char *text, bool input) {
    ht_text_append_str(&p->text, text);
    if (p->n && p->runs[p->n - 1].input == input)
        p->runs[p->n - 1].end = p->text.len;
    else
        p->runs[p->n++] = (ht_text_run){p->text.len, input};
}

static int32_t *encode_runs(const ht_tokenizer *t, const pieces *p, unsigned flags, size_t *n) {
    int32_t *ids;
    assert_works(ht_tokenizer_encode_runs, t, p->text.data, p->text.len, p->runs, p->n, flags, &ids, n);
    return ids;
}

static int32_t *encode(const ht_tokenizer *t, const pieces *p, unsigned flags, size_t *n) {
    return tokenizer_ids(t, p->text.data, p->text.len, flags, n);
}

static void expect_same(const char *name, const pieces *p, int32_t *found, size_t n, int32_t *wanted, size_t m) {
    if (n != m || (n && memcmp(found, wanted, n * sizeof *found) != 0))
        fail_msg("%s: \"%s\" has %zu ids, expected %zu", name, p->text.data, n, m);
    free(found);
    free(wanted);
}

static size_t count(const int32_t *ids, size_t n, int32_t id) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += ids[i] == id;
    return found;
}

/* No special token in what came from outside: the ids of the whole, whatever the runs. */
static void check_plain(const char *name, const ht_tokenizer *t) {
    pieces p = {0};
    for (size_t i = 1 + below(12); i; i--) {
        const bool input = below(2);
        if (!input && below(3) == 0) add(&p, marks[below(2)], false);
        add(&p, plain[below(N_PLAIN)], input);
    }
    size_t n, m;
    int32_t *found = encode_runs(t, &p, HT_ENCODE_PARSE_SPECIAL, &n);
    int32_t *wanted = encode(t, &p, HT_ENCODE_PARSE_SPECIAL, &m);
    expect_same(name, &p, found, n, wanted, m);
    ht_text_discard(&p.text);
}

/* All of it from outside: as without special tokens. */
static void check_input(const char *name, const ht_tokenizer *t) {
    pieces p = {0};
    for (size_t i = 1 + below(6); i; i--) add(&p, below(2) ? marks[below(2)] : plain[below(N_PLAIN)], true);
    size_t n, m;
    int32_t *found = encode_runs(t, &p, HT_ENCODE_PARSE_SPECIAL, &n);
    int32_t *wanted = encode(t, &p, 0, &m);
    expect_same(name, &p, found, n, wanted, m);
    ht_text_discard(&p.text);
}

/* Some of both: as many special tokens as the template wrote, and none of those that began in one and ended in the other. */
static void check_mixed(const char *name, const ht_tokenizer *t) {
    pieces p = {0};
    size_t written = 0, n;
    for (size_t i = 1 + below(10); i; i--) {
        const bool ours = below(2);
        written += ours;
        add(&p, "<|turn|>", !ours);
        add(&p, below(2) ? "a" : " ", below(2));
        const bool first = below(2);
        add(&p, "<|tu", first);
        add(&p, "rn|>", !first);
        add(&p, "b", below(2));
    }
    int32_t *ids = encode_runs(t, &p, HT_ENCODE_PARSE_SPECIAL, &n);
    const size_t found = count(ids, n, ht_tokenizer_find(t, "<|turn|>"));
    if (found != written)
        fail_msg("%s: \"%s\" has %zu special tokens, expected %zu", name, p.text.data, found, written);
    free(ids);
    ht_text_discard(&p.text);
}

UNIT_TEST(runs_of_texts) {
    const ht_json *c;
    size_t i;
    assert_true(ht_json_array_size(tokenizer_cases()) > 10);
    ht_json_array_foreach(tokenizer_cases(), i, c) {
        for (int normalized = 0; normalized < 2; normalized++) {
            ht_tokenizer *t = open_case(c, normalized);
            const char *name = tokenizer_case_name(c);
            for (int round = 0; round < 40; round++) {
                check_plain(name, t);
                check_input(name, t);
                /* One that is spelled "▁<|turn|>" is not found everywhere. */
                if (!(t->flags[ht_tokenizer_find(t, "<|turn|>")] & HT_TOKEN_RESPELLED)) check_mixed(name, t);
            }
            ht_tokenizer_free(t);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_of_texts)};
    return cmocka_run_group_tests(tests, tokenizer_cases_open, tokenizer_cases_close);
}
