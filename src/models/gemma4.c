/* Gemma 4: Gemma 3's blocks with plain norms, value norms, wider heads with partial RoPE on full-attention layers, and
 * an output scale per layer. Some sizes share K and V of earlier layers and have per-layer inputs from a second
 * embedding; some have experts in addition to the feed-forward. */
#include "checkpoint/convert_metadata.h"
#include "checkpoint/kv_size.h"
#include "models/layer_inputs.h"
#include "models/registry.h"

#include <math.h>
#include <string.h>

typedef struct gemma4_layer {
    ht_input_layer of;
    ht_norm_weights after_dense_norm; /* f32 [hidden]: post-norm of the dense feed-forward, in layers with experts */
    ht_norm_weights expert_norm, after_expert_norm; /* f32 [hidden]: pre- and post-norm of the experts */
    ht_array *router_scale;                         /* f32 [hidden]: gain of the router's norm */
    ht_array *expert_scale;                         /* f32 [n_experts]: factor on the router weights */
    ht_array *scalar;                               /* f32 [1]: factor on the layer's output */
} gemma4_layer;

#define AT(field) offsetof(gemma4_layer, field)
static const ht_tensor_spec layer_specs[] = {
    {AT(of.base.router), "router.proj", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(router_scale), "router.scale", "ffn_gate_inp.scale", .rows = HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts,
     .bare = true},
    {AT(expert_scale), "router.per_expert_scale", "ffn_down_exps.scale", .rows = HT_EXTENT_EXPERTS,
     .has = ht_decoder_has_experts, .bare = true},
    {AT(after_dense_norm), "post_feedforward_layernorm_1", "post_ffw_norm_1", .rows = HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(expert_norm), "pre_feedforward_layernorm_2", "pre_ffw_norm_2", .rows = HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(after_expert_norm), "post_feedforward_layernorm_2", "post_ffw_norm_2", .rows = HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(scalar), "layer_scalar", "layer_output_scale.weight", .rows = HT_EXTENT_ONE, .bare = true},
    {.gguf = NULL}};
#undef AT

static const ht_tensor_spec around[] = {HT_INPUT_TABLE_SPECS, {.gguf = NULL}};

/* ---- configuration ---- */

enum { PATTERN = 6 }; /* full attention in every sixth layer, unless the file says otherwise */

static const ht_config_field fields[] = {
    {HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 512)},
    {HT_FIELD(F32, final_softcap, "final_logit_softcapping", "final_logit_softcapping", 0)},
    {HT_FIELD(I64, layer_input, "hidden_size_per_layer_input", NULL, 256)},
    {HT_FIELD(I64, layer_input, NULL, "embedding_length_per_layer_input", 0)},
    {HT_FIELD(I64, layer_input_vocab, "vocab_size_per_layer_input", NULL, 262144)},
    {.json = NULL}};

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    c->attention_scale = 1;
    c->mlp_bias = false;
    ht_config_slide_by_pattern(c, PATTERN);
    c->layer[c->n_layers - 1].slides = false;
    c->rope.kind = HT_ROPE_PROPORTIONAL;
    c->rope.share = 0.25;
    const char *both_ways = NULL;
    const ht_json *direction = ht_json_object_get(object, "use_bidirectional_attention");
    if (ht_json_is_string(direction)) both_ways = ht_json_string_value(direction);
    if (both_ways && !strcmp(both_ways, "all"))
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "`use_bidirectional_attention` is `all`: the model is an encoder, not a generator");
    bool experts = false;
    ht_json_bool(r, object, "enable_moe_block", &experts);
    if (!experts) return;
    ht_json_i64(r, object, "num_experts", &c->n_experts);
    ht_json_i64(r, object, "top_k_experts", &c->experts_used);
    ht_json_i64(r, object, "moe_intermediate_size", &c->expert_feed_forward);
    if (c->n_experts < 1)
        ht_json_fail(r, HT_ERR_FORMAT, "`enable_moe_block` is true, but `num_experts` is %lld",
                     (long long)c->n_experts);
    c->routing.normalized = true;
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].has_experts = true;
}

/* Reads per_layer_config, the newer spelling: {"5": {"head_dim": ..., "num_key_value_heads": ...}, ...}, or one entry
 * per layer type. */
static void read_layer_overrides(ht_config *c, ht_json_reader *r, const ht_json *overrides) {
    for (int64_t i = 0; i < c->n_layers; i++) {
        char key[24];
        snprintf(key, sizeof key, "%lld", (long long)i);
        const ht_json *one = ht_json_object(r, overrides, key);
        if (!one) one = ht_json_object(r, overrides, c->layer[i].slides ? "sliding_attention" : "full_attention");
        ht_json_i64(r, one, "head_dim", &c->layer[i].head_dim);
        ht_json_i64(r, one, "num_key_value_heads", &c->layer[i].n_kv_heads);
    }
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool v_is_k = false, wide = false;
    int64_t full_head_dim = 512, full_kv_heads = c->n_kv_heads, n_shared = 0;
    ht_json_bool(r, object, "attention_k_eq_v", &v_is_k);
    ht_json_bool(r, object, "use_double_wide_mlp", &wide);
    ht_json_i64(r, object, "num_kv_shared_layers", &n_shared);
    ht_json_i64(r, object, "global_head_dim", &full_head_dim);
    if (v_is_k) ht_json_i64(r, object, "num_global_key_value_heads", &full_kv_heads);
    const ht_json *overrides = ht_json_object(r, object, "per_layer_config");
    for (int64_t i = 0; i < c->n_layers; i++) {
        if (c->layer[i].slides) continue;
        c->layer[i].v_is_k = v_is_k;
        if (overrides) continue;
        c->layer[i].head_dim = full_head_dim;
        c->layer[i].n_kv_heads = full_kv_heads;
    }
    if (overrides) read_layer_overrides(c, r, overrides);
    if (!ht_config_share_keys(c, n_shared))
        ht_json_fail(r, HT_ERR_FORMAT,
                     "`num_kv_shared_layers` is %lld of %lld: no earlier layer of the same type has keys and values",
                     (long long)n_shared, (long long)c->n_layers);
    for (int64_t i = 0; wide && i < c->n_layers; i++)
        if (c->layer[i].kv_layer != i && c->feed_forward <= INT32_MAX) c->layer[i].feed_forward *= 2;
}

static void set_number(ht_document *d, const char *key, bool is_set, int64_t value) {
    ht_document_set(d, key, is_set ? ht_json_integer(value) : ht_json_null());
}

static void write_json(const ht_config *c, ht_document *d) {
    const ht_layer_config *local = NULL, *full = NULL; /* one layer of each type */
    int64_t n_shared = 0;
    bool v_is_k = false, is_wide = false, has_experts = c->n_experts > 0;
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_layer_config *l = &c->layer[i];
        *(l->slides ? &local : &full) = l;
        n_shared += l->kv_layer != i;
        v_is_k |= l->kv_layer == i && l->v_is_k;
        is_wide |= l->kv_layer != i && l->feed_forward == 2 * c->feed_forward;
    }
    if (!local) local = full;
    if (!full) full = local;
    set_number(d, "num_key_value_heads", true, local->n_kv_heads);
    set_number(d, "head_dim", true, local->head_dim);
    set_number(d, "global_head_dim", true, full->head_dim);
    set_number(d, "num_global_key_value_heads", v_is_k, full->n_kv_heads);
    ht_document_set(d, "attention_k_eq_v", ht_json_boolean(v_is_k));
    set_number(d, "num_kv_shared_layers", true, n_shared);
    ht_document_set(d, "use_double_wide_mlp", ht_json_boolean(is_wide));
    ht_document_set(d, "enable_moe_block", ht_json_boolean(has_experts));
    set_number(d, "num_experts", has_experts, c->n_experts);
    set_number(d, "top_k_experts", has_experts, c->experts_used);
    set_number(d, "moe_intermediate_size", has_experts, c->expert_feed_forward);
    ht_document_set(d, "use_bidirectional_attention", ht_json_null());
}

static void read_gguf(ht_config *c, ht_meta *m) {
    c->attention_scale = 1;
    c->mlp_bias = false;
    c->layer_input_vocab = c->vocab;
    c->routing.normalized = true;
    int64_t local_head_dim = ht_meta_i64(m, "attention.key_length_swa", c->head_dim);
    bool has_pattern = ht_meta_has(m, "attention.sliding_window_pattern");
    for (int64_t i = 0; i < c->n_layers; i++) {
        ht_layer_config *l = &c->layer[i];
        l->slides = has_pattern ? ht_meta_layer_i64(m, "attention.sliding_window_pattern", i, 0) != 0
                                : (i + 1) % PATTERN != 0 && i + 1 < c->n_layers;
        if (l->slides) l->head_dim = local_head_dim;
    }
    if (!ht_config_share_keys(c, ht_meta_i64(m, "attention.shared_kv_layers", 0)))
        ht_meta_fail(m, HT_ERR_FORMAT,
                     "`%s.attention.shared_kv_layers` leaves no earlier layer of the same type with keys and values",
                     m->architecture);
    for (int64_t i = 0; i < c->n_layers; i++) {
        c->layer[i].v_is_k = c->layer[i].kv_layer == i && !ht_meta_tensor(m, i, "attn_v.weight");
        c->layer[i].has_experts = c->n_experts > 0 && ht_meta_tensor(m, i, "ffn_gate_inp.weight");
    }
}

/* ---- the forward function ---- */

/* The router has its own norm of h, the unnormed residual stream. */
static ht_array *experts(ht_ctx *c, const ht_decoder_weights *m, const gemma4_layer *l, ht_array *h) {
    const ht_config *cfg = m->config;
    ht_array *router_input = ht_rms_norm(c->s, h, l->router_scale, cfg->norm_eps, 0);
    router_input = ht_scale(c->s, router_input, (float)(1 / sqrt((double)cfg->hidden)));
    ht_array *weights, *ids = ht_decoder_route(c, cfg, ht_linear(c, router_input, &l->of.base.router), NULL, &weights);
    if (!ids) return NULL;
    const int64_t all[] = {ht_array_dim(ids, 0), cfg->n_experts};
    ht_array *scale = ht_take_along_axis(c->s, ht_broadcast_to(c->s, l->expert_scale, all, 2), ids, -1);
    ht_array *x = ht_decoder_norm(c, cfg, h, &l->expert_norm);
    ht_array *y = ht_decoder_experts(c, m, &l->of.base, x, ids, ht_multiply(c->s, weights, scale));
    return ht_decoder_norm(c, cfg, y, &l->after_expert_norm);
}

static ht_array *feed_forward(ht_ctx *c, const ht_decoder_weights *m, const gemma4_layer *l, int index, ht_array *h) {
    const ht_config *cfg = m->config;
    ht_array *f = ht_decoder_mlp(c, m, &l->of.base, ht_decoder_norm(c, cfg, h, &l->of.base.mlp_norm));
    if (!cfg->layer[index].has_experts) return f;
    return ht_add(c->s, ht_decoder_norm(c, cfg, f, &l->after_dense_norm), experts(c, m, l, h));
}

/* in: h [T or n_out, hidden], pos i32 [T or n_out], optionally the layer's input [T or n_out, layer_input]. */
static ht_array *layer(ht_ctx *c, const void *model, int i, ht_array *const *in) {
    const ht_decoder_weights *m = model;
    const ht_config *cfg = m->config;
    const gemma4_layer *l = (const gemma4_layer *)m->layers + i;
    const int64_t last_keys = ht_unshared_layers(cfg) - 1; /* after its attention, output rows suffice */
    ht_array *h = in[0], *input = cfg->layer_input ? in[2] : NULL;
    ht_array *a =
        ht_decoder_attention(c, m, &l->of.base, i, ht_decoder_norm(c, cfg, h, &l->of.base.attention_norm), in[1]);
    h = ht_add(c->s, h, ht_decoder_norm(c, cfg, a, &l->of.base.after_attention_norm));
    if (i == last_keys) {
        h = ht_input_cut(c, h);
        if (input) input = ht_input_cut(c, input);
    }
    ht_array *f = feed_forward(c, m, l, i, h);
    h = ht_add(c->s, h, ht_decoder_norm(c, cfg, f, &l->of.base.after_mlp_norm));
    if (cfg->layer_input) h = ht_add(c->s, h, ht_layer_input_term(c, m, &l->of, h, input));
    return ht_multiply(c->s, h, l->scalar);
}

static ht_array *forward(ht_ctx *c, const void *model) {
    const ht_decoder_weights *m = model;
    ht_array *h = ht_decoder_embed(c, m); /* [T, hidden] */
    return ht_decoder_head(c, m, ht_input_layers(c, m, layer, h, h));
}

const ht_family ht_family_gemma4 = {
    .architecture = "gemma4",
    .model_types = {"gemma4_text", "gemma4"},
    .class_name = "Gemma4ForCausalLM",
    .defaults = {.n_layers = 30, .vocab = 262144, .context = 131072, HT_GEMMA3_THETAS, HT_GEMMA_DEFAULTS},
    .fields = fields,
    .read_json = read_json,
    .read_json_layers = read_json_layers,
    .write_json = write_json,
    .read_gguf = read_gguf,
    .rope_by_type = true,
    .routed = true,
    .gguf_fuses_experts = true,
    .experts = HT_EXPERTS_OUTSIDE,
    .normed_values = true,
    HT_GEMMA_RUNS(ht_decoder_head_norm_specs, ht_decoder_mlp_specs, ht_decoder_sandwich_norm_specs,
                  ht_decoder_expert_specs, ht_layer_input_specs, layer_specs),
    .layer_bytes = sizeof(gemma4_layer),
    .around = around,
    .around_bytes = sizeof(ht_input_tables),
    .forward = forward};
