/* Every vocabulary of the package that scripts/fetch-test-models unpacks: the texts (.inp) and ids (.out) that
 * stand beside it, and the tokens that end reasoning in it. Skipped without HEARTH_TEST_MODELS. */
#include "base/file.h"
#include "base/text.h"
#include "chat/response.h"
#include "generate/thinking_budget.h"
#include "support/test.h"
#include "tokenizer/token_trie.h"

#include <hearth/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 1 << 20, PATH_MOST = 1024 };

typedef struct vocabulary {
    const char *name;
    int n_texts;
    int n_bare; /* texts whose ids were made without the tokenizer's own normal form */
} vocabulary;

static void path_of(char path[PATH_MOST], const vocabulary *v, const char *end) {
    const char *directory = getenv("HEARTH_TEST_MODELS");
    snprintf(path, PATH_MOST, "%s/vocab/ggml-vocab-%s.gguf%s", directory ? directory : "", v->name, end);
}

static char *read_beside(const vocabulary *v, const char *end) {
    char path[PATH_MOST], *text;
    size_t n;
    path_of(path, v, end);
    assert_works(ht_file_read_all, path, LIMIT, &text, &n);
    char *whole = malloc(n + 1);
    assert_non_null(whole);
    memcpy(whole, text, n);
    whole[n] = '\0';
    free(text);
    return whole;
}

/* The combining marks that the three bare texts have; composed, they would be other tokens. */
static bool has_marks(const char *text) { return strstr(text, "\xcc\x80") || strstr(text, "\xcc\x81"); }

static bool same_ids(const int32_t *ids, size_t n, const char *expected) {
    for (size_t i = 0; i < n; i++) {
        char *end;
        long id = strtol(expected, &end, 10);
        if (end == expected || id != ids[i]) return false;
        expected = end;
    }
    return expected[strspn(expected, " ")] == '\0';
}

/* Whether a text gives the ids. */
static bool gives(const ht_tokenizer *t, const char *text, const char *expected) {
    int32_t *ids;
    size_t n;
    assert_works(ht_tokenizer_encode, t, text, strlen(text), 0, &ids, &n);
    bool same = same_ids(ids, n, expected);
    free(ids);
    return same;
}

/* Loads its tokenizer, or skips the test. */
static ht_tokenizer *load(const vocabulary *v) {
    char path[PATH_MOST];
    path_of(path, v, ".inp");
    FILE *there = getenv("HEARTH_TEST_MODELS") ? fopen(path, "rb") : NULL;
    if (!there) {
        print_message("skipped: HEARTH_TEST_MODELS does not name a directory with %s\n", path);
        skip();
    }
    fclose(there);
    path_of(path, v, "");
    ht_tokenizer *t;
    assert_works(ht_tokenizer_load, path, &t);
    return t;
}

static void follows_the_package(void **state) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    const vocabulary *v = *state;
    ht_tokenizer *t = load(v);
    char *texts = read_beside(v, ".inp"), *ids = read_beside(v, ".out"), *text = texts, *line = ids;
    int n = 0, n_bare = 0;
    for (; *line; n++) { /* the last text may end without a separator */
        char *end = strstr(text, separator), *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        if (end) *end = '\0';
        *line_end = '\0';
        bool same = gives(t, text, line);
        n_bare += !same;
        if (!same && (!v->n_bare || !has_marks(text))) fail_msg("%s: \"%s\" does not give %s", v->name, text, line);
        text = end ? end + sizeof separator - 1 : text + strlen(text);
        line = line_end + 1;
    }
    assert_int_equal(n, v->n_texts);
    assert_int_equal(n_bare, v->n_bare);
    free(texts);
    free(ids);
    ht_tokenizer_free(t);
}

/* ---- ends of reasoning ---- */

static void append_tokens(ht_text *text, const ht_tokenizer *t, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        char *bytes;
        size_t length;
        if (ht_tokenizer_is_special(t, ids[i])) {
            ht_text_append_str(text, ht_tokenizer_piece(t, ids[i]));
            continue;
        }
        assert_int_equal(ht_tokenizer_token_bytes(t, ids[i], &bytes, &length, NULL), HT_OK);
        ht_text_append(text, bytes, length);
        ht_text_free(bytes);
    }
}

/* The tokens spell what is missing of an end, no byte more: no space before it, as some tokenizers begin texts. */
static void check_end(ht_model *m, const ht_reasoning_format *format, const ht_reasoning_position *place) {
    static const ht_reasoning_blanks blanks = {"\n", "\n\n"};
    const bool is_token = ht_tokenizer_find(m->tokenizer, format->close) >= 0;
    const size_t begun = is_token || place->is_title ? 0 : place->closing_bytes;
    ht_text expected = {0}, found = {0};
    ht_reasoning_end end;
    if (place->is_title) ht_text_append_str(&expected, format->title + place->title_bytes);
    if (!begun) ht_text_append_str(&expected, blanks.before);
    ht_text_append_str(&expected, format->close + begun);
    const size_t mark_end = expected.len;
    ht_text_append_str(&expected, blanks.behind);
    assert_works(ht_reasoning_end_write, m, format, &blanks, place, &end);
    append_tokens(&found, m->tokenizer, end.id, end.n);
    assert_string_equal(found.data, expected.data);
    if (is_token) assert_int_equal(end.id[end.n_before], ht_tokenizer_find(m->tokenizer, format->close));
    ht_text_clear(&found);
    append_tokens(&found, m->tokenizer, end.id, end.n_mark);
    assert_true(found.len >= mark_end);
    ht_text_clear(&found);
    append_tokens(&found, m->tokenizer, end.id, end.n_mark - 1);
    assert_true(found.len < mark_end);
    ht_reasoning_end_free(&end);
    ht_text_discard(&found);
    ht_text_discard(&expected);
}

static void writes_ends_of_reasoning(void **state) {
    static const char *const sources[] = {"", "<|channel>", "[THINK]", "</seed:think>"};
    ht_tokenizer *t = load(*state);
    ht_model m = {.tokenizer = t};
    pthread_mutex_init(&m.lock, NULL);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const ht_reasoning_format *format = ht_reasoning_format_of(sources[i]);
        for (size_t begun = 0; begun < strlen(format->close); begun++)
            check_end(&m, format, &(ht_reasoning_position){.is_inside = true, .closing_bytes = begun});
        for (size_t begun = 0; format->title && begun < strlen(format->title); begun++)
            check_end(&m, format, &(ht_reasoning_position){.is_inside = true, .is_title = true, .title_bytes = begun});
    }
    ht_token_trie_free(m.token_trie);
    pthread_mutex_destroy(&m.lock);
    ht_tokenizer_free(t);
}

int main(void) {
    static vocabulary all[] = {{"command-r", 46, 0}, {"deepseek-coder", 46, 0}, {"deepseek-llm", 46, 0},
                               {"falcon", 46, 0},    {"gemma-4", 46, 0},        {"gpt-2", 46, 0},
                               {"llama-bpe", 46, 0}, {"llama-spm", 46, 0},      {"mpt", 46, 0},
                               {"phi-3", 46, 0},     {"qwen2", 46, 0},          {"qwen35", 50, 3},
                               {"refact", 46, 0},    {"starcoder", 46, 0}};
    static vocabulary words = {"bert-bge", 46, 0}; /* of an encoder, which does not reason */
    enum { COUNT = sizeof all / sizeof *all };
    struct CMUnitTest tests[2 * COUNT + 1];
    tests[2 * COUNT] = (struct CMUnitTest)cmocka_unit_test_prestate(follows_the_package, &words);
    for (int i = 0; i < COUNT; i++) {
        tests[i] = (struct CMUnitTest)cmocka_unit_test_prestate(follows_the_package, &all[i]);
        tests[COUNT + i] = (struct CMUnitTest)cmocka_unit_test_prestate(writes_ends_of_reasoning, &all[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
