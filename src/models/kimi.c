/* Kimi-Linear: Kimi Delta Attention in most layers, the delta rule with a decay for each channel of a key, and latent
 * attention without RoPE in the others; with a mixture of experts (Kimi Team, Kimi Linear, 2025). */
#include "checkpoint/convert_metadata.h"
#include "checkpoint/kv_size.h"
#include "models/latent.h"
#include "models/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- weights ---- */

#define AT(field)    offsetof(ht_decoder_layer, field)
#define ON_RECURRENT .has = ht_decoder_is_recurrent
#define ON_EXPERTS   .has = ht_decoder_has_experts
#define CONV(i, name, extent)                                                                                          \
    {                                                                                                                  \
        AT(recurrence.conv_of[i]), "self_attn." name "_conv.conv", "ssm_conv1d_" name,                                 \
            .rows = extent, .row = HT_EXTENT_TAPS, .axes = "r1c", .mlx_axes = "rc1", .gguf_axes = "r1c",               \
            .transformers = "self_attn." name "_conv1d", ON_RECURRENT                                                  \
    }
/* The matrices of decays are in another module of transformers. */
#define OF_DECAY(name) .module = "self_attn.forget_gate." name
static const ht_tensor_spec delta_specs[] = {
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_STATE_KEYS, HT_EXTENT_HIDDEN, ON_RECURRENT},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_STATE_KEYS, HT_EXTENT_HIDDEN, ON_RECURRENT},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_STATE_VALUES, HT_EXTENT_HIDDEN, ON_RECURRENT},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_STATE_VALUES, ON_RECURRENT},
    CONV(0, "q", HT_EXTENT_KEY_WEIGHTS),
    CONV(1, "k", HT_EXTENT_KEY_WEIGHTS),
    CONV(2, "v", HT_EXTENT_VALUE_WEIGHTS),
    {AT(recurrence.decay_in), "self_attn.f_a_proj", "ssm_f_a", HT_EXTENT_STATE_KEY, HT_EXTENT_HIDDEN, ON_RECURRENT,
     OF_DECAY("f_a_proj")},
    {AT(recurrence.decay), "self_attn.f_b_proj", "ssm_f_b", HT_EXTENT_STATE_KEYS, HT_EXTENT_STATE_KEY, ON_RECURRENT,
     OF_DECAY("f_b_proj")},
    {AT(recurrence.a), "self_attn.A_log", "ssm_a", .rows = HT_EXTENT_STATE_HEADS, .row = HT_EXTENT_ONE, .axes = "11rc",
     .bare = true, .is_logarithm = true, ON_RECURRENT},
    {AT(recurrence.time_bias), "self_attn.dt_bias", "ssm_dt.bias", .rows = HT_EXTENT_STATE_KEYS, .bare = true,
     ON_RECURRENT},
    {AT(recurrence.rate), "self_attn.b_proj", "ssm_beta", HT_EXTENT_STATE_HEADS, HT_EXTENT_HIDDEN, ON_RECURRENT},
    {AT(recurrence.gate_in), "self_attn.g_a_proj", "ssm_g_a", HT_EXTENT_STATE_KEY, HT_EXTENT_HIDDEN, ON_RECURRENT},
    {AT(recurrence.gate), "self_attn.g_b_proj", "ssm_g_b", HT_EXTENT_STATE_VALUES, HT_EXTENT_STATE_KEY, ON_RECURRENT},
    {AT(recurrence.norm), "self_attn.o_norm", "ssm_norm", .rows = HT_EXTENT_STATE_VALUE, ON_RECURRENT},
    {.gguf = NULL}};
#undef CONV
#undef OF_DECAY
#undef ON_RECURRENT

/* mlx-lm moves to mlp what releases have in block_sparse_moe; so do modules of transformers. */
#define SPARSE "block_sparse_moe."
#define SHARED(field, name, gguf, rows, columns)                                                                       \
    {                                                                                                                  \
        AT(field), "mlp.shared_experts." name, gguf, rows, columns, .has = ht_decoder_has_shared_expert,               \
                                                                    .transformers = SPARSE "shared_experts." name      \
    }
static const ht_tensor_spec moe_specs[] = {
    {AT(router), "mlp.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN, ON_EXPERTS,
     .transformers = SPARSE "gate"},
    {AT(router_bias), "mlp.e_score_correction_bias", "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS, .bare = true,
     ON_EXPERTS, .transformers = SPARSE "gate.e_score_correction_bias"},
    SHARED(shared_gate, "gate_proj", "ffn_gate_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN),
    SHARED(shared_up, "up_proj", "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN),
    SHARED(shared_down, "down_proj", "ffn_down_shexp", HT_EXTENT_HIDDEN, HT_EXTENT_SHARED_FEED_FORWARD),
    {.gguf = NULL}};
#undef SHARED
#undef SPARSE
#undef ON_EXPERTS
#undef AT

/* ---- the recurrence ---- */

/* The short convolution, activated, of x [T, n]: channels from `first` on of q, k and v together. */
static ht_array *convolved(ht_ctx *c, const ht_config *cfg, ht_array *weights, int index, ht_array *x, int64_t first,
                           int64_t n) {
    const int64_t shape[] = {n, cfg->recurrence.taps};
    return ht_silu(c->s, ht_short_conv(c, x, ht_reshape(c->s, weights, shape, 2), HT_NONE,
                                       (int)ht_cache_layer_of(cfg, index, true), first, ht_conv_channels(cfg)));
}

/* exp(a * softplus(x + time_bias)) of every channel: [T, heads, key_dim] */
static ht_array *decay_of(ht_ctx *c, const ht_recurrence_spec *r, const ht_recurrence_weights *w, ht_array *x) {
    ht_scope *s = c->s;
    x = ht_linear(c, ht_linear(c, x, &w->decay_in), &w->decay);
    ht_array *time = ht_softplus(s, ht_add(s, x, w->time_bias));
    time = ht_reshape(s, time, (int64_t[]){-1, r->heads, r->key_dim}, 3);
    return ht_exp(s, ht_multiply(s, time, ht_reshape(s, w->a, (int64_t[]){r->heads, 1}, 2)));
}

ht_array *ht_kimi_delta(ht_ctx *c, const ht_config *cfg, const ht_decoder_layer *l, int index, ht_array *x) {
    const ht_recurrence_spec *r = &cfg->recurrence;
    const ht_recurrence_weights *w = &l->recurrence;
    const int64_t n_keys = r->key_heads * r->key_dim, n_values = r->heads * r->value_dim;
    ht_scope *s = c->s;
    ht_array *q = convolved(c, cfg, w->conv_of[0], index, ht_linear(c, x, &l->q), 0, n_keys),
             *k = convolved(c, cfg, w->conv_of[1], index, ht_linear(c, x, &l->k), n_keys, n_keys),
             *v = convolved(c, cfg, w->conv_of[2], index, ht_linear(c, x, &l->v), 2 * n_keys, n_values);
    q = ht_unit_heads(c, r, q, 1 / sqrt((double)r->key_dim));
    k = ht_unit_heads(c, r, k, 1);
    v = ht_reshape(s, v, (int64_t[]){-1, r->heads, r->value_dim}, 3);
    ht_array *decay = decay_of(c, r, w, x), *rate = ht_sigmoid(s, ht_linear(c, x, &w->rate)); /* [T, heads] */
    const ht_state_scan_params how = {.layer = (int32_t)ht_cache_layer_of(cfg, index, true),
                                      .first = (r->taps - 1) * ht_conv_channels(cfg)};
    ht_array *o = ht_state_scan(c, q, k, v, decay, rate, &how); /* [T, heads, value_dim] */
    o = ht_reshape(s, ht_rms_norm(s, o, w->norm.weight, cfg->norm_eps, 0), (int64_t[]){-1, n_values}, 2);
    ht_array *gate = ht_linear(c, ht_linear(c, x, &w->gate_in), &w->gate);
    return ht_linear(c, ht_multiply(s, o, ht_sigmoid(s, gate)), &l->out);
}

/* ---- configuration ---- */

enum { PERIOD = 4 }; /* latent attention in every fourth layer after the first, unless the file says otherwise */

static const ht_config_field fields[] = {
    HT_LATENT_FIELDS(0, 512, 128, 128),
    {HT_FIELD(I64, recurrence.taps, "linear_conv_kernel_dim", "ssm.conv_kernel", 4)},
    {HT_FIELD(I64, recurrence.heads, "linear_num_heads", NULL, 32)},
    {HT_FIELD(I64, recurrence.key_dim, "linear_head_dim", "kda.head_dim", 128)},
    {.json = NULL}};

static bool lists(const ht_json *list, int64_t number) {
    bool found = false;
    for (size_t i = 0; i < ht_json_array_size(list) && !found; i++) {
        int64_t item;
        found = ht_json_whole(ht_json_array_get(list, i), &item) && item == number;
    }
    return found;
}

/* Attention has no RoPE; keys have as many heads as values, of the same size. */
static void finish(ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = !c->layer[i].no_attention;
    c->recurrence.key_heads = c->recurrence.heads;
    c->recurrence.value_dim = c->recurrence.key_dim;
}

/* Releases have the sizes of the recurrence, and its layers, counted from 1, in an object. */
static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const ht_json *own = ht_json_object(r, object, "linear_attn_config"), *layers = ht_json_array(r, own, "kda_layers");
    const char *scores = "sigmoid";
    int64_t every = 1;
    ht_json_i64(r, object, "model_max_length", &c->context);
    ht_json_i64(r, own, "head_dim", &c->recurrence.key_dim);
    ht_json_i64(r, own, "num_heads", &c->recurrence.heads);
    ht_json_i64(r, own, "short_conv_kernel_size", &c->recurrence.taps);
    bool is_unrotated = true;
    if (ht_json_bool(r, object, "mla_use_nope", &is_unrotated) && !is_unrotated)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`mla_use_nope` is false; only attention without RoPE is supported");
    if (ht_json_str(r, object, "moe_router_activation_func", &scores) && strcmp(scores, "sigmoid") != 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`moe_router_activation_func` is `%.40s`; only sigmoid is supported",
                     scores);
    if (ht_json_i64(r, object, "moe_layer_freq", &every) && every != 1)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`moe_layer_freq` is %lld; only 1 is supported", (long long)every);
    if (ht_json_object_get(object, "layer_types")) return;
    for (int64_t i = 0; i < c->n_layers; i++)
        if (layers ? lists(layers, i + 1) : i == 0 || i % PERIOD != 0) ht_config_make_recurrent(c, i);
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    finish(c);
    ht_latent_set_heads(c);
}

/* The spelling of releases, which mlx-lm reads. */
static void write_json(const ht_config *c, ht_document *d) {
    ht_json *full = ht_json_new_array(), *recurrent = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        ht_list_append(c->layer[i].recurrent ? &recurrent : &full, ht_json_integer(i + 1));
    ht_document_set(d, "linear_attn_config",
                    ht_json_pack("{s:I, s:I, s:I, s:o, s:o}", "head_dim", c->recurrence.key_dim, "num_heads",
                                 c->recurrence.heads, "short_conv_kernel_size", c->recurrence.taps, "full_attn_layers",
                                 full, "kda_layers", recurrent));
    ht_document_set(d, "model_max_length", ht_json_integer(c->context));
    ht_document_set(d, "head_dim", ht_json_integer(c->hidden / c->n_heads));
    ht_document_set(d, "first_k_dense_replace", ht_json_integer(ht_config_leading_dense(c)));
    ht_document_set(d, "moe_renormalize", ht_json_boolean(c->routing.normalized));
    ht_document_set(d, "num_expert_group", ht_json_integer(c->routing.groups ? c->routing.groups : 1));
    ht_document_set(d, "mla_use_nope", ht_json_boolean(true));
}

/* Files have as many heads in both kinds of layers, unless a tensor says otherwise. */
static void read_gguf(ht_config *c, ht_meta *m) {
    c->recurrence.heads = c->n_heads;
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_gguf_tensor *rate = ht_meta_tensor(m, i, "ssm_beta.weight");
        if (rate && rate->n_dims == 2) c->recurrence.heads = rate->dims[1];
    }
    finish(c);
    ht_latent_read_gguf(c, m);
}

static void write_gguf(const ht_config *c, ht_document *d) {
    ht_latent_write_gguf(c, d);
    ht_gguf_put(d, c, "rope.dimension_count", ht_gguf_u32(c->latent.rope_dim));
}

const ht_family ht_family_kimi_linear = {
    .architecture = "kimi-linear",
    .model_types = {"kimi_linear"},
    .class_name = "KimiLinearForCausalLM",
    .defaults = {HT_LLAMA_LIKE("silu"), .n_layers = 27, .hidden = 2304, .n_heads = 32, .head_dim = 72,
                 .feed_forward = 9216, .vocab = 163840, .context = 1048576, .norm_eps = 1e-5, .rope_theta = 10000,
                 .n_experts = 256, .experts_used = 8, .expert_feed_forward = 1024, .n_shared = 1, .n_dense = 1,
                 .experts_used_field = "num_experts_per_token", .shared_field = "num_shared_experts",
                 .routing = {HT_ROUTER_SIGMOID, .normalized = true, .scale = 2.446f, .groups = 1, .groups_used = 1}},
    .recurrence = HT_RECURRENCE_KDA,
    .fields = fields,
    .read_json = read_json,
    .read_json_layers = read_json_layers,
    .write_json = write_json,
    .read_gguf = read_gguf,
    .write_gguf = write_gguf,
    .experts = HT_EXPERTS_KIMI,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, delta_specs, ht_latent_specs, ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs,
              moe_specs, ht_decoder_expert_specs},
    HT_DECODER_RUNS};
