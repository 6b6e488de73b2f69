/* The configuration in GGUF metadata: defaults of the family for what files leave out, refusals by name. */
#include "models/registry.h"
#include "support/gguf_writer.h"
#include "support/test.h"
#include "support/warnings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A llama, qwen2 or gemma3 file's usual keys. */
static gguf_writer usual(const char *architecture, uint32_t layers) {
    gguf_writer w = gguf_writer_new();
    char key[96];
    const struct {
        const char *name;
        uint32_t value;
    } sizes[] = {{"block_count", layers},     {"context_length", 128},     {"embedding_length", 64},
                 {"feed_forward_length", 96}, {"attention.head_count", 4}, {"vocab_size", 50}};
    gguf_put_str(&w, "general.architecture", architecture);
    gguf_put_str(&w, "general.name", "A name");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, sizes[i].name);
        gguf_put_u32(&w, key, sizes[i].value);
    }
    return w;
}

static ht_status read_config(gguf_writer *w, ht_config *c, ht_error *err) {
    size_t size;
    unsigned char *file = gguf_finish(w, &size);
    ht_gguf *g;
    *err = (ht_error){0};
    if (ht_gguf_parse(file, size, "m.gguf", &g, err)) fail_msg("%s", err->message);
    ht_status status = ht_config_from_gguf(g, "m.gguf", c, err);
    ht_gguf_free(g);
    free(file);
    return status;
}

static ht_config read_ok(gguf_writer *w) {
    ht_config c;
    ht_error err;
    if (read_config(w, &c, &err)) fail_msg("%s", err.message);
    return c;
}

static void refused(gguf_writer *w, ht_status status, const char *word) {
    ht_config c;
    ht_error err;
    assert_int_equal(read_config(w, &c, &err), status);
    if (!strstr(err.message, "m.gguf: ") || !strstr(err.message, word))
        fail_msg("\"%s\" does not say \"%s\"", err.message, word);
}

static void llama(void **state) {
    (void)state;
    gguf_writer w = usual("llama", 3);
    gguf_put_u32(&w, "llama.attention.head_count_kv", 2);
    gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_u32(&w, "tokenizer.ggml.eot_token_id", 9);
    ht_config c = read_ok(&w);
    assert_ptr_equal(c.family, &ht_family_llama);
    assert_string_equal(c.name, "A name");
    assert_true(c.n_layers == 3 && c.n_heads == 4 && c.n_kv_heads == 2 && c.head_dim == 16 && c.vocab == 50);
    assert_true(c.is_gguf && c.tied_head && !c.q_bias && c.norm_offset == 0);
    assert_true(c.rope.theta == 10000 && c.attention_scale == 0.25f);
    assert_true(c.n_eos == 2 && c.eos[0] == 2 && c.eos[1] == 9);
}

static void pooling(void **state) {
    (void)state;
    static const char *const names[] = {"none", "mean", "cls", "last", "rank", "unknown"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        gguf_writer w = usual("qwen3", 1);
        gguf_put_u32(&w, "qwen3.pooling_type", i);
        gguf_put_bool(&w, "qwen3.attention.causal", true);
        assert_string_equal(read_ok(&w).pooling, names[i]);
    }
    gguf_writer w = usual("qwen3", 1);
    assert_string_equal(read_ok(&w).pooling, "");
}

static void tensors_tell(void **state) {
    (void)state;
    gguf_writer w = usual("qwen2", 1);
    gguf_put_tensor(&w, "token_embd.weight", HT_W_F32, 2, (int64_t[]){64, 53}, NULL);
    gguf_put_tensor(&w, "output.weight", HT_W_F32, 2, (int64_t[]){64, 53}, NULL);
    gguf_put_tensor(&w, "blk.0.attn_q.bias", HT_W_F32, 1, (int64_t[]){64}, NULL);
    ht_config c = read_ok(&w);
    assert_true(c.vocab == 53 && !c.tied_head && c.q_bias);
    assert_int_equal(c.n_kv_heads, 4);
}

static void gemma(void **state) {
    (void)state;
    gguf_writer w = usual("gemma3", 62); /* as many as the 27B, whose scale is not in the file */
    gguf_put_u32(&w, "gemma3.attention.key_length", 32);
    gguf_put_u32(&w, "gemma3.attention.value_length", 32);
    gguf_put_u32(&w, "gemma3.attention.sliding_window", 20);
    ht_config c = read_ok(&w);
    assert_true(c.attention_scale == 0.25f && c.window == 20 && c.norm_offset == 0 && c.head_dim == 32);
    assert_true(c.rope.theta == 1e6 && c.local_rope.theta == 1e4 && c.tied_head);
    for (int i = 0; i < 62; i++) assert_int_equal(c.layer[i].slides, (i + 1) % 6 != 0);

    w = usual("gemma3", 2);
    gguf_put_u32(&w, "gemma3.attention.sliding_window", 20);
    gguf_put_f32(&w, "gemma3.attention.scale", 0.5f);
    gguf_put_f32(&w, "gemma3.rope.freq_base_swa", 5000);
    gguf_put_f32(&w, "gemma3.final_logit_softcapping", 30);
    gguf_put_str(&w, "gemma3.rope.scaling.type", "linear");
    gguf_put_f32(&w, "gemma3.rope.scaling.factor", 8);
    gguf_put_i32s(&w, "gemma3.attention.sliding_window_pattern", (int32_t[]){0, 1}, 2);
    c = read_ok(&w);
    assert_true(c.attention_scale == 0.5f && c.local_rope.theta == 5000 && c.final_softcap == 30);
    assert_true(!c.layer[0].slides && c.layer[1].slides);
    assert_true(c.rope.kind == HT_ROPE_LINEAR && c.rope.factor == 8 && c.local_rope.kind == HT_ROPE_PLAIN);

    w = usual("llama", 2);
    gguf_put_str(&w, "llama.rope.scaling.type", "yarn");
    gguf_put_f32(&w, "llama.rope.scaling.factor", 8);
    gguf_put_u32(&w, "llama.rope.scaling.original_context_length", 64);
    gguf_put_f32(&w, "llama.rope.scaling.yarn_log_multiplier", 0.5f);
    gguf_put_f32(&w, "llama.rope.scaling.yarn_ext_factor", 1);
    c = read_ok(&w);
    assert_true(c.rope.kind == HT_ROPE_YARN && c.rope.original_context == 64 && c.rope.beta_fast == 32);
    assert_true(c.rope.attention_factor == 0 && c.rope.mscale == 1 && c.rope.mscale_all_dim == 0.5);

    w = usual("gemma3", 2); /* no window: nothing slides */
    c = read_ok(&w);
    assert_true(c.window == 0 && !c.layer[0].slides && !c.layer[1].slides);

    w = usual("gemma3", 4);
    gguf_put_u32(&w, "gemma3.attention.sliding_window", 20);
    gguf_put_u32(&w, "gemma3.attention.sliding_window_pattern", 2);
    c = read_ok(&w);
    assert_true(c.layer[0].slides && !c.layer[1].slides && c.layer[2].slides && !c.layer[3].slides);
}

static void head_counts_per_layer(void **state) {
    (void)state;
    gguf_writer w = usual("llama", 3);
    gguf_put_i32s(&w, "llama.attention.head_count_kv", (int32_t[]){2, 2, 2}, 3);
    assert_int_equal(read_ok(&w).n_kv_heads, 2);
    w = usual("llama", 3);
    gguf_put_i32s(&w, "llama.attention.head_count_kv", (int32_t[]){2, 1, 2}, 3);
    ht_config c = read_ok(&w);
    assert_true(c.layer[0].n_kv_heads == 2 && c.layer[1].n_kv_heads == 1 && c.layer[2].n_kv_heads == 2);
    w = usual("llama", 3);
    gguf_put_i32s(&w, "llama.attention.head_count_kv", (int32_t[]){2, 1}, 2);
    refused(&w, HT_ERR_FORMAT, "layer 2");
}

/* A file of the usual keys and one more. */
#define REFUSED(put, architecture, key, value, status, word)                                                           \
    (w = usual(architecture, 1), put(&w, key, value), refused(&w, status, word))

/* A window of LFM2 is of all layers with attention; other models with recurrent layers have none. */
static void windows_beside_recurrence(void **state) {
    (void)state;
    gguf_writer w = usual("lfm2", 3);
    gguf_put_i32s(&w, "lfm2.attention.head_count_kv", (const int32_t[]){0, 2, 2}, 3);
    gguf_put_u32(&w, "lfm2.attention.sliding_window", 20);
    const ht_config c = read_ok(&w);
    assert_true(c.window == 20 && c.layer[0].recurrent);
    assert_true(!c.layer[0].slides && c.layer[1].slides && c.layer[2].slides);
    w = usual("falcon-h1", 1);
    gguf_put_u32(&w, "falcon-h1.attention.sliding_window", 20);
    refused(&w, HT_ERR_UNSUPPORTED, "falcon-h1.attention.sliding_window");
}

static void refusals(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_new();
    refused(&w, HT_ERR_FORMAT, "general.architecture");
    w = usual("mamba", 1);
    refused(&w, HT_ERR_UNSUPPORTED, "`mamba` is not supported; `hearth formats` lists those that are");
    w = usual("llama", 0);
    refused(&w, HT_ERR_FORMAT, "block_count");
    w = usual("llama", 4000000000u);
    refused(&w, HT_ERR_FORMAT, "block_count");
    w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "llama");
    refused(&w, HT_ERR_FORMAT, "block_count");
    REFUSED(gguf_put_u32, "qwen2", "qwen2.expert_count", 8, HT_ERR_UNSUPPORTED, "experts");
    REFUSED(gguf_put_u32, "llama", "llama.attention.head_count_kv", 3, HT_ERR_FORMAT, "3 K/V heads");
    REFUSED(gguf_put_u32, "llama", "llama.attention.head_count_kv", 0, HT_ERR_FORMAT, "K/V heads");
    REFUSED(gguf_put_str, "llama", "llama.attention.head_count_kv", "two", HT_ERR_FORMAT, "expected an integer");
    w = usual("llama", 1);
    gguf_put_u32(&w, "llama.attention.key_length", 32);
    gguf_put_u32(&w, "llama.attention.value_length", 16);
    refused(&w, HT_ERR_UNSUPPORTED, "heads of V 16");
    REFUSED(gguf_put_u32, "llama", "llama.rope.dimension_count", 7, HT_ERR_FORMAT, "7 of the 16");
    REFUSED(gguf_put_str, "llama", "llama.rope.scaling.type", "dynamic", HT_ERR_UNSUPPORTED, "dynamic");
    REFUSED(gguf_put_str, "llama", "llama.rope.scaling.type", "longrope", HT_ERR_FORMAT, "rope_factors_long.weight");
    REFUSED(gguf_put_bool, "qwen3", "qwen3.attention.causal", false, HT_ERR_UNSUPPORTED,
            "`qwen3.attention.causal` is false");
    REFUSED(gguf_put_str, "llama", "llama.attention.causal", "no", HT_ERR_FORMAT,
            "`llama.attention.causal` is of type string, expected a boolean");
    REFUSED(gguf_put_f32, "llama", "llama.rope.scaling.attn_factor", 1.25f, HT_ERR_UNSUPPORTED,
            "`llama.rope.scaling.attn_factor` is 1.25, expected 1");
    REFUSED(gguf_put_f32, "llama", "llama.rope.scaling.yarn_ext_factor", 0, HT_ERR_UNSUPPORTED,
            "`llama.rope.scaling.yarn_ext_factor` is 0, expected 1");
    REFUSED(gguf_put_str, "llama", "llama.rope.scaling.type", "linear", HT_ERR_FORMAT, "factor");
    REFUSED(gguf_put_f32, "llama", "llama.rope.freq_base", NAN, HT_ERR_FORMAT, "finite");
    REFUSED(gguf_put_f32, "llama", "llama.attention.layer_norm_rms_epsilon", INFINITY, HT_ERR_FORMAT, "finite");
    REFUSED(gguf_put_str, "llama", "tokenizer.ggml.eos_token_id", "x", HT_ERR_FORMAT, "eos_token_id");
    REFUSED(gguf_put_u32, "gemma3", "gemma3.attention.sliding_window_pattern", 0, HT_ERR_FORMAT,
            "sliding_window_pattern");
    w = usual("gemma3", 3);
    gguf_put_i32s(&w, "gemma3.attention.sliding_window_pattern", (int32_t[]){0, 1}, 2);
    refused(&w, HT_ERR_FORMAT, "3 layers");
    w = usual("llama", 1);
    const char *tokens[60];
    char names[60][4];
    for (int i = 0; i < 60; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        tokens[i] = names[i];
    }
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 60);
    gguf_put_tensor(&w, "token_embd.weight", HT_W_F32, 2, (int64_t[]){64, 50}, NULL);
    refused(&w, HT_ERR_FORMAT, "60 tokens");
}

/* They end no output, as no token has them. Of an EOS the tokenizer warns. */
static void end_ids_outside_the_vocabulary(void **state) {
    (void)state;
    static const uint32_t ids[] = {50, 0x7FFFFFFF, 0xFFFFFFFF};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        gguf_writer w = usual("llama", 1);
        gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", ids[i]);
        gguf_put_u32(&w, "tokenizer.ggml.eot_token_id", ids[i]);
        gguf_put_u32(&w, "tokenizer.ggml.eom_token_id", 49);
        warnings_begin();
        ht_config c = read_ok(&w);
        assert_non_null(strstr(warnings_end(1), "m.gguf: `tokenizer.ggml.eot_token_id` is "));
        assert_true(c.n_eos == 1 && c.eos[0] == 49);
    }
    gguf_writer w = usual("llama", 1);
    gguf_put_i32(&w, "tokenizer.ggml.eot_token_id", -1);
    warnings_begin();
    assert_int_equal(read_ok(&w).n_eos, 0);
    assert_non_null(strstr(warnings_end(1), "is -1, outside the vocabulary of 50 tokens; it is ignored"));
}

static void older_linear_spelling(void **state) {
    (void)state;
    gguf_writer w = usual("llama", 1);
    gguf_put_f32(&w, "llama.rope.scale_linear", 4);
    ht_config c = read_ok(&w);
    assert_true(c.rope.kind == HT_ROPE_LINEAR && c.rope.factor == 4);
}

/* Sizes whose sums and products overflow, or that are negative. */
static void extreme_sizes(void **state) {
    (void)state;
    gguf_writer w = usual("glm4moe", 2);
    gguf_put_i32(&w, "glm4moe.nextn_predict_layers", -1);
    refused(&w, HT_ERR_FORMAT, "nextn_predict_layers");
    w = usual("glm4moe", 2);
    gguf_put_u32(&w, "glm4moe.expert_count", 4);
    gguf_put_u32(&w, "glm4moe.expert_used_count", 2);
    gguf_put_u64(&w, "glm4moe.expert_feed_forward_length", 1 << 20);
    gguf_put_u64(&w, "glm4moe.expert_shared_count", INT64_MAX);
    refused(&w, HT_ERR_FORMAT, "shared expert");
    w = usual("mistral3", 1 << 20);
    refused(&w, HT_ERR_FORMAT, "block_count");
    w = usual("gpt2", 2);
    gguf_put_u64(&w, "gpt2.rope.dimension_count", UINT64_C(1) << 33);
    refused(&w, HT_ERR_FORMAT, "rotary embedding of 8589934592");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(llama),
                                       cmocka_unit_test(pooling),
                                       cmocka_unit_test(tensors_tell),
                                       cmocka_unit_test(gemma),
                                       cmocka_unit_test(head_counts_per_layer),
                                       cmocka_unit_test(windows_beside_recurrence),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(end_ids_outside_the_vocabulary),
                                       cmocka_unit_test(older_linear_spelling),
                                       cmocka_unit_test(extreme_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
