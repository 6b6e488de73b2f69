/* Stop ids and chat formats, from what a vocabulary holds and what its files forget to say. */
#include "models/talk.h"
#include "support/gguf_writer.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* A byte-level vocabulary of single letters and these tokens, from id 26 on. */
static ht_tokenizer *tokenizer_of(const char *const *specials, int n, const char *template) {
    const char *tokens[64];
    char letters[26][2];
    int32_t types[64];
    for (int i = 0; i < 26; i++) {
        letters[i][0] = (char)('a' + i);
        letters[i][1] = '\0';
        tokens[i] = letters[i];
        types[i] = 1;
    }
    for (int i = 0; i < n; i++) {
        tokens[26 + i] = specials[i];
        types[26 + i] = 3; /* control */
    }
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "gpt2");
    gguf_put_str(&w, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 26 + (size_t)n);
    gguf_put_i32s(&w, "tokenizer.ggml.token_type", types, 26 + (size_t)n);
    gguf_put_strs(&w, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 0);
    gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", 26);
    if (template) gguf_put_str(&w, "tokenizer.chat_template", template);
    size_t size;
    unsigned char *file = gguf_finish(&w, &size);
    ht_error err = {0};
    ht_gguf *g;
    ht_tokenizer *t;
    if (ht_gguf_parse(file, size, "t.gguf", &g, &err)) fail_msg("%s", err.message);
    if (ht_tokenizer_from_gguf(g, "t.gguf", &t, &err)) fail_msg("%s", err.message);
    ht_gguf_free(g);
    free(file);
    return t;
}

static void check_format(const char *special, const char *template, const char *expected) {
    ht_tokenizer *t = tokenizer_of((const char *const[]){"</s>", special}, 2, template);
    const char *format = ht_talk_format(t);
    if (expected)
        assert_string_equal(format, expected);
    else
        assert_null(format);
    ht_tokenizer_free(t);
}

static void formats(void **state) {
    (void)state;
    check_format("<|im_start|>", NULL, "chatml");
    check_format("<start_of_turn>", NULL, "gemma");
    check_format("<|turn>", NULL, "gemma4");
    check_format("<|start_header_id|>", NULL, "llama3");
    check_format("<other>", NULL, NULL);
    check_format("<other>", "{{ '<start_of_turn>' + role }}", "gemma");
    check_format("<|im_start|>", "{{ '[INST]' + content }}", NULL); /* a template of its own is not replaced */
}

static void stop_ids(void **state) {
    (void)state;
    const char *const specials[] = {"</s>", "<|im_end|>", "<other>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>"};
    ht_tokenizer *t = tokenizer_of(specials, 6, NULL);
    ht_config config = {.eos = {3, 27}, .n_eos = 2};
    int32_t *ids;
    int n;
    ht_error err = {0};
    assert_int_equal(ht_talk_stop_ids(&config, t, &ids, &n, &err), HT_OK);
    bool seen[64] = {false};
    for (int i = 0; i < n; i++) {
        assert_false(seen[ids[i]]); /* once each */
        seen[ids[i]] = true;
    }
    assert_int_equal(n, 6);
    assert_true(seen[3] && seen[26] && seen[27] && seen[29] && seen[30] && seen[31] && !seen[28]);
    free(ids);
    ht_tokenizer_free(t);

    assert_int_equal(ht_talk_stop_ids(&config, NULL, &ids, &n, &err), HT_OK);
    assert_true(n == 2 && ids[0] == 3 && ids[1] == 27);
    free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(formats), cmocka_unit_test(stop_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
