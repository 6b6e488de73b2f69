/* Stop ids and chat formats, from what a vocabulary holds, what its files forget to say, and what lies beside them. */
#include "checkpoint/chat_detection.h"
#include "support/gguf_writer.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/warnings.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
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
    if (template) gguf_put_str(&w, "tokenizer.chat_template.tool_use", "{{ tools }}");
    size_t size;
    unsigned char *file = gguf_finish(&w, &size);
    ht_gguf *g;
    ht_tokenizer *t;
    assert_works(ht_gguf_parse, file, size, "t.gguf", &g);
    assert_works(ht_tokenizer_from_gguf, g, "t.gguf", &t);
    ht_gguf_free(g);
    free(file);
    return t;
}

static void check_format(const char *special, const char *template, const char *expected) {
    ht_tokenizer *t = tokenizer_of((const char *const[]){"</s>", special}, 2, template);
    ht_chat_setup chat;
    ht_error err = {0};
    assert_int_equal(ht_chat_detect_template(t, &chat, &err), HT_OK);
    if (expected)
        assert_string_equal(chat.name, expected);
    else
        assert_null(chat.name);
    assert_true(!chat.template == (!expected || chat.error.status));
    assert_true(!chat.for_tools == !template);
    ht_chat_setup_free(&chat);
    ht_tokenizer_free(t);
}

UNIT_TEST(formats) {
    check_format("<|im_start|>", NULL, "chatml");
    check_format("<start_of_turn>", NULL, "gemma");
    check_format("<|turn>", NULL, "gemma4");
    check_format("<|start_header_id|>", NULL, "llama3");
    check_format("<\357\275\234User\357\275\234>", NULL, "deepseek");
    check_format("<<SYS>>", NULL, "llama2");
    check_format("[INST]", NULL, "mistral");
    check_format("<other>", NULL, NULL);
    check_format("<other>", "{{ '<other>' + content }}", "template");
    check_format("<|im_start|>", "{{ broken", "template"); /* a template of its own is not replaced, whatever it is */
}

UNIT_TEST(stop_ids) {
    const char *const specials[] = {"</s>",          "<|im_end|>", "<other>",  "<end_of_turn>", "<|eot_id|>",
                                    "<|endoftext|>", "<|end|>",    "<|call|>", "<|channel|>"};
    ht_tokenizer *t = tokenizer_of(specials, 9, NULL);
    ht_config config = {.eos = {3, 27}, .n_eos = 2};
    int32_t *ids;
    int n;
    ht_error err = {0};
    assert_int_equal(ht_chat_detect_stop_ids(&config, t, &ids, &n, &err), HT_OK);
    bool seen[64] = {false};
    for (int i = 0; i < n; i++) {
        assert_false(seen[ids[i]]); /* once each */
        seen[ids[i]] = true;
    }
    assert_int_equal(n, 7);
    assert_true(seen[3] && seen[26] && seen[27] && seen[29] && seen[30] && seen[31] && !seen[28]);
    assert_true(seen[33] && !seen[32]); /* <|end|> ends messages of gpt-oss, not its answers */
    free(ids);
    ht_tokenizer_free(t);

    assert_int_equal(ht_chat_detect_stop_ids(&config, NULL, &ids, &n, &err), HT_OK);
    assert_true(n == 2 && ids[0] == 3 && ids[1] == 27);
    free(ids);
}

/* The stops of a family's vocabulary: exactly those of `specials` that `stops` lists by their places. */
static void check_stops(const char *const *specials, const char *stops) {
    int n_specials = 0, n;
    while (specials[n_specials]) n_specials++;
    ht_tokenizer *t = tokenizer_of(specials, n_specials, NULL);
    const ht_config config = {.n_eos = 0};
    int32_t *ids;
    ht_error err = {0};
    char found[64] = "";
    assert_int_equal(ht_chat_detect_stop_ids(&config, t, &ids, &n, &err), HT_OK);
    for (int place = 0; place < n_specials; place++)
        for (int i = 0; i < n; i++)
            if (ids[i] == 26 + place) snprintf(found + strlen(found), 4, "%d ", place);
    assert_string_equal(found, stops);
    free(ids);
    ht_tokenizer_free(t);
}

/* Token 0 is the file's EOS. */
#define SPECIALS(...) ((const char *const[]){__VA_ARGS__, NULL})
UNIT_TEST(stops_of_families) {
    check_stops(SPECIALS("<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>", "<|system|>"), "0 3 "); /* Phi */
    check_stops(SPECIALS("<|return|>", "<|end|>", "<|call|>", "<|channel|>", "<|message|>", "<|endoftext|>"),
                "0 2 5 "); /* gpt-oss */
    check_stops(SPECIALS("<|endoftext|>", "[gMASK]", "<|user|>", "<|assistant|>", "<|observation|>"),
                "0 2 4 "); /* GLM */
    check_stops(SPECIALS("<|endoftext|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"), "0 1 ");
    check_stops(SPECIALS("<|end_of_text|>", "<|eom|>", "<|eot|>", "<|header_start|>"), "0 1 2 "); /* Llama 4 */
    check_stops(SPECIALS("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"), "0 ");       /* Granite */
    check_stops(SPECIALS("<pad>", "[|endofturn|]", "[|user|]"), "0 1 ");
    check_stops(SPECIALS("<seed:pad>", "<seed:bos>", "<seed:eos>"), "0 2 ");
    check_stops(SPECIALS("<pad>", "]~b]", "[e~["), "0 2 ");
    check_stops(SPECIALS("</s>", "<extra_id_0>", "<extra_id_1>", "<extra_id_2>"), "0 2 "); /* Nemotron */
    check_stops(SPECIALS("[BOS]", "[EOS]", "<|im_end|>", "[EOT]"), "0 1 2 3 ");            /* Kimi K2 */
    check_stops(SPECIALS("<pad>", "</s>"), "0 1 ");
}

/* A GGUF file of a llama without weights: metadata, and one token per letter; eos < 0 and NULL leave a value out. */
static void write_gguf(const char *name, const char *template, int eos) {
    static const char *const tokens[] = {"a", "b", "c", "<|im_end|>"};
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "llama");
    gguf_put_u32(&w, "llama.block_count", 1);
    gguf_put_u32(&w, "llama.embedding_length", 32);
    gguf_put_u32(&w, "llama.attention.head_count", 4);
    gguf_put_u32(&w, "llama.feed_forward_length", 64);
    gguf_put_u32(&w, "llama.context_length", 128);
    gguf_put_str(&w, "tokenizer.ggml.model", "gpt2");
    gguf_put_str(&w, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 4);
    gguf_put_strs(&w, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 0);
    if (eos >= 0) gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    if (template) gguf_put_str(&w, "tokenizer.chat_template", template);
    size_t size;
    unsigned char *file = gguf_finish(&w, &size);
    scratch_write(name, file, size);
    free(file);
}

static void write_text(const char *name, const char *text) { scratch_write(name, text, strlen(text)); }

/* What is found when `path` is opened. */
static void expect_beside(const char *path, const char *template, int n_eos, int32_t eos) {
    static ht_config config;
    ht_checkpoint_files *c;
    ht_tokenizer *t = NULL;
    ht_error err = {0};
    if (ht_checkpoint_open(path, &c, &err) || ht_checkpoint_config(c, &config, &err) ||
        ht_chat_detect_tokenizer(c, &t, &err))
        fail_msg("%s", err.message);
    const char *found = ht_tokenizer_chat_template(t);
    assert_true(template ? found && !strcmp(found, template) : !found);
    assert_int_equal(ht_tokenizer_vocab_size(t), 4); /* the GGUF's own, always */
    assert_int_equal(config.n_eos, n_eos);
    if (n_eos) assert_int_equal(config.eos[0], eos);
    ht_tokenizer_free(t);
    ht_checkpoint_close(c);
    assert_works(ht_tokenizer_load, path, &t); /* what needs no model agrees */
    assert_int_equal(ht_tokenizer_vocab_size(t), 4);
    ht_tokenizer_free(t);
}

/* A GGUF file says first what it says; what it lacks is looked for in the files beside it. */
UNIT_TEST(files_beside_a_gguf) {
    const char *directory = scratch_directory();
    char file[1024];
    snprintf(file, sizeof file, "%s", scratch_path("m.gguf"));
    write_gguf("m.gguf", NULL, -1);
    expect_beside(directory, NULL, 0, 0);
    write_text("tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"z\": 0}, \"merges\": []}}");
    write_text("tokenizer_config.json", "{\"chat_template\": \"beside\", \"bos_token\": \"z\"}");
    write_text("config.json", "{\"model_type\": \"llama\", \"eos_token_id\": 2, \"hidden_size\": 7}");
    expect_beside(directory, "beside", 1, 2);
    expect_beside(file, "beside", 1, 2);
    write_text("generation_config.json", "{\"eos_token_id\": [1, 3]}");
    write_text("chat_template.jinja", "jinja");
    expect_beside(file, "jinja", 2, 1);
    write_gguf("m.gguf", "own", 0);
    expect_beside(directory, "own", 1, 0);
    expect_beside(file, "own", 1, 0);
    /* With another model there, nobody knows whose the other files are. */
    write_gguf("m.gguf", NULL, -1);
    write_gguf("n.gguf", NULL, -1);
    expect_beside(file, NULL, 0, 0);
    remove(scratch_path("n.gguf"));
    expect_beside(file, "jinja", 2, 1);
    write_text("generation_config.json", "{\"eos_token_id\": 4}");
    ht_checkpoint_files *c;
    static ht_config config;
    ht_error err = {0};
    assert_int_equal(ht_checkpoint_open(directory, &c, &err), HT_OK);
    warnings_begin();
    assert_works(ht_checkpoint_config, c, &config);
    assert_string_equal(
        warnings_end(1),
        "generation_config.json: `eos_token_id` is 4, outside the vocabulary of 4 tokens; it is ignored\n");
    assert_true(config.n_eos == 1 && config.eos[0] == 2); /* config.json's */
    ht_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(formats), cmocka_unit_test(stop_ids),
                                       cmocka_unit_test(stops_of_families), in_scratch(files_beside_a_gguf)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
