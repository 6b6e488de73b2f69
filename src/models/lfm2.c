/* LFM2: gated short convolutions in most layers and attention in the others; with experts in its MoE variant. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#include <stdio.h>

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec block_specs[] = {
    {AT(attention_norm), "operator_norm", "attn_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(mlp_norm), "ffn_norm", "ffn_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(recurrence.in), "conv.in_proj", "shortconv.in_proj", HT_EXTENT_GATED_CONV, HT_EXTENT_HIDDEN,
     .has = ht_decoder_is_recurrent},
    {AT(recurrence.conv), "conv.conv", "shortconv.conv", .rows = HT_EXTENT_CONV_WEIGHTS, .row = HT_EXTENT_TAPS,
     .axes = "r1c", .mlx_axes = "rc1", .has = ht_decoder_is_recurrent},
    {AT(recurrence.out), "conv.out_proj", "shortconv.out_proj", HT_EXTENT_HIDDEN, HT_EXTENT_HIDDEN,
     .has = ht_decoder_is_recurrent},
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, .has = ht_decoder_has_attention},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .has = ht_decoder_has_attention},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .has = ht_decoder_has_attention},
    {AT(out), "self_attn.out_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .has = ht_decoder_has_attention},
    {AT(q_norm), "self_attn.q_layernorm", "attn_q_norm", .rows = HT_EXTENT_HEAD, .has = ht_decoder_has_attention},
    {AT(k_norm), "self_attn.k_layernorm", "attn_k_norm", .rows = HT_EXTENT_HEAD, .has = ht_decoder_has_attention},
    {.gguf = NULL}};

#define MLP(field, mlx, hub, gguf, rows, columns)                                                                      \
    { AT(field), mlx, gguf, rows, columns, .has = ht_decoder_is_dense, .transformers = hub, .module = hub }
static const ht_tensor_spec mlp_specs[] = {
    MLP(gate, "feed_forward.w1", NULL, "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN),
    MLP(up, "feed_forward.w3", NULL, "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN),
    MLP(down, "feed_forward.w2", NULL, "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD),
    {.gguf = NULL}};

static bool biases_choice(const ht_config *c, int64_t layer) {
    return ht_decoder_has_experts(c, layer) && !c->routing.unbiased;
}

static const ht_tensor_spec moe_specs[] = {
    MLP(gate, "feed_forward.gate_proj", "feed_forward.w1", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN),
    MLP(up, "feed_forward.up_proj", "feed_forward.w3", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN),
    MLP(down, "feed_forward.down_proj", "feed_forward.w2", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD),
    {AT(router), "feed_forward.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(router_bias), "feed_forward.expert_bias", "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS, .has = biases_choice,
     .bare = true},
    {.gguf = NULL}};
#undef MLP
#undef AT

/* Only GGUF files have a window, of all layers with attention. */
static const ht_config_field fields[] = {{HT_FIELD(I64, recurrence.taps, "conv_L_cache", "shortconv.l_cache", 3)},
                                         {HT_FIELD(I64, window, NULL, "attention.sliding_window", 0)},
                                         {.json = NULL}};

/* The width of the feed-forward: two thirds of the one in the file, rounded up to a multiple, unless it says otherwise.
 * With a null for the factor there is neither the factor nor the rounding. */
static void read_width(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool adjusts = true;
    double factor = 1;
    int64_t multiple = 256;
    const bool is_rounded = !ht_json_is_null(ht_json_object_get(object, "block_ffn_dim_multiplier"));
    ht_json_i64(r, object, "block_ff_dim", &c->feed_forward);
    ht_json_bool(r, object, "block_auto_adjust_ff_dim", &adjusts);
    ht_json_f64(r, object, "block_ffn_dim_multiplier", &factor);
    ht_json_i64(r, object, "block_multiple_of", &multiple);
    if (!is_rounded) multiple = 1;
    if (!adjusts || c->feed_forward < 1 || c->feed_forward > INT32_MAX) return;
    const double width = factor * (double)(2 * c->feed_forward / 3);
    if (multiple < 1 || multiple > INT32_MAX || !(width >= 1 && width <= INT32_MAX)) {
        ht_json_fail(r, HT_ERR_FORMAT, "the feed-forward of %lld is adjusted to %g and a multiple of %lld",
                     (long long)c->feed_forward, width, (long long)multiple);
        return;
    }
    c->feed_forward = ((int64_t)width + multiple - 1) / multiple * multiple;
}

/* Earlier files list the layers with attention, not the types of all. */
static void read_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool biased = false;
    const ht_json *attention = ht_json_array(r, object, "full_attn_idxs");
    if (ht_json_bool(r, object, "conv_bias", &biased) && biased)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`conv_bias` is true; convolutions without a bias are supported");
    if (!attention || ht_json_object_get(object, "layer_types")) return;
    for (int64_t i = 0; i < c->n_layers; i++) {
        bool attends = false;
        for (size_t k = 0; k < ht_json_array_size(attention); k++) {
            int64_t layer;
            attends |= ht_json_whole(ht_json_array_get(attention, k), &layer) && layer == i;
        }
        if (!attends) ht_config_make_recurrent(c, i);
    }
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    read_width(c, r, object);
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].feed_forward = c->feed_forward;
    read_layers(c, r, object);
}

/* Directories have no window. */
static void write_common(const ht_config *c, ht_document *d) {
    ht_document_set(d, "conv_bias", ht_json_boolean(false));
    if (c->window > 0 && !d->status)
        d->status = ht_fail(d->err, HT_ERR_UNSUPPORTED, "config.json of %s models cannot express a sliding window",
                            c->family->architecture);
}

/* The width as it is; mlx-lm wants all numbers that it may be made of. */
static void write_json(const ht_config *c, ht_document *d) {
    ht_document_set(d, "block_dim", ht_json_integer(c->hidden));
    ht_document_set(d, "block_ff_dim", ht_json_integer(c->feed_forward));
    ht_document_set(d, "block_auto_adjust_ff_dim", ht_json_boolean(false));
    ht_document_set(d, "block_ffn_dim_multiplier", ht_json_real(1));
    ht_document_set(d, "block_multiple_of", ht_json_integer(256));
    write_common(c, d);
}

static void read_json_moe(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool biased = true;
    ht_json_bool(r, object, "use_expert_bias", &biased);
    c->routing.unbiased = !biased;
    read_layers(c, r, object);
}

static void write_json_moe(const ht_config *c, ht_document *d) {
    ht_document_set(d, "num_dense_layers", ht_json_integer(ht_config_leading_dense(c)));
    ht_document_set(d, "use_expert_bias", ht_json_boolean(!c->routing.unbiased));
    ht_document_set(d, "routed_scaling_factor", ht_json_real(c->routing.scale != 0 ? (double)c->routing.scale : 1));
    write_common(c, d);
}

static void read_gguf_moe(ht_config *c, ht_meta *m) {
    c->routing.unbiased = !ht_meta_tensor(m, c->n_layers - 1, "exp_probs_b.bias");
}

#define DEFAULTS                                                                                                       \
    .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .vocab = 65536, .context = 128000, .norm_eps = 1e-5,               \
    .norm_eps_field = "norm_eps", .rope_theta = 1000000, .tied_head = true, HT_LLAMA_LIKE("silu")
#define LFM2_RUNS                                                                                                      \
    .recurrence = HT_RECURRENCE_CONV, .final_norm_name = "embedding_norm", .gguf_final_norm = "token_embd_norm",       \
    .slides_everywhere = true, .fields = fields, .activate = ht_silu, HT_DECODER_RUNS

const ht_family ht_family_lfm2 = {.architecture = "lfm2",
                                  .model_types = {"lfm2"},
                                  .class_name = "Lfm2ForCausalLM",
                                  .defaults = {DEFAULTS, .hidden = 2560, .feed_forward = 12288},
                                  .read_json = read_json,
                                  .write_json = write_json,
                                  .layer = {block_specs, mlp_specs},
                                  LFM2_RUNS};

const ht_family ht_family_lfm2moe = {
    .architecture = "lfm2moe",
    .model_types = {"lfm2_moe"},
    .class_name = "Lfm2MoeForCausalLM",
    .defaults = {DEFAULTS, .hidden = 2048, .feed_forward = 7168, .n_experts = 32, .experts_used = 4,
                 .expert_feed_forward = 1792, .n_dense = 2,
                 .routing = {HT_ROUTER_SIGMOID, .normalized = true, .least_sum = 1e-6f}},
    .read_json = read_json_moe,
    .write_json = write_json_moe,
    .read_gguf = read_gguf_moe,
    .experts = HT_EXPERTS_LFM2,
    .layer = {block_specs, moe_specs, ht_decoder_expert_specs},
    LFM2_RUNS};
