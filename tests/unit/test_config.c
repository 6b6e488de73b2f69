/* config.json: every spelling gives the same configuration, and what cannot be run is refused by name. */
#include "checkpoint/kv_size.h"
#include "models/registry.h"
#include "support/json_file.h"
#include "support/test.h"
#include "support/warnings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ht_config_hints no_tensors;

static ht_status read_with(const char *text, const char *generation, const ht_config_hints *hints, ht_config *c,
                           ht_error *err) {
    *err = (ht_error){0};
    text = json_quoted(text);
    if (generation) generation = json_quoted(generation);
    return ht_config_from_json((ht_json_text){text, strlen(text)},
                               (ht_json_text){generation, generation ? strlen(generation) : 0}, hints, c, err);
}

static ht_config read_ok(const char *text) {
    ht_config c;
    ht_error err;
    if (read_with(text, NULL, &no_tensors, &c, &err)) fail_msg("%s", err.message);
    return c;
}

/* The message holds every one of the words. */
static void refused(const char *text, ht_status status, const char *const *words) {
    ht_config c;
    ht_error err;
    ht_status got = read_with(text, NULL, &no_tensors, &c, &err);
    if (got != status) fail_msg("%s: status %d (%s), expected %d", text, got, err.message, status);
    assert_int_equal(err.status, status);
    for (; *words; words++)
        if (!strstr(err.message, *words)) fail_msg("'%s' does not say '%s'", err.message, *words);
}
#define LLAMA(fields)              "{'model_type': 'llama', " fields "}"
#define REFUSED(text, status, ...) refused(text, status, (const char *const[]){__VA_ARGS__, NULL})

static void class_defaults(void **state) {
    (void)state;
    ht_config c = read_ok("{'model_type': 'llama'}");
    assert_ptr_equal(c.family, &ht_family_llama);
    assert_int_equal(c.n_layers, 32);
    assert_int_equal(c.n_kv_heads, 32);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.context, 2048);
    assert_true(c.rope.theta == 10000 && c.rope.kind == HT_ROPE_PLAIN);
    assert_false(c.tied_head || c.q_bias || c.out_bias || c.is_gguf);
    assert_true(c.norm_offset == 0 && c.norm_eps == 1e-6f);

    c = read_ok("{'model_type': 'qwen2'}");
    assert_ptr_equal(c.family, &ht_family_qwen2);
    assert_true(c.q_bias && !c.out_bias);
    assert_int_equal(c.vocab, 151936);
    assert_int_equal(c.n_kv_heads, 32);
}

/* The class has 32 K/V heads whatever the heads are: a config that lists 16 heads alone does not divide. */
static void kv_heads_default(void **state) {
    (void)state;
    REFUSED("{'model_type': 'qwen2', 'num_attention_heads': 16}", HT_ERR_FORMAT, "16 attention heads", "32 K/V heads");
    ht_config c = read_ok(LLAMA("'num_attention_heads': 16"));
    assert_int_equal(c.n_kv_heads, 16);
    assert_int_equal(c.head_dim, 256);
    c = read_ok("{'model_type': 'qwen2', 'num_attention_heads': 16, 'num_key_value_heads': null}");
    assert_int_equal(c.n_kv_heads, 16);
}

static void windows_of_all_layers(void **state) {
    (void)state;
    ht_config c = read_ok("{'model_type': 'mistral', 'num_hidden_layers': 3}");
    assert_int_equal(c.window, 4096); /* the class's own, when the file says nothing */
    assert_true(c.layer[0].slides && c.layer[1].slides && c.layer[2].slides);
    assert_int_equal(c.n_kv_heads, 8);
    c = read_ok("{'model_type': 'mistral', 'sliding_window': null}");
    assert_false(c.layer[0].slides);
    c = read_ok("{'model_type': 'qwen3', 'use_sliding_window': true, 'max_window_layers': 2, 'num_hidden_layers': 4, "
                "'sliding_window': 9}");
    assert_int_equal(c.window, 9);
    assert_true(!c.layer[1].slides && c.layer[2].slides);
    assert_false(c.q_bias || c.out_bias);
    assert_int_equal(c.head_dim, 128);
}

static void caps(void **state) {
    (void)state;
    ht_config c = read_ok("{'model_type': 'gemma2'}");
    assert_true(c.attention_softcap == 50 && c.final_softcap == 30 && c.norm_offset == 1 && c.tied_head);
    assert_true(c.layer[0].slides && !c.layer[1].slides && c.layer[2].slides);
    assert_true(c.rope.theta == 10000 && c.local_rope.theta == 10000);
    c = read_ok("{'model_type': 'gemma2', 'attn_logit_softcapping': null, 'final_logit_softcapping': 8}");
    assert_true(c.attention_softcap == 0 && c.final_softcap == 8);
    REFUSED("{'model_type': 'gemma3', 'text_config': {'is_causal': false}}", HT_ERR_UNSUPPORTED, "`is_causal` is false",
            "both directions");
    REFUSED("{'model_type': 'qwen3', 'is_causal': false}", HT_ERR_UNSUPPORTED, "`is_causal` is false");
    REFUSED("{'model_type': 'gemma2', 'attn_logit_softcapping': -1}", HT_ERR_FORMAT, "attention scores", "-1");
    REFUSED("{'model_type': 'gemma3_text', 'final_logit_softcapping': -2}", HT_ERR_FORMAT, "logits", "-2");
}

static void experts(void **state) {
    (void)state;
    ht_config c = read_ok("{'model_type': 'qwen3_moe', 'num_hidden_layers': 4, 'decoder_sparse_step': 2, "
                          "'mlp_only_layers': [3], 'num_local_experts': 6, 'num_experts_per_tok': 2}");
    assert_true(c.n_experts == 6 && c.experts_used == 2 && c.expert_feed_forward == 768 && !c.routing.normalized);
    assert_true(!c.layer[0].has_experts && c.layer[1].has_experts && !c.layer[3].has_experts);
    assert_true(c.layer[0].feed_forward == 6144 && c.layer[1].feed_forward == 0);
    REFUSED("{'model_type': 'qwen3_moe', 'num_experts': 4}", HT_ERR_FORMAT, "8 of 4 experts");
    REFUSED("{'model_type': 'qwen3_moe', 'mlp_only_layers': [24]}", HT_ERR_FORMAT, "mlp_only_layers", "24");
    REFUSED("{'model_type': 'qwen3_moe', 'decoder_sparse_step': 0}", HT_ERR_FORMAT, "decoder_sparse_step");
    REFUSED("{'model_type': 'gemma4', 'text_config': {'enable_moe_block': true}}", HT_ERR_FORMAT, "num_experts");
}

static void shared_keys(void **state) {
    (void)state;
    ht_config c = read_ok("{'model_type': 'gemma4_text', 'num_hidden_layers': 12, 'num_kv_shared_layers': 5, "
                          "'use_double_wide_mlp': true, 'global_head_dim': 64, 'head_dim': 32}");
    assert_true(c.layer[5].kv_layer == 5 && c.layer[11].kv_layer == 5 && c.layer[7].kv_layer == 6);
    assert_true(c.layer[5].head_dim == 64 && c.layer[6].head_dim == 32);
    assert_true(c.layer[6].feed_forward == 9216 && c.layer[7].feed_forward == 2 * 9216);
    assert_true(c.rope.kind == HT_ROPE_PROPORTIONAL && c.rope.share == 0.25 && c.attention_scale == 1);
    REFUSED("{'model_type': 'gemma4_text', 'num_hidden_layers': 12, 'num_kv_shared_layers': 7}", HT_ERR_FORMAT,
            "num_kv_shared_layers", "7 of 12");
    REFUSED("{'model_type': 'gemma4_text', 'num_kv_shared_layers': -1}", HT_ERR_FORMAT, "num_kv_shared_layers");
}

static void gemma_defaults(void **state) {
    (void)state;
    ht_config c = read_ok("{'model_type': 'gemma3', 'text_config': {'hidden_size': 2560, 'num_hidden_layers': 34, "
                          "'sliding_window': 1024, 'model_type': 'gemma3_text', 'rope_scaling': {'factor': 8.0, "
                          "'rope_type': 'linear'}}, 'eos_token_id': [1, 106]}");
    assert_ptr_equal(c.family, &ht_family_gemma3);
    assert_int_equal(c.n_heads, 8);
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.head_dim, 256);
    assert_int_equal(c.vocab, 262208);
    assert_int_equal(c.feed_forward, 9216);
    assert_int_equal(c.window, 1024);
    assert_true(c.tied_head && c.norm_offset == 1 && c.attention_scale == 0.0625f);
    for (int64_t i = 0; i < c.n_layers; i++) assert_int_equal(c.layer[i].slides, (i + 1) % 6 != 0);
    assert_true(c.rope.theta == 1e6 && c.rope.kind == HT_ROPE_LINEAR && c.rope.factor == 8);
    assert_true(c.local_rope.theta == 1e4 && c.local_rope.kind == HT_ROPE_PLAIN);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[1], 106);
}

static void same_rope(const ht_rope_spec *a, const ht_rope_spec *b) {
    ht_rope_config how_a, how_b;
    float factors_a[32] = {0}, factors_b[32] = {0};
    assert_int_equal(ht_rope_prepare(a, HT_ROPE_OF_SHORT, 64, &how_a, factors_a),
                     ht_rope_prepare(b, HT_ROPE_OF_SHORT, 64, &how_b, factors_b));
    assert_true(how_a.theta == how_b.theta && how_a.scale == how_b.scale && how_a.magnitude == how_b.magnitude);
    assert_memory_equal(factors_a, factors_b, sizeof factors_a);
}

static void rope_spellings(void **state) {
    (void)state;
#define LLAMA3                                                                                                         \
    "'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': "            \
    "8192"
    ht_config a =
        read_ok("{'model_type': 'llama', 'rope_theta': 500000.0, 'rope_scaling': {'type': 'llama3', " LLAMA3 "}}");
    ht_config b = read_ok(
        "{'model_type': 'llama', 'rope_parameters': {'rope_theta': 500000, 'rope_type': 'llama3', " LLAMA3 "}}");
    ht_config d = read_ok("{'model_type': 'llama', 'rope_parameters': {'full_attention': {'rope_theta': 500000, "
                          "'rope_type': 'llama3', " LLAMA3 "}}}");
    assert_int_equal(a.rope.kind, HT_ROPE_LLAMA3);
    same_rope(&a.rope, &b.rope);
    same_rope(&a.rope, &d.rope);

    a = read_ok("{'model_type': 'gemma3_text', 'rope_theta': 500000, 'rope_local_base_freq': 20000.0}");
    b = read_ok("{'model_type': 'gemma3_text', 'rope_parameters': {'full_attention': {'rope_type': 'default', "
                "'rope_theta': 500000}, 'sliding_attention': {'rope_type': 'default', 'rope_theta': 20000}}}");
    same_rope(&a.rope, &b.rope);
    same_rope(&a.local_rope, &b.local_rope);
    assert_true(a.local_rope.theta == 20000);

    a = read_ok(LLAMA("'rope_scaling': null"));
    assert_int_equal(a.rope.kind, HT_ROPE_PLAIN);
    a = read_ok(LLAMA("'rope_scaling': {'type': 'yarn', 'original_max_position_embeddings': 512}"));
    assert_true(a.rope.factor == 4); /* from 2048 positions, when not given */

    /* Beside the scaling, and against it, the number of the model goes before that of the scaling. */
    b = read_ok(LLAMA("'original_max_position_embeddings': 512, 'rope_scaling': {'type': 'yarn', 'factor': 4, "
                      "'original_max_position_embeddings': 64}"));
    same_rope(&a.rope, &b.rope);
    /* rope_scaling stands in the place of rope_parameters, its base among them. */
    a = read_ok(LLAMA("'rope_parameters': {'rope_theta': 500000, 'rope_type': 'default'}, 'rope_scaling': {'type': "
                      "'linear', 'factor': 2}"));
    assert_true(a.rope.kind == HT_ROPE_LINEAR && a.rope.factor == 2 && a.rope.theta == 10000);
}

/* Values of transformers' ROPE_INIT_FUNCTIONS for head_dim 64. */
static void rope_factors(void **state) {
    (void)state;
    ht_rope_spec llama3 = {.kind = HT_ROPE_LLAMA3,
                           .theta = 500000,
                           .factor = 32,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_context = 8192};
    ht_rope_config how;
    float f[32];
    assert_true(ht_rope_prepare(&llama3, HT_ROPE_OF_SHORT, 64, &how, f));
    assert_true(f[0] == 1 && f[10] == 1 && f[31] == 32);
    int between = 0;
    for (int i = 1; i < 32; i++) {
        assert_true(f[i] >= f[i - 1]);
        between += f[i] > 1 && f[i] < 32;
    }
    assert_true(between > 0);
    assert_true(how.magnitude == 1 && how.scale == 1 && how.dims == 64 && !how.interleaved);

    ht_rope_spec yarn = {
        .kind = HT_ROPE_YARN, .theta = 10000, .factor = 4, .original_context = 32768, .beta_fast = 32, .beta_slow = 1};
    assert_true(ht_rope_prepare(&yarn, HT_ROPE_OF_SHORT, 64, &how, f));
    assert_true(fabsf(how.magnitude - 1.1386294f) < 1e-6f); /* 0.1 ln 4 + 1 */
    assert_true(f[0] == 1 && f[31] == 4);
    yarn.attention_factor = 1.5;
    ht_rope_prepare(&yarn, HT_ROPE_OF_SHORT, 64, &how, f);
    assert_true(how.magnitude == 1.5f);
    yarn.attention_factor = 0;
    yarn.mscale = 1;
    yarn.mscale_all_dim = 1;
    ht_rope_prepare(&yarn, HT_ROPE_OF_SHORT, 64, &how, f);
    assert_true(how.magnitude == 1);

    ht_rope_spec linear = {.kind = HT_ROPE_LINEAR, .theta = 10000, .factor = 8};
    assert_false(ht_rope_prepare(&linear, HT_ROPE_OF_SHORT, 64, &how, f));
    assert_true(how.scale == 0.125f);
}

static void windows(void **state) {
    (void)state;
    ht_config none =
        read_ok("{'model_type': 'qwen2', 'sliding_window': null, 'use_sliding_window': true, 'max_window_layers': 0}");
    assert_true(none.window == 0 && !none.layer[0].slides && !none.layer[31].slides);
    ht_config c = read_ok("{'model_type': 'qwen2', 'sliding_window': 99, 'use_sliding_window': false}");
    for (int64_t i = 0; i < c.n_layers; i++) assert_false(c.layer[i].slides);
    c = read_ok("{'model_type': 'qwen2', 'sliding_window': 99, 'use_sliding_window': true, 'max_window_layers': 30}");
    assert_int_equal(c.window, 99);
    for (int64_t i = 0; i < c.n_layers; i++) assert_int_equal(c.layer[i].slides, i >= 30);
    c = read_ok("{'model_type': 'gemma3_text', 'num_hidden_layers': 4, 'sliding_window_pattern': 2}");
    assert_true(c.layer[0].slides && !c.layer[1].slides && c.layer[2].slides && !c.layer[3].slides);
    c = read_ok("{'model_type': 'gemma3_text', 'num_hidden_layers': 2, 'sliding_window_pattern': 2, 'layer_types': "
                "['full_attention', 'sliding_attention']}");
    assert_true(!c.layer[0].slides && c.layer[1].slides);
}

static void hints_from_tensors(void **state) {
    (void)state;
    ht_config c;
    ht_error err;
    ht_config_hints hints = {.has_tensors = true, .has_q_bias = true, .q_rows = 1024};
    const char *text = "{'hidden_size': 512, 'num_attention_heads': 8, 'num_key_value_heads': 2}";
    assert_int_equal(read_with(text, NULL, &hints, &c, &err), HT_OK);
    assert_ptr_equal(c.family, &ht_family_qwen2);
    assert_int_equal(c.head_dim, 128); /* q_proj rows / heads */
    assert_true(c.tied_head);          /* there is no lm_head.weight */
    hints = (ht_config_hints){.has_tensors = true, .has_head = true};
    assert_int_equal(read_with(text, NULL, &hints, &c, &err), HT_OK);
    assert_ptr_equal(c.family, &ht_family_llama);
    assert_int_equal(c.head_dim, 64);
    assert_false(c.tied_head);
    hints.has_q_norm = true;
    hints.q_rows = 1024;
    assert_int_equal(read_with(text, NULL, &hints, &c, &err), HT_OK);
    assert_ptr_equal(c.family, &ht_family_qwen3);
    assert_int_equal(c.head_dim, 128);
    hints.q_rows = 640; /* the tensors know better than the class, whose heads have 128 values */
    assert_int_equal(read_with(text, NULL, &hints, &c, &err), HT_OK);
    assert_int_equal(c.head_dim, 80);
    hints.has_more_norms = true; /* Gemma's, which no guess is for */
    assert_fails(HT_ERR_FORMAT, "`model_type` is missing", read_with, text, NULL, &hints, &c);
}

static void end_ids(void **state) {
    (void)state;
    ht_config c;
    ht_error err;
    assert_int_equal(read_with(LLAMA("'eos_token_id': 7"), "{'eos_token_id': [7, 9, 11]}", &no_tensors, &c, &err),
                     HT_OK);
    assert_int_equal(c.n_eos, 3);
    assert_true(c.eos[0] == 7 && c.eos[1] == 9 && c.eos[2] == 11);
    assert_fails(HT_ERR_FORMAT, "generation_config.json", read_with, "{'model_type': 'llama'}", "[]", &no_tensors, &c);
    assert_fails(HT_ERR_FORMAT, "generation_config.json", read_with, "{'model_type': 'llama'}", "{'eos_token_id': 'x'}",
                 &no_tensors, &c);
    REFUSED(LLAMA("'eos_token_id': 0.5"), HT_ERR_FORMAT, "eos_token_id");
    REFUSED(LLAMA("'eos_token_id': [1, '2']"), HT_ERR_FORMAT, "eos_token_id");
    REFUSED(LLAMA("'eos_token_id': "
                  "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32]"),
            HT_ERR_UNSUPPORTED, "more than 32");
}

/* They end no output, as no token has them. */
static void end_ids_outside_the_vocabulary(void **state) {
    (void)state;
    static const char *const ids[] = {
        "32000", "-1", "4294967295", "4294967296", "9223372036854775807", "-1e30", "1000000000000000000000000000000"};
    ht_config c;
    ht_error err;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char config[128], generation[128];
        snprintf(config, sizeof config, LLAMA("'eos_token_id': [%s, 31999]"), ids[i]);
        snprintf(generation, sizeof generation, "{'eos_token_id': %s, 'pad_token_id': %s}", ids[i], ids[i]);
        warnings_begin();
        if (read_with(config, generation, &no_tensors, &c, &err)) fail_msg("%s: %s", ids[i], err.message);
        const char *warnings = warnings_end(2);
        assert_non_null(strstr(warnings, "\ngeneration_config.json: `eos_token_id` is "));
        assert_non_null(strstr(warnings, "outside the vocabulary of 32000 tokens; it is ignored\n"));
        if (i < 5) assert_non_null(strstr(warnings, ids[i]));
        assert_true(c.n_eos == 1 && c.eos[0] == 31999);
    }
}

static void unknown_things(void **state) {
    (void)state;
    REFUSED("{'model_type': 'mamba2'}", HT_ERR_UNSUPPORTED, "config.json", "`mamba2`", "hearth formats");
    REFUSED("{'model_type': 'qwen3_mou'}", HT_ERR_UNSUPPORTED, "`qwen3_mou`", "the nearest that is: `qwen3moe`");
    REFUSED("{}", HT_ERR_FORMAT, "model_type");
    REFUSED(LLAMA("'hidden_act': 'relu'"), HT_ERR_UNSUPPORTED, "hidden_act", "relu", "silu");
    REFUSED("{'model_type': 'gemma3_text', 'hidden_activation': 'silu'}", HT_ERR_UNSUPPORTED, "gelu_pytorch_tanh");
    REFUSED(LLAMA("'rope_scaling': {'type': 'dynamic', 'factor': 2}"), HT_ERR_UNSUPPORTED, "dynamic", "yarn");
    REFUSED(LLAMA("'partial_rotary_factor': 0"), HT_ERR_FORMAT, "partial_rotary_factor");
    REFUSED(LLAMA("'rope_parameters': {'partial_rotary_factor': 1.5}"), HT_ERR_FORMAT, "partial_rotary_factor");
    REFUSED(LLAMA("'quantization_config': {'quant_method': 'gptq'}"), HT_ERR_UNSUPPORTED, "gptq");
    REFUSED("{'model_type': 'gemma2', 'use_bidirectional_attention': true}", HT_ERR_UNSUPPORTED,
            "use_bidirectional_attention");
    REFUSED("{'model_type': 'qwen2', 'num_hidden_layers': 1, 'layer_types': ['linear_attention']}", HT_ERR_UNSUPPORTED,
            "linear_attention");
    REFUSED("{'model_type': 'qwen2', 'num_hidden_layers': 2, 'layer_types': ['full_attention']}", HT_ERR_FORMAT,
            "layer_types");
    REFUSED("{'model_type': 'qwen2', 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']}", HT_ERR_FORMAT,
            "window");
}

/* As Python reads it: a number that no field needs may be none, and of two fields of one name the last one counts. */
static void as_python_writes_it(void **state) {
    (void)state;
    ht_config c = read_ok(LLAMA("'initializer_range': NaN, 'hidden_size': 7, 'x': [Infinity], 'hidden_size': 2048, "
                                "'rope_scaling': null, 'clip': -Infinity"));
    assert_int_equal(c.hidden, 2048);
    REFUSED(LLAMA("'rms_norm_eps': NaN"), HT_ERR_FORMAT, "`rms_norm_eps` is NaN");
    REFUSED(LLAMA("'rope_theta': Infinity"), HT_ERR_FORMAT, "`rope_theta` is Infinity");
    REFUSED(LLAMA("'rope_scaling': NaN"), HT_ERR_FORMAT, "`rope_scaling` is NaN");
    REFUSED("{'model_type': NaN}", HT_ERR_FORMAT, "`model_type` is NaN");
    REFUSED(LLAMA("'eos_token_id': [1, NaN]"), HT_ERR_FORMAT, "eos_token_id");
    REFUSED(LLAMA("'num_hidden_layers': 1, 'layer_types': [NaN]"), HT_ERR_UNSUPPORTED, "layer 0");
}

static void bad_numbers(void **state) {
    (void)state;
    REFUSED(LLAMA("'hidden_size': '4096'"), HT_ERR_FORMAT, "config.json", "`hidden_size`", "integer");
    REFUSED(LLAMA("'hidden_size': 4096.5"), HT_ERR_FORMAT, "hidden_size");
    REFUSED(LLAMA("'num_hidden_layers': 0"), HT_ERR_FORMAT, "num_hidden_layers");
    REFUSED(LLAMA("'num_hidden_layers': 1025"), HT_ERR_FORMAT, "1024");
    REFUSED(LLAMA("'num_hidden_layers': 9223372036854775807"), HT_ERR_FORMAT, "num_hidden_layers");
    REFUSED(LLAMA("'num_attention_heads': 0"), HT_ERR_FORMAT, "heads");
    REFUSED(LLAMA("'num_attention_heads': -4"), HT_ERR_FORMAT, "heads");
    REFUSED(LLAMA("'num_attention_heads': 7"), HT_ERR_FORMAT, "4096", "7");
    REFUSED(LLAMA("'num_key_value_heads': 5"), HT_ERR_FORMAT, "32 attention heads", "5 K/V heads");
    REFUSED(LLAMA("'num_key_value_heads': 0"), HT_ERR_FORMAT, "K/V heads");
    REFUSED(LLAMA("'head_dim': 7"), HT_ERR_FORMAT, "even");
    REFUSED(LLAMA("'head_dim': -8"), HT_ERR_FORMAT, "head size");
    REFUSED(LLAMA("'vocab_size': 0"), HT_ERR_FORMAT, "vocabulary");
    REFUSED(LLAMA("'vocab_size': 4611686018427387904"), HT_ERR_FORMAT, "vocabulary");
    REFUSED(LLAMA("'intermediate_size': -1"), HT_ERR_FORMAT, "feed-forward");
    REFUSED(LLAMA("'max_position_embeddings': 0"), HT_ERR_FORMAT, "context");
    REFUSED(LLAMA("'rms_norm_eps': -1"), HT_ERR_FORMAT, "epsilon");
    REFUSED(LLAMA("'rope_theta': 0"), HT_ERR_FORMAT, "rope_theta");
    REFUSED(LLAMA("'rope_theta': 1e300"), HT_ERR_FORMAT, "rope_theta");
    REFUSED(LLAMA("'rope_scaling': {'type': 'linear'}"), HT_ERR_FORMAT, "factor");
    REFUSED(LLAMA("'rope_scaling': {'type': 'linear', 'factor': 0}"), HT_ERR_FORMAT, "factor");
    REFUSED(LLAMA("'rope_scaling': {'type': 'llama3', 'factor': 8}"), HT_ERR_FORMAT, "low_freq_factor");
    REFUSED(LLAMA("'rope_scaling': {'type': 'yarn', 'factor': 8, 'beta_fast': 1, 'beta_slow': 2}"), HT_ERR_FORMAT,
            "beta");
    REFUSED(LLAMA("'rope_scaling': {'type': 'yarn', 'factor': 8, 'original_max_position_embeddings': 0}"),
            HT_ERR_FORMAT, "original_max_position_embeddings");
    REFUSED("{'model_type': 'gemma3_text', 'sliding_window': -3}", HT_ERR_FORMAT, "window");
    REFUSED("{'model_type': 'gemma3_text', 'sliding_window_pattern': 0}", HT_ERR_FORMAT, "sliding_window_pattern");
    REFUSED("{'model_type': 'gemma3_text', 'query_pre_attn_scalar': 0}", HT_ERR_FORMAT, "query_pre_attn_scalar");
    REFUSED("{'model_type': 'gemma3_text', 'final_logit_softcapping': -30}", HT_ERR_FORMAT, "cap");
    REFUSED("{'model_type': 3}", HT_ERR_FORMAT, "model_type");
    REFUSED(LLAMA("'text_config': 3"), HT_ERR_FORMAT, "text_config");
    REFUSED("[1]", HT_ERR_FORMAT, "config.json");
    REFUSED("{", HT_ERR_FORMAT, "config.json", "line 1");
}

/* Reads bytes that are not a text: the memory ends where they end, so that reading on is seen by the sanitizers. */
static bool reads(const char *bytes, size_t size) {
    char *exact = malloc(size + !size);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    ht_config c;
    ht_error err = {0};
    ht_status status = ht_config_from_json((ht_json_text){exact, size}, (ht_json_text){NULL, 0}, &no_tensors, &c, &err);
    free(exact);
    if (status) {
        assert_int_equal(err.status, status);
        assert_true(err.message[0] != 0);
        return false;
    }
    assert_int_equal(ht_config_check(&c, "config.json", &err), HT_OK);
    return true;
}

static void every_truncation_and_bit_flip(void **state) {
    (void)state;
    char text[] = "{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 96, \"num_hidden_layers\": 7, "
                  "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"head_dim\": 20, \"vocab_size\": 300, "
                  "\"intermediate_size\": 72, \"sliding_window\": 33, \"rope_theta\": 1e6, \"rope_scaling\": "
                  "{\"rope_type\": \"linear\", \"factor\": 8.0}, \"eos_token_id\": [1, 106]}}";
    size_t size = strlen(text), accepted = 0;
    assert_true(reads(text, size));
    for (size_t i = 0; i < size; i++) assert_false(reads(text, i));
    for (size_t i = 0; i < 8 * size; i++) {
        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
        accepted += reads(text, size);
        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
    }
    assert_true(accepted > 0 && accepted < 8 * size); /* another digit is another number */
}

/* DeepSeek V3: one key of 512 + 64 values, and a scale with YaRN's factor twice. */
UNIT_TEST(latent_attention) {
    const ht_config c = read_ok("{'model_type': 'deepseek_v3', 'q_lora_rank': null, 'rope_scaling': {'type': 'yarn', "
                                "'factor': 40, 'mscale': 1.0, 'mscale_all_dim': 1.0, "
                                "'original_max_position_embeddings': 4096}}");
    const double m = 0.1 * log(40) + 1;
    assert_int_equal(c.layer[60].head_dim, 576);
    assert_int_equal(c.layer[60].n_kv_heads, 1);
    assert_int_equal(c.rope.dims, 64);
    assert_int_equal(c.latent.q_rank, 0);
    assert_true(fabs((double)c.attention_scale - m * m / sqrt(192)) < 1e-7);
    assert_true(!c.layer[2].has_experts && c.layer[3].has_experts);
    REFUSED("{'model_type': 'deepseek_v3', 'kv_lora_rank': 0}", HT_ERR_FORMAT, "rank of keys and values");
    REFUSED("{'model_type': 'deepseek_v3', 'kv_lora_rank': 9223372036854775807}", HT_ERR_FORMAT, "rank of keys");
    REFUSED("{'model_type': 'glm4_moe_lite', 'qk_rope_head_dim': -2}", HT_ERR_FORMAT, "rotated key size");
    REFUSED("{'model_type': 'mistral4', 'q_lora_rank': -1}", HT_ERR_FORMAT, "rank of queries");
    REFUSED("{'model_type': 'deepseek_v2', 'scoring_func': 'sigmoid'}", HT_ERR_UNSUPPORTED, "scoring_func", "softmax");
    REFUSED("{'model_type': 'kimi_k2', 'moe_layer_freq': 2}", HT_ERR_UNSUPPORTED, "moe_layer_freq");
}

/* Layers whose feed-forward the family has no weights for. */
UNIT_TEST(missing_feed_forwards) {
    REFUSED("{'model_type': 'mixtral', 'num_local_experts': 0}", HT_ERR_FORMAT, "layer 0 has no experts");
    REFUSED("{'model_type': 'gpt_oss', 'first_k_dense_replace': 1}", HT_ERR_FORMAT, "layer 0 has no experts");
    REFUSED("{'model_type': 'olmoe', 'num_hidden_layers': 2, 'mlp_layer_types': ['sparse', 'dense']}", HT_ERR_FORMAT,
            "layer 1 has no experts");
    REFUSED("{'model_type': 'ernie4_5_moe', 'moe_num_experts': 0}", HT_ERR_FORMAT, "layer 1 has experts");
}

/* Sizes whose sums and products overflow, or that are not positive. */
UNIT_TEST(extreme_sizes) {
    REFUSED("{'model_type': 'deepseek_v3', 'topk_group': 9223372036854775807}", HT_ERR_FORMAT, "groups of 256 experts");
    REFUSED("{'model_type': 'gpt2', 'n_head': 16, 'n_embd': -9223372036854775808}", HT_ERR_FORMAT, "hidden size");
    REFUSED("{'model_type': 'llama', 'intermediate_size': 0}", HT_ERR_FORMAT, "feed-forward size is 0");
    REFUSED("{'model_type': 'minimax_m2', 'rotary_dim': -2}", HT_ERR_FORMAT, "rotary embedding of -2");
    REFUSED("{'model_type': 'minimax_m2', 'rotary_dim': 8589934592}", HT_ERR_FORMAT, "rotary embedding of 8589934592");
}

#define PHI3(more)                                                                                                     \
    "{'model_type': 'phi3', 'hidden_size': 32, 'num_attention_heads': 2, 'max_position_embeddings': 128, "             \
    "'partial_rotary_factor': 0.25, 'original_max_position_embeddings': 32, 'rope_scaling': {" more "}}"
#define DIVISORS "'short_factor': [1, 1.5], 'long_factor': [2.5, 30]"

/* Two divisors, as 4 values of a head are rotated. */
UNIT_TEST(longrope) {
    static const char *const alike[] = {PHI3("'type': 'longrope', " DIVISORS), PHI3("'type': 'su', " DIVISORS),
                                        PHI3("'type': 'yarn', " DIVISORS),
                                        PHI3("'type': 'longrope', 'factor': 4, " DIVISORS)};
    const float factor = (float)sqrt(1 + log(4) / log(32));
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        const ht_config c = read_ok(alike[i]);
        ht_rope_config how;
        float f[2];
        assert_true(ht_rope_prepare(&c.rope, HT_ROPE_OF_SHORT, 4, &how, f));
        assert_true(f[0] == 1 && f[1] == 1.5f && how.magnitude == factor);
        assert_true(ht_rope_prepare(&c.rope, HT_ROPE_OF_LONG, 4, &how, f));
        assert_true(f[0] == 2.5f && f[1] == 30 && how.magnitude == factor);
        assert_true(c.rope.original_context == 32);
    }
    ht_config c = read_ok(PHI3("'type': 'longrope', 'short_mscale': 1.25, 'long_mscale': 1.5, " DIVISORS));
    assert_true(c.rope.length_factor[HT_ROPE_OF_SHORT] == 1.25 && c.rope.length_factor[HT_ROPE_OF_LONG] == 1.5);
    c = read_ok(PHI3("'type': 'longrope', 'attention_factor': 1.75, " DIVISORS));
    assert_true(c.rope.length_factor[HT_ROPE_OF_SHORT] == 1.75 && c.rope.length_factor[HT_ROPE_OF_LONG] == 1.75);
    REFUSED(PHI3("'type': 'longrope'"), HT_ERR_FORMAT, "short_factor");
    REFUSED(PHI3("'type': 'longrope', 'short_factor': [1, 2]"), HT_ERR_FORMAT, "long_factor");
    REFUSED(PHI3("'type': 'longrope', 'short_factor': [], 'long_factor': []"), HT_ERR_FORMAT, "short_factor", "0");
    REFUSED(PHI3("'type': 'longrope', 'short_factor': [1, 2], 'long_factor': [1]"), HT_ERR_FORMAT, "long_factor", "2");
    REFUSED(PHI3("'type': 'longrope', 'short_factor': [1], 'long_factor': [1]"), HT_ERR_FORMAT, "1 divisors",
            "4 rotated");
    REFUSED(PHI3("'type': 'longrope', 'short_factor': [1, 2], 'long_factor': [1, '2']"), HT_ERR_FORMAT, "divisors");
    REFUSED(PHI3("'type': 'longrope', 'long_mscale': -1, " DIVISORS), HT_ERR_FORMAT, "attention factor");
}

UNIT_TEST(sparse_mixer) {
    ht_config c = read_ok("{'model_type': 'phimoe'}");
    assert_true(c.routing.jitter == 0.01f && c.experts_used == 2 && c.layer_norm && c.norm_bias && !c.head_bias);
    c = read_ok("{'model_type': 'phimoe', 'router_jitter_noise': 0.25, 'lm_head_bias': true, 'attention_bias': true}");
    assert_true(c.routing.jitter == 0.25f && c.head_bias && c.q_bias && c.out_bias);
    REFUSED("{'model_type': 'phimoe', 'num_experts_per_tok': 3}", HT_ERR_UNSUPPORTED, "3 experts per token", "2");
    REFUSED("{'model_type': 'phimoe', 'router_jitter_noise': -0.1}", HT_ERR_FORMAT, "router_jitter_noise");
}

#define NEMOTRON(more)                                                                                                 \
    "{'model_type': 'nemotron_h', 'hidden_size': 64, 'num_attention_heads': 4, 'num_key_value_heads': 2, " more "}"

/* Every spelling of a list of blocks. */
UNIT_TEST(blocks_of_nemotron) {
    static const char *const alike[] = {
        NEMOTRON("'hybrid_override_pattern': 'M-*E', 'num_hidden_layers': 4"),
        NEMOTRON("'hybrid_override_pattern': ['M', '-', '*', 'E'], 'num_hidden_layers': 4"),
        NEMOTRON("'layers_block_type': ['mamba', 'mlp', 'attention', 'moe']"),
        NEMOTRON("'layer_types': ['linear_attention', 'mlp', 'full_attention', 'moe'], 'num_hidden_layers': 4")};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        const ht_config c = read_ok(alike[i]);
        assert_int_equal(c.n_layers, 4);
        assert_true(c.layer[0].recurrent && c.layer[0].no_attention && c.layer[0].feed_forward == 0);
        assert_true(!c.layer[1].recurrent && c.layer[1].no_attention && c.layer[1].feed_forward == 21504);
        assert_true(!c.layer[2].no_attention && c.layer[2].no_rope && c.layer[2].n_kv_heads == 2);
        assert_true(c.layer[3].has_experts && c.layer[3].no_attention && c.layer[3].feed_forward == 0);
        assert_int_equal(ht_cache_layers(&c), 2);
    }
    const ht_config dense = read_ok(NEMOTRON("'hybrid_override_pattern': 'M-', 'num_hidden_layers': 2"));
    assert_true(dense.n_experts == 0 && dense.shared_feed_forward == 0);
    REFUSED(NEMOTRON("'hybrid_override_pattern': 'M-', 'num_hidden_layers': 3"), HT_ERR_FORMAT, "lists 2 layers", "3");
    REFUSED(NEMOTRON("'hybrid_override_pattern': 'MX', 'num_hidden_layers': 2"), HT_ERR_UNSUPPORTED, "layer 1", "`X`");
    REFUSED(NEMOTRON("'layers_block_type': ['mamba', 'rwkv']"), HT_ERR_UNSUPPORTED, "layer 1", "`rwkv`");
    REFUSED(NEMOTRON("'layers_block_type': ['moe'], 'mlp_bias': true"), HT_ERR_UNSUPPORTED, "mlp_bias");
}

#define LFM2(more)                                                                                                     \
    "{'model_type': 'lfm2', 'hidden_size': 64, 'num_attention_heads': 4, 'num_key_value_heads': 2, "                   \
    "'num_hidden_layers': 2, 'full_attn_idxs': [1], 'block_ff_dim': 100, 'block_multiple_of': 16" more "}"

UNIT_TEST(lfm2) {
    ht_config c = read_ok(LFM2(""));
    assert_true(c.layer[0].recurrent && !c.layer[1].recurrent && c.tied_head);
    assert_int_equal(c.feed_forward, 80);
    c = read_ok(LFM2(", 'block_ffn_dim_multiplier': 1.5"));
    assert_int_equal(c.feed_forward, 112);
    c = read_ok(LFM2(", 'block_ffn_dim_multiplier': null"));
    assert_int_equal(c.feed_forward, 66);
    c = read_ok(LFM2(", 'block_auto_adjust_ff_dim': false"));
    assert_int_equal(c.feed_forward, 100);
    assert_false(read_ok(LFM2(", 'tie_embedding': false")).tied_head);
    assert_true(read_ok(LFM2(", 'tie_embedding': true, 'tie_word_embeddings': false")).tied_head);
    assert_false(read_ok(LFM2(", 'tie_word_embeddings': false")).tied_head);
    REFUSED(LFM2(", 'sliding_window': 32"), HT_ERR_UNSUPPORTED, "`sliding_window` is 32");
    c = read_ok(LFM2(", 'sliding_window': 32, 'use_sliding_window': false"));
    assert_true(c.window == 0 && !c.layer[1].slides);
}

#define GRANITE4(more)                                                                                                 \
    "{'model_type': 'granitemoehybrid', 'hidden_size': 64, 'num_hidden_layers': 1, 'mamba_n_heads': 8, " more "}"
#define FALCON(more)                                                                                                   \
    "{'model_type': 'falcon_h1', 'hidden_size': 64, 'num_attention_heads': 4, 'num_key_value_heads': 2, "              \
    "'num_hidden_layers': 1, 'mamba_n_heads': 8, 'key_multiplier': 0.5, " more "}"

UNIT_TEST(mamba) {
    static const char *const limits[] = {"null", "[0.0, Infinity]", "[0, {'__float__': 'Infinity'}]"},
                             *const others[] = {"[0.001, Infinity]",
                                                "[0.0, 100.0]",
                                                "[0.0, NaN]",
                                                "[0.0, -Infinity]",
                                                "[0.0, {'__float__': '-Infinity'}]",
                                                "[0.0]"};
    char text[256];
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        snprintf(text, sizeof text, GRANITE4("'time_step_limit': %s"), limits[i]);
        const ht_config c = read_ok(text);
        assert_int_equal(c.recurrence.value_dim, 16);
        assert_true(c.layer[0].recurrent);
        assert_true(c.recurrence.conv_bias);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(text, sizeof text, GRANITE4("'time_step_limit': %s"), others[i]);
        REFUSED(text, HT_ERR_UNSUPPORTED, "time_step_limit");
    }
    REFUSED(GRANITE4("'mamba_n_groups': 2"), HT_ERR_UNSUPPORTED, "mamba_n_groups");
    REFUSED(GRANITE4("'mamba_proj_bias': true"), HT_ERR_UNSUPPORTED, "mamba_proj_bias");
    REFUSED(GRANITE4("'mamba_d_state': 0"), HT_ERR_FORMAT, "key size of the recurrence");
    REFUSED(GRANITE4("'mamba_expand': 9223372036854775807"), HT_ERR_FORMAT, "value size of the recurrence");
    REFUSED(GRANITE4("'position_embedding_type': 'alibi'"), HT_ERR_UNSUPPORTED, "position_embedding_type", "alibi");
    REFUSED(GRANITE4("'normalization_function': 'layernorm'"), HT_ERR_UNSUPPORTED, "normalization_function");
    REFUSED(GRANITE4("'sliding_window': 8"), HT_ERR_UNSUPPORTED, "`sliding_window` is 8", "granitehybrid");
    const ht_config dense = read_ok(GRANITE4("'layer_types': ['attention'], 'position_embedding_type': null, "
                                             "'normalization_function': 'rmsnorm', 'sliding_window': null"));
    assert_true(dense.recurrence.kind == HT_RECURRENCE_NONE && !dense.layer[0].recurrent);

    ht_config c = read_ok(FALCON("'ssm_multipliers': [1, 2, 3, 4, 5], 'mlp_multipliers': [6, 7], 'mamba_d_ssm': null"));
    assert_true(c.layer[0].recurrent && !c.layer[0].no_attention && c.recurrence.value_dim == 16);
    assert_true(c.multipliers.ssm[HT_SSM_DT] == 5 && c.multipliers.gate == 6 && c.multipliers.down == 7);
    assert_true(ht_config_has_multipliers(&c) && c.multipliers.key == 0.5f);
    REFUSED(FALCON("'ssm_multipliers': [1, 2, 3, 4]"), HT_ERR_FORMAT, "ssm_multipliers", "5 numbers");
    REFUSED(FALCON("'ssm_out_multiplier': null"), HT_ERR_FORMAT, "multiplier is 0");
    REFUSED(FALCON("'attention_bias': true"), HT_ERR_UNSUPPORTED, "attention_bias");

    /* mlx-lm has all but the factor of keys in the weights. */
    static const ht_config_hints by_mlx = {.has_tensors = true, .is_of_mlx = true, .has_head = true, .q_rows = 64};
    ht_error err;
    assert_int_equal(read_with(FALCON("'embedding_multiplier': 4, 'ssm_out_multiplier': 2"), NULL, &by_mlx, &c, &err),
                     HT_OK);
    assert_true(c.multipliers.key == 0.5f && c.multipliers.ssm_out == 1 && c.embedding_scale == 1);
    assert_int_equal(read_with(FALCON("'attention_in_multiplier': 2"), NULL, &by_mlx, &c, &err), HT_ERR_UNSUPPORTED);
}

UNIT_TEST(text_encoders) {
    ht_config c = read_ok("{'model_type': 'bert', 'num_hidden_layers': 2}");
    assert_true(c.two_sided && c.layer[0].no_rope && c.layer[1].no_rope);
    assert_true(c.context == 512 && c.position_offset == 0 && c.n_token_types == 2 && c.n_labels == 0);
    c = read_ok("{'model_type': 'xlm-roberta', 'max_position_embeddings': 514, 'type_vocab_size': 1}");
    assert_true(c.context == 512 && c.position_offset == 2 && c.n_token_types == 1);
    REFUSED("{'model_type': 'roberta', 'pad_token_id': 512}", HT_ERR_FORMAT, "`pad_token_id` is 512", "512 positions");
    REFUSED("{'model_type': 'bert', 'position_embedding_type': 'relative_key'}", HT_ERR_UNSUPPORTED, "relative_key");
    REFUSED("{'model_type': 'bert', 'is_decoder': true}", HT_ERR_UNSUPPORTED, "is_decoder");
    REFUSED("{'model_type': 'bert', 'hidden_act': 'relu'}", HT_ERR_UNSUPPORTED, "relu");

    c = read_ok("{'model_type': 'nomic_bert', 'n_positions': 8192, 'max_trained_positions': 2048}");
    assert_true(c.context == 2048 && c.rope.theta == 1000 && !c.layer[0].no_rope);
    REFUSED("{'model_type': 'nomic_bert', 'prenorm': true}", HT_ERR_UNSUPPORTED, "prenorm");
    REFUSED("{'model_type': 'nomic_bert', 'rotary_emb_fraction': 0.5}", HT_ERR_UNSUPPORTED, "rotary_emb_fraction");
    REFUSED("{'model_type': 'nomic_bert', 'moe_every_n_layers': 2}", HT_ERR_UNSUPPORTED, "moe_every_n_layers");

    c = read_ok("{'model_type': 'modernbert', 'num_hidden_layers': 4, 'global_attn_every_n_layers': 2}");
    for (int i = 0; i < 4; i++) assert_int_equal(c.layer[i].slides, i % 2);
    assert_true(c.window == 128 && c.rope.theta == 160000 && c.local_rope.theta == 10000);
    REFUSED("{'model_type': 'modernbert', 'global_attn_every_n_layers': 0}", HT_ERR_FORMAT, "is 0");
    REFUSED("{'model_type': 'modernbert', 'local_attention': 1}", HT_ERR_FORMAT, "is 1 keys, expected 2 or more");
    /* The activation of a head matters only where there is one. */
    static const char tanh_head[] = "{'model_type': 'modernbert', 'classifier_activation': 'tanh'}";
    static const ht_config_hints one_label = {.has_tensors = true, .n_labels = 1};
    ht_error err;
    assert_int_equal(read_ok(tanh_head).n_labels, 0);
    assert_int_equal(read_with(tanh_head, NULL, &one_label, &c, &err), HT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "`classifier_activation` is `tanh`"));
    REFUSED("{'model_type': 'gemma2', 'use_bidirectional_attention': true}", HT_ERR_UNSUPPORTED, "Gemma 3");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_encoders),
                                       cmocka_unit_test(class_defaults),
                                       cmocka_unit_test(blocks_of_nemotron),
                                       cmocka_unit_test(lfm2),
                                       cmocka_unit_test(mamba),
                                       cmocka_unit_test(kv_heads_default),
                                       cmocka_unit_test(gemma_defaults),
                                       cmocka_unit_test(windows_of_all_layers),
                                       cmocka_unit_test(caps),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(shared_keys),
                                       cmocka_unit_test(rope_spellings),
                                       cmocka_unit_test(rope_factors),
                                       cmocka_unit_test(windows),
                                       cmocka_unit_test(hints_from_tensors),
                                       cmocka_unit_test(end_ids),
                                       cmocka_unit_test(end_ids_outside_the_vocabulary),
                                       cmocka_unit_test(unknown_things),
                                       cmocka_unit_test(as_python_writes_it),
                                       cmocka_unit_test(bad_numbers),
                                       cmocka_unit_test(every_truncation_and_bit_flip),
                                       cmocka_unit_test(latent_attention),
                                       cmocka_unit_test(longrope),
                                       cmocka_unit_test(sparse_mixer),
                                       cmocka_unit_test(extreme_sizes),
                                       cmocka_unit_test(missing_feed_forwards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
