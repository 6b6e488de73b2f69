/* Qwen3-Next and Qwen3.5: the gated delta rule in most layers, and attention whose output has a gate in the others;
 * with a mixture of experts and a gated shared one, or a dense feed-forward. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#include <stdio.h>

enum { INTERVAL = 4 }; /* attention in every fourth layer */

#define AT(field)    offsetof(ht_decoder_layer, field)
#define ON_RECURRENT .has = ht_decoder_is_recurrent
#define ON_ATTENTION .has = ht_decoder_has_attention
static const ht_tensor_spec block_specs[] = {
    {AT(attention_norm), "input_layernorm", "attn_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(mlp_norm), "post_attention_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_GATED_Q, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, ON_ATTENTION},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, ON_ATTENTION},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, ON_ATTENTION},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT, ON_ATTENTION},
    {.gguf = NULL}};

/* Recurrent layers of both generations. */
static const ht_tensor_spec delta_specs[] = {
    {AT(recurrence.conv), "linear_attn.conv1d.weight", "ssm_conv1d.weight", .rows = HT_EXTENT_CONV_WEIGHTS,
     .row = HT_EXTENT_TAPS, .axes = "r1c", .mlx_axes = "rc1", .bare = true, ON_RECURRENT, .heads = HT_HEADS_STATE},
    {AT(recurrence.a), "linear_attn.A_log", "ssm_a", .rows = HT_EXTENT_STATE_HEADS, .bare = true, .is_logarithm = true,
     ON_RECURRENT, .heads = HT_HEADS_STATE},
    {AT(recurrence.time_bias), "linear_attn.dt_bias", "ssm_dt.bias", .rows = HT_EXTENT_STATE_HEADS, .bare = true,
     ON_RECURRENT, .heads = HT_HEADS_STATE},
    {AT(recurrence.norm), "linear_attn.norm.weight", "ssm_norm.weight", .rows = HT_EXTENT_STATE_VALUE, .bare = true,
     ON_RECURRENT},
    {AT(recurrence.out), "linear_attn.out_proj", "ssm_out", HT_EXTENT_HIDDEN, HT_EXTENT_STATE_VALUES, ON_RECURRENT,
     .heads = HT_HEADS_STATE_COLUMNS},
    {.gguf = NULL}};

static const ht_tensor_spec apart_specs[] = {
    {AT(recurrence.qkv), "linear_attn.in_proj_qkv", "attn_qkv", HT_EXTENT_CONV, HT_EXTENT_HIDDEN, ON_RECURRENT,
     .heads = HT_HEADS_STATE},
    {AT(recurrence.gate), "linear_attn.in_proj_z", "attn_gate", HT_EXTENT_STATE_VALUES, HT_EXTENT_HIDDEN, ON_RECURRENT,
     .heads = HT_HEADS_STATE},
    {AT(recurrence.rate), "linear_attn.in_proj_b", "ssm_beta", HT_EXTENT_STATE_HEADS, HT_EXTENT_HIDDEN, ON_RECURRENT,
     .heads = HT_HEADS_STATE},
    {AT(recurrence.decay), "linear_attn.in_proj_a", "ssm_alpha", HT_EXTENT_STATE_HEADS, HT_EXTENT_HIDDEN, ON_RECURRENT,
     .heads = HT_HEADS_STATE},
    {.gguf = NULL}};
/* Qwen3-Next's inputs are joined, except in GGUF files that are not among the oldest. */
static bool is_joined(const ht_config *c, int64_t layer) { return c->layer[layer].recurrent && !c->is_gguf; }
static bool is_joined_in_gguf(const ht_config *c, int64_t layer) {
    return c->layer[layer].recurrent && c->is_gguf && c->recurrence.joined;
}
static bool is_apart(const ht_config *c, int64_t layer) {
    return c->layer[layer].recurrent && c->is_gguf && !c->recurrence.joined;
}
#define JOINED         "linear_attn.in_proj_qkvz"
#define JOINED_IN_GGUF "ssm_in"
static const ht_tensor_spec joined_specs[] = {
    {AT(recurrence.in), JOINED, "attn_qkv", HT_EXTENT_STATE_INPUTS, HT_EXTENT_HIDDEN, .has = is_joined,
     .part = HT_PART_ALL},
    {AT(recurrence.in), JOINED, JOINED_IN_GGUF, HT_EXTENT_STATE_INPUTS, HT_EXTENT_HIDDEN, .has = is_joined_in_gguf},
    {AT(recurrence.qkv), JOINED, "attn_qkv", HT_EXTENT_CONV, HT_EXTENT_HIDDEN, .has = is_apart, .part = HT_PART_QKV},
    {AT(recurrence.gate), JOINED, "attn_gate", HT_EXTENT_STATE_VALUES, HT_EXTENT_HIDDEN, .has = is_apart,
     .part = HT_PART_GATE},
    {AT(recurrence.rate_decay), "linear_attn.in_proj_ba", "ssm_ba", HT_EXTENT_STATE_RATES, HT_EXTENT_HIDDEN,
     ON_RECURRENT},
    {.gguf = NULL}};
#undef JOINED
#undef AT
#undef ON_RECURRENT
#undef ON_ATTENTION

static const ht_config_field fields[] = {
    {HT_FIELD(I64, recurrence.taps, "linear_conv_kernel_dim", "ssm.conv_kernel", 4)},
    {HT_FIELD(I64, recurrence.key_dim, "linear_key_head_dim", "ssm.state_size", 128)},
    {HT_FIELD(I64, recurrence.key_heads, "linear_num_key_heads", "ssm.group_count", 16)},
    {HT_FIELD(I64, recurrence.heads, "linear_num_value_heads", "ssm.time_step_rank", 32)},
    {HT_FIELD(I64, recurrence.value_dim, "linear_value_head_dim", NULL, 128)},
    {.json = NULL}};

static const char list[] = "attention.recurrent_layers"; /* whether each is one */

/* Gives all layers but every interval-th one the recurrence. */
static void place_recurrence(ht_config *c, int64_t interval) {
    for (int64_t i = 0; i < c->n_layers; i++)
        if (interval < 1 || (i + 1) % interval) ht_config_make_recurrent(c, i);
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t interval = INTERVAL;
    ht_json_i64(r, object, "full_attention_interval", &interval);
    if (!ht_json_object_get(object, "layer_types")) place_recurrence(c, interval);
}

/* The interval at which layers have attention; 0: they have no regular pattern. */
static int64_t interval_of(const ht_config *c) {
    int64_t interval = 1;
    while (interval < c->n_layers && c->layer[interval - 1].recurrent) interval++;
    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->layer[i].recurrent != ((i + 1) % interval != 0)) return 0;
    return interval;
}

/* mlx-lm reads the interval, transformers the types of all layers. */
static void write_json(const ht_config *c, ht_document *d) {
    const int64_t interval = interval_of(c);
    if (interval) ht_document_set(d, "full_attention_interval", ht_json_integer(interval));
}

static void write_gguf(const ht_config *c, ht_document *d) {
    const ht_recurrence_spec *r = &c->recurrence;
    const int64_t interval = interval_of(c);
    int64_t pairs[HT_ROPE_AXES];
    ht_json *layers = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++) ht_list_append(&layers, ht_json_boolean(c->layer[i].recurrent));
    ht_gguf_put(d, c, list, ht_json_pack("{s:s, s:o}", "dtype", "bool", "value", layers));
    if (interval) ht_gguf_put(d, c, "full_attention_interval", ht_gguf_u32(interval));
    ht_gguf_put(d, c, "ssm.inner_size", ht_gguf_u32(r->heads * r->value_dim));
    if (!c->family->rope_sections) return;
    ht_rope_sections(c->rope.dims ? c->rope.dims : c->head_dim, pairs);
    ht_gguf_put(
        d, c, "rope.dimension_sections",
        ht_json_pack("{s:s, s:[I, I, I, I]}", "dtype", "i32", "value", pairs[0], pairs[1], pairs[2], (int64_t)0));
}

static void read_gguf(ht_config *c, ht_meta *m) {
    ht_recurrence_spec *r = &c->recurrence;
    const int64_t n_values = ht_meta_i64(m, "ssm.inner_size", 0);
    if (r->heads > 0 && n_values % r->heads)
        ht_meta_fail(m, HT_ERR_FORMAT, "`ssm.inner_size` is %lld, which %lld heads cannot share evenly",
                     (long long)n_values, (long long)r->heads);
    if (r->heads > 0) r->value_dim = n_values / r->heads;
    for (int64_t i = 0; i < c->n_layers; i++) r->joined = r->joined || ht_meta_tensor(m, i, JOINED_IN_GGUF ".weight");
    if (!ht_meta_has(m, list)) place_recurrence(c, ht_meta_i64(m, "full_attention_interval", INTERVAL));
    for (int64_t i = 0; ht_meta_has(m, list) && i < c->n_layers; i++)
        if (ht_meta_layer_i64(m, list, i, 0)) ht_config_make_recurrent(c, i);
}

#define RUNS(...)                                                                                                      \
    .recurrence = HT_RECURRENCE_DELTA, .gated_queries = true, .mlx_adds_norm_offset = true, .write_gguf = write_gguf,  \
    .norm_offset = 1, .fields = fields, .read_gguf = read_gguf, .activate = ht_silu, HT_DECODER_RUNS,                  \
    .layer = {block_specs, ht_decoder_head_norm_specs, delta_specs, __VA_ARGS__}

const ht_family ht_family_qwen35 = {.architecture = "qwen35",
                                    .model_types = {"qwen3_5_text", "qwen3_5"},
                                    .class_name = "Qwen3_5ForCausalLM",
                                    .defaults = {.n_layers = 32,
                                                 .hidden = 4096,
                                                 .n_heads = 16,
                                                 .n_kv_heads = 4,
                                                 .head_dim = 256,
                                                 .feed_forward = 12288,
                                                 .vocab = 248320,
                                                 .context = 32768,
                                                 .rotated_share = 0.25,
                                                 HT_LLAMA_DEFAULTS},
                                    .gguf_deals_heads = true,
                                    .rope_sections = true,
                                    .write_json = write_json,
                                    .read_json = read_json,
                                    RUNS(apart_specs, ht_decoder_mlp_specs)};

static void read_moe_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    read_json(c, r, object);
    c->routing.normalized = true;
}

#define MIXTURE                                                                                                        \
    .hidden = 2048, .n_heads = 16, .n_kv_heads = 2, .head_dim = 256, .context = 32768, .rotated_share = 0.25,          \
    .expert_feed_forward = 512, .n_shared = 1, .routing = {.normalized = true},                                        \
    .shared_field = "shared_expert_intermediate_size", HT_LLAMA_DEFAULTS

const ht_family ht_family_qwen35moe = {
    .architecture = "qwen35moe",
    .model_types = {"qwen3_5_moe_text", "qwen3_5_moe"},
    .class_name = "Qwen3_5MoeForCausalLM",
    .defaults = {MIXTURE, .n_layers = 40, .feed_forward = 512, .vocab = 248320, .n_experts = 256, .experts_used = 8},
    .experts = HT_EXPERTS_STACKED,
    .gguf_deals_heads = true,
    .rope_sections = true,
    .write_json = write_json,
    .read_json = read_moe_json,
    RUNS(apart_specs, ht_decoder_router_specs, ht_decoder_expert_specs, ht_decoder_gated_shared_expert_specs)};

static void read_next_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    read_json(c, r, object);
    ht_decoder_read_sparse_layers(c, r, object);
}

static void write_next_json(const ht_config *c, ht_document *d) {
    write_json(c, d);
    ht_decoder_write_sparse_layers(c, d);
}

const ht_family ht_family_qwen3next = {
    .architecture = "qwen3next",
    .model_types = {"qwen3_next"},
    .class_name = "Qwen3NextForCausalLM",
    .defaults = {MIXTURE, .n_layers = 48, .feed_forward = 5632, .vocab = 151936, .n_experts = 512, .experts_used = 10},
    .read_json = read_next_json,
    .write_json = write_next_json,
    RUNS(joined_specs, ht_decoder_mlp_specs, ht_decoder_router_specs, ht_decoder_expert_specs,
         ht_decoder_gated_shared_expert_specs)};
