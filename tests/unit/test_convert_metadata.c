/* A whole checkpoint's configuration and tokenizer through the other container: what stands in the files, and that they are
 * read as the same model. */
#include "checkpoint/convert_metadata.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { VOCAB = 12 };

/* ---- GGUF to directory ---- */

static const char *const tokens[VOCAB] = {"<s>",      "</s>",   "<unk>",  "a",       "b", "ab", "<|end_of_turn|>",
                                          "\xC3\x84", "<tool>", "[PAD9]", "[PAD10]", "c"};
static const int32_t types[VOCAB] = {3, 3, 3, 1, 1, 1, 3, 1, 4, 5, 3, 1};

static void put_llama(gguf_writer *w) {
    gguf_put_str(w, "general.architecture", "llama");
    gguf_put_u32(w, "llama.block_count", 2);
    gguf_put_u32(w, "llama.context_length", 640);
    gguf_put_u32(w, "llama.embedding_length", 16);
    gguf_put_u32(w, "llama.feed_forward_length", 48);
    gguf_put_u32(w, "llama.attention.head_count", 4);
    gguf_put_u32(w, "llama.attention.head_count_kv", 2);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_f32(w, "llama.rope.freq_base", 500000);
}

static void put_tokenizer(gguf_writer *w) {
    static const char *const merges[] = {"a b"};
    gguf_put_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_str(w, "tokenizer.ggml.pre", "llama-bpe");
    gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, VOCAB);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", types, VOCAB);
    gguf_put_strs(w, "tokenizer.ggml.merges", merges, 1);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 0);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.eot_token_id", 6);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 2);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id", 1);
    gguf_put_str(w, "tokenizer.chat_template", "{{ messages }}");
}

/* Writes the file and opens it. */
static ht_checkpoint_files *open_written(gguf_writer *w, ht_config *config) {
    ht_checkpoint_files *c;
    ht_error err = {0};
    gguf_put_tensor(w, "token_embd.weight", HT_W_F32, 2, (int64_t[]){16, VOCAB}, NULL);
    gguf_write(w, "model.gguf");
    if (ht_checkpoint_open(scratch_path("model.gguf"), &c, &err) || ht_checkpoint_config(c, config, &err))
        fail_msg("%s", err.message);
    return c;
}

static const char *text_of(const ht_directory_documents *d, const char *name) {
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->document[i].name, name)) return d->document[i].text;
    return NULL;
}

static ht_json *document_of(const ht_directory_documents *d, const char *name) {
    const char *text = text_of(d, name);
    ht_error err = {0};
    ht_json *root;
    if (!text) fail_msg("there is no %s", name);
    if (ht_json_parse_strict(text, strlen(text), name, HT_JSON_VALUES_MAX, &root, &err)) fail_msg("%s", err.message);
    return root;
}

static const char *string_in(const ht_json *o, const char *key) {
    const char *value = ht_json_string_value(ht_json_object_get(o, key));
    return value ? value : "(none)";
}

static void expect_list(const ht_json *list, int n, const int *ids) {
    assert_int_equal(ht_json_array_size(list), n);
    for (int i = 0; i < n; i++) assert_int_equal(ht_json_integer_value(ht_json_array_get(list, (size_t)i)), ids[i]);
}

static void check_config(const ht_directory_documents *d) {
    ht_json *config = document_of(d, "config.json"), *generation = document_of(d, "generation_config.json");
    assert_string_equal(string_in(config, "model_type"), "llama");
    assert_string_equal(string_in(ht_json_object_get(config, "rope_scaling"), "rope_type"), "(none)");
    assert_string_equal(string_in(config, "torch_dtype"), "bfloat16");
    assert_string_equal(string_in(config, "hidden_act"), "silu");
    assert_int_equal(ht_json_integer_value(ht_json_object_get(config, "vocab_size")), VOCAB);
    assert_true(ht_json_number_value(ht_json_object_get(config, "rms_norm_eps")) == 1e-5);
    assert_true(ht_json_is_true(ht_json_object_get(config, "tie_word_embeddings")));
    assert_int_equal(ht_json_integer_value(ht_json_object_get(config, "bos_token_id")), 0);
    assert_int_equal(ht_json_integer_value(ht_json_object_get(config, "pad_token_id")), 1);
    expect_list(ht_json_object_get(config, "eos_token_id"), 2, (int[]){1, 6});
    expect_list(ht_json_object_get(generation, "eos_token_id"), 2, (int[]){1, 6});
    ht_json_decref(config);
    ht_json_decref(generation);
}

static void check_tokenizer_config(const ht_directory_documents *d) {
    ht_json *config = document_of(d, "tokenizer_config.json");
    assert_string_equal(string_in(config, "bos_token"), "<s>");
    assert_string_equal(string_in(config, "eos_token"), "</s>");
    assert_string_equal(string_in(config, "pad_token"), "</s>");
    assert_string_equal(string_in(config, "unk_token"), "<unk>");
    assert_string_equal(string_in(config, "chat_template"), "{{ messages }}");
    assert_int_equal(ht_json_integer_value(ht_json_object_get(config, "model_max_length")), 640);
    assert_true(ht_json_is_true(ht_json_object_get(config, "add_bos_token")));
    assert_true(ht_json_is_false(ht_json_object_get(config, "add_eos_token")));
    const ht_json *added = ht_json_object_get(config, "added_tokens_decoder");
    assert_int_equal(ht_json_object_size(added), 5); /* no filler among them */
    assert_string_equal(string_in(ht_json_object_get(added, "8"), "content"), "<tool>");
    assert_true(ht_json_is_false(ht_json_object_get(ht_json_object_get(added, "8"), "special")));
    assert_true(ht_json_is_true(ht_json_object_get(ht_json_object_get(added, "6"), "special")));
    ht_json_decref(config);
    assert_string_equal(text_of(d, "chat_template.jinja"), "{{ messages }}");
    ht_json *tokenizer = document_of(d, "tokenizer.json");
    const ht_json *vocab = ht_json_object_get(ht_json_object_get(tokenizer, "model"), "vocab");
    assert_int_equal(ht_json_object_size(vocab), VOCAB - 2);
    assert_int_equal(ht_json_integer_value(ht_json_object_get(vocab, "\xC3\x84")), 7);
    assert_null(ht_json_object_get(vocab, "[PAD9]"));
    ht_json_decref(tokenizer);
}

/* Writes the documents beside an embedding. */
static void write_directory(const ht_directory_documents *d) {
    safetensors_writer w = {0};
    for (int i = 0; i < d->n; i++) scratch_write(d->document[i].name, d->document[i].text, strlen(d->document[i].text));
    safetensors_put(&w, "model.embed_tokens.weight", "F32", 2, (int64_t[]){VOCAB, 16}, NULL, VOCAB * 16 * 4);
    safetensors_write(&w, "model.safetensors");
}

static const ht_json *value_in(const ht_json *metadata, const char *key) {
    const ht_json *value = ht_json_object_get(metadata, key);
    if (!value) fail_msg("there is no %s", key);
    return ht_json_is_object(value) ? ht_json_object_get(value, "value") : value;
}

static void expect_id(const ht_json *metadata, const char *key, int id) {
    assert_int_equal(ht_json_integer_value(value_in(metadata, key)), id);
}

static void check_metadata(const ht_json *metadata) {
    assert_string_equal(ht_json_string_value(value_in(metadata, "general.architecture")), "llama");
    assert_string_equal(ht_json_string_value(value_in(metadata, "general.type")), "model");
    assert_string_equal(ht_json_string_value(value_in(metadata, "tokenizer.ggml.model")), "gpt2");
    assert_string_equal(ht_json_string_value(value_in(metadata, "tokenizer.ggml.pre")), "llama-bpe");
    assert_string_equal(ht_json_string_value(value_in(metadata, "tokenizer.chat_template")), "{{ messages }}");
    assert_true(ht_json_is_true(value_in(metadata, "tokenizer.ggml.add_bos_token")));
    expect_id(metadata, "tokenizer.ggml.bos_token_id", 0);
    expect_id(metadata, "tokenizer.ggml.eos_token_id", 1);
    expect_id(metadata, "tokenizer.ggml.eot_token_id", 6);
    expect_id(metadata, "tokenizer.ggml.unknown_token_id", 2);
    expect_id(metadata, "tokenizer.ggml.padding_token_id", 1);
    expect_id(metadata, "llama.rope.dimension_count", 4);
    const ht_json *list = value_in(metadata, "tokenizer.ggml.tokens"),
                  *kinds = value_in(metadata, "tokenizer.ggml.token_type");
    assert_int_equal(ht_json_array_size(list), VOCAB);
    for (size_t i = 0; i < VOCAB; i++) {
        assert_string_equal(ht_json_string_value(ht_json_array_get(list, i)), tokens[i]);
        assert_int_equal(ht_json_integer_value(ht_json_array_get(kinds, i)), i == 10 ? 5 : types[i]);
    }
}

/* A GGUF file, its documents as a directory, and that again. */
typedef struct trip {
    ht_checkpoint_files *c, *back;
    ht_config config, read;
    ht_directory_documents d;
} trip;

static void begin(trip *t, gguf_writer *w, const char *dtype) {
    ht_error err = {0};
    t->c = open_written(w, &t->config);
    if (ht_directory_documents_of(t->c, &t->config, false, dtype, &t->d, &err)) fail_msg("%s", err.message);
    write_directory(&t->d);
    if (ht_checkpoint_open(scratch_directory(), &t->back, &err) || ht_checkpoint_config(t->back, &t->read, &err))
        fail_msg("%s", err.message);
    assert_null(t->back->gguf);
}

static ht_json *metadata_of(const trip *t) {
    ht_error err = {0};
    ht_json *metadata;
    if (ht_gguf_metadata_of(t->back, &t->read, &metadata, &err)) fail_msg("%s", err.message);
    return metadata;
}

static void finish(trip *t) {
    ht_checkpoint_close(t->back);
    ht_directory_documents_free(&t->d);
    ht_checkpoint_close(t->c);
}

static void there_and_back(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_new();
    trip t;
    put_llama(&w);
    put_tokenizer(&w);
    begin(&t, &w, "bfloat16");
    assert_int_equal(t.d.n, 5);
    check_config(&t.d);
    check_tokenizer_config(&t.d);
    ht_json *metadata = metadata_of(&t);
    check_metadata(metadata);
    ht_json_decref(metadata);
    finish(&t);
}

/* ---- chat templates with names ---- */

static void named_templates_stay_named(void **state) {
    (void)state;
    static const char *const names[] = {"rag"};
    gguf_writer w = gguf_writer_new();
    trip t;
    put_llama(&w);
    put_tokenizer(&w);
    gguf_put_strs(&w, "tokenizer.chat_templates", names, 1);
    gguf_put_str(&w, "tokenizer.chat_template.tool_use", "T"); /* found without its name in the list */
    gguf_put_str(&w, "tokenizer.chat_template.rag", "R");
    begin(&t, &w, "bfloat16");
    assert_null(text_of(&t.d, "chat_template.jinja")); /* it would be taken for all of them */
    for (int replaced = 0; replaced < 2; replaced++) {
        ht_json *metadata = metadata_of(&t);
        assert_string_equal(ht_json_string_value(value_in(metadata, "tokenizer.chat_template")), "{{ messages }}");
        assert_string_equal(ht_json_string_value(value_in(metadata, "tokenizer.chat_template.tool_use")),
                            replaced ? "U" : "T");
        assert_string_equal(ht_json_string_value(value_in(metadata, "tokenizer.chat_template.rag")), "R");
        assert_int_equal(ht_json_array_size(value_in(metadata, "tokenizer.chat_templates")), 2);
        ht_json_decref(metadata);
        if (replaced) continue;
        assert_int_equal(mkdir(scratch_path("additional_chat_templates"), 0777), 0);
        scratch_write("additional_chat_templates/tool_use.jinja", "U", 1);
    }
    finish(&t);
}

/* ---- what is missing or wrong ---- */

static void refuse_file(gguf_writer *w, ht_status status, const char *says) {
    ht_config config;
    ht_directory_documents d;
    ht_error err = {0};
    ht_checkpoint_files *c = open_written(w, &config);
    assert_int_equal(ht_directory_documents_of(c, &config, false, "bfloat16", &d, &err), status);
    assert_non_null(strstr(err.message, says));
    assert_non_null(strstr(err.message, "model.gguf"));
    ht_directory_documents_free(&d);
    ht_checkpoint_close(c);
}

static void broken_files_are_refused(void **state) {
    (void)state;
    static const char *const tokens_of[][2] = {{"a", "\xFF"}, {"a", "b"}}, *const says[] = {
                                                                               "token 1 is not valid UTF-8",
                                                                               "tokenizer.ggml.merges"};
    static const char *const factors_say[] = {"tensor `rope_freqs.weight` is [3], its metadata implies [2]",
                                              "`rope_freqs.weight` holds 0"};
    for (int i = 0; i < 2; i++) {
        gguf_writer w = gguf_writer_new();
        put_llama(&w);
        gguf_put_str(&w, "tokenizer.ggml.model", "gpt2");
        gguf_put_str(&w, "tokenizer.ggml.pre", "gpt-2");
        gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens_of[i], 2);
        refuse_file(&w, HT_ERR_FORMAT, says[i]);
        w = gguf_writer_new();
        put_llama(&w);
        gguf_put_tensor(&w, HT_ROPE_FACTORS, HT_W_F32, 1, (int64_t[]){3 - i}, NULL);
        refuse_file(&w, HT_ERR_FORMAT, factors_say[i]);
    }
}

static void without_a_tokenizer(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_new();
    trip t;
    ht_error err = {0};
    put_llama(&w);
    gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", 3);
    begin(&t, &w, "float16");
    assert_int_equal(t.d.n, 2);
    ht_json *metadata = metadata_of(&t);
    expect_id(metadata, "tokenizer.ggml.eos_token_id", 3);
    assert_null(ht_json_object_get(metadata, "tokenizer.ggml.tokens"));
    ht_json_decref(metadata);
    scratch_write("tokenizer.model", "x", 1);
    assert_int_equal(ht_gguf_metadata_of(t.back, &t.read, &metadata, &err), HT_ERR_UNSUPPORTED);
    assert_null(metadata);
    assert_non_null(strstr(err.message, "tokenizer.model"));
    scratch_write("tokenizer.json", "{}", 2);
    assert_fails(HT_ERR_FORMAT, "tokenizer.json", ht_gguf_metadata_of, t.back, &t.read, &metadata);
    finish(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {in_scratch(there_and_back), in_scratch(named_templates_stay_named),
                                       in_scratch(broken_files_are_refused), in_scratch(without_a_tokenizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
