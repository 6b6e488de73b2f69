/* Real vocabularies against Hugging Face tokenizers (tests/golden/make_tokenizer_golden.py). Skipped without
 * HEARTH_TEST_MODELS. */
#include "base/text.h"
#include "support/test.h"

#include <hearth/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct vocabulary {
    const char *name, *file; /* the golden file's name; the path below HEARTH_TEST_MODELS */
} vocabulary;

/* Undoes the escapes of a golden file: \xNN. */
static void unescape(const char *from, size_t n, ht_text *out) {
    ht_text_clear(out);
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '\\') {
            char hex[3] = {from[i + 2], from[i + 3], '\0'};
            c = (char)strtol(hex, NULL, 16);
            i += 3;
        }
        ht_text_append(out, &c, 1);
    }
}

static void check_line(const ht_tokenizer *t, char *line) {
    char *ids_text = strchr(line, '\t') + 1, *decoded_text = strchr(ids_text, '\t');
    ht_text text = {0}, decoded = {0};
    unescape(line, (size_t)(ids_text - 1 - line), &text);
    if (decoded_text)
        unescape(decoded_text + 1, strlen(decoded_text + 1), &decoded);
    else
        ht_text_append(&decoded, text.data, text.len);
    int32_t *ids;
    size_t n, length;
    assert_works(ht_tokenizer_encode, t, text.data, text.len, HT_ENCODE_PARSE_SPECIAL, &ids, &n);
    char *p = ids_text;
    for (size_t i = 0; i < n; i++) {
        char *end;
        long expected = strtol(p, &end, 10);
        if (end == p || expected != ids[i]) fail_msg("%s: id %zu is %d", line, i, (int)ids[i]);
        p = end;
    }
    if (*p && *p != '\t') fail_msg("%s: only %zu ids", line, n);
    char *back;
    assert_works(ht_tokenizer_decode, t, ids, n, false, &back, &length);
    if (length != decoded.len || memcmp(back, decoded.data, length) != 0) fail_msg("%s: decoded to %s", line, back);
    free(back);
    free(ids);
    ht_text_discard(&text);
    ht_text_discard(&decoded);
}

static void follows_the_reference(void **state) {
    const vocabulary *v = *state;
    const char *directory = getenv("HEARTH_TEST_MODELS");
    char path[1024], line[16384];
    snprintf(path, sizeof path, "%s/%s", directory ? directory : "", v->file);
    FILE *model = directory ? fopen(path, "rb") : NULL;
    if (!model) {
        print_message("skipped: HEARTH_TEST_MODELS does not name a directory with %s\n", v->file);
        skip();
    }
    fclose(model);
    ht_tokenizer *t;
    assert_works(ht_tokenizer_load, path, &t);
    snprintf(path, sizeof path, "tests/golden/tokenizer/real/%s.tsv", v->name);
    FILE *golden = fopen(path, "r");
    assert_non_null(golden);
    int lines = 0;
    for (; fgets(line, sizeof line, golden); lines++) {
        line[strcspn(line, "\n")] = '\0';
        check_line(t, line);
    }
    fclose(golden);
    assert_int_equal(lines, 300);
    ht_tokenizer_free(t);
}

int main(void) {
    static vocabulary all[] = {{"smollm2-135m", "smollm2-135m.gguf"},
                               {"qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b.gguf"},
                               {"gemma3-270m", "gemma3-270m.gguf"},
                               {"llama3", "vocab/ggml-vocab-llama-bpe.gguf"},
                               {"gemma4", "vocab/ggml-vocab-gemma-4.gguf"},
                               {"bert-bge", "vocab/ggml-vocab-bert-bge.gguf"},
                               {"nomic-bert-moe", "vocab/ggml-vocab-nomic-bert-moe.gguf"}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(follows_the_reference, &all[0]),
        cmocka_unit_test_prestate(follows_the_reference, &all[1]),
        cmocka_unit_test_prestate(follows_the_reference, &all[2]),
        cmocka_unit_test_prestate(follows_the_reference, &all[3]),
        cmocka_unit_test_prestate(follows_the_reference, &all[4]),
        cmocka_unit_test_prestate(follows_the_reference, &all[5]),
        cmocka_unit_test_prestate(follows_the_reference, &all[6]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
