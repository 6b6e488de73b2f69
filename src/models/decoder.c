/* Decoder of most families: blocks of attention and gated feed-forward, with pre-norms and optional post-norms. */
#include "models/decoder.h"

#include "checkpoint/kv_size.h"
#include "models/taps.h"

#include <math.h>

#define AT(field) offsetof(ht_decoder_layer, field)

bool ht_decoder_has_attention(const ht_config *c, int64_t layer) { return !c->layer[layer].no_attention; }
bool ht_decoder_is_recurrent(const ht_config *c, int64_t layer) { return c->layer[layer].recurrent; }
static bool keeps_keys(const ht_config *c, int64_t layer) {
    return c->layer[layer].kv_layer == layer && !c->layer[layer].no_attention;
}
static bool projects_values(const ht_config *c, int64_t layer) {
    return keeps_keys(c, layer) && !c->layer[layer].v_is_k;
}
bool ht_decoder_has_head_norms(const ht_config *c, int64_t layer) {
    return c->head_norms && !c->layer[layer].no_attention;
}
static bool norms_keys(const ht_config *c, int64_t layer) { return c->head_norms && keeps_keys(c, layer); }

const ht_tensor_spec ht_decoder_norm_specs[] = {
    {AT(attention_norm), "input_layernorm", "attn_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_attention_specs[] = {
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .heads = HT_HEADS_Q,
     .has = ht_decoder_has_attention},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .heads = HT_HEADS_KV,
     .has = keeps_keys},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .has = projects_values},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT,
     .has = ht_decoder_has_attention},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_head_norm_specs[] = {
    {AT(q_norm), "self_attn.q_norm", "attn_q_norm", .rows = HT_EXTENT_HEAD, .has = ht_decoder_has_head_norms},
    {AT(k_norm), "self_attn.k_norm", "attn_k_norm", .rows = HT_EXTENT_HEAD, .has = norms_keys},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_whole_head_norm_specs[] = {
    {AT(q_norm), "self_attn.q_norm", "attn_q_norm", .rows = HT_EXTENT_Q, .has = ht_decoder_has_head_norms},
    {AT(k_norm), "self_attn.k_norm", "attn_k_norm", .rows = HT_EXTENT_KV, .has = ht_decoder_has_head_norms},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_qkv_specs[] = {
    {AT(qkv), "self_attn.qkv_proj", "attn_qkv", HT_EXTENT_QKV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_mlp_norm_specs[] = {
    {AT(mlp_norm), "post_attention_layernorm", "ffn_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {.gguf = NULL}};

/* Norms of what attention and feed-forward add. */
#define POST_NORMS                                                                                                     \
    {AT(after_attention_norm), "post_attention_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN}, {         \
        AT(after_mlp_norm), "post_feedforward_layernorm", "post_ffw_norm", .rows = HT_EXTENT_HIDDEN                    \
    }
const ht_tensor_spec ht_decoder_post_norm_specs[] = {POST_NORMS, {.gguf = NULL}};

const ht_tensor_spec ht_decoder_sandwich_norm_specs[] = {
    POST_NORMS, {AT(mlp_norm), "pre_feedforward_layernorm", "ffn_norm", .rows = HT_EXTENT_HIDDEN}, {.gguf = NULL}};
#undef POST_NORMS

bool ht_decoder_is_dense(const ht_config *c, int64_t layer) { return c->layer[layer].feed_forward > 0; }
bool ht_decoder_has_experts(const ht_config *c, int64_t layer) { return c->layer[layer].has_experts; }
bool ht_decoder_has_feed_forward(const ht_config *c, int64_t layer) {
    return ht_decoder_is_dense(c, layer) || ht_decoder_has_experts(c, layer);
}

const ht_tensor_spec ht_decoder_expert_specs[] = {
    {AT(expert_gate), "experts.gate_proj", "ffn_gate_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_GATE},
    {AT(expert_up), "experts.up_proj", "ffn_up_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_UP},
    {AT(expert_down), "experts.down_proj", "ffn_down_exps", HT_EXTENT_HIDDEN, HT_EXTENT_EXPERT_FEED_FORWARD,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_DOWN},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_router_specs[] = {
    {AT(router), "mlp.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_sparse_router_specs[] = {{AT(router), "block_sparse_moe.gate", "ffn_gate_inp",
                                                          HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN,
                                                          .has = ht_decoder_has_experts, .module = "mlp.gate"},
                                                         {.gguf = NULL}};

bool ht_decoder_has_shared_expert(const ht_config *c, int64_t layer) {
    return c->layer[layer].has_experts && c->shared_feed_forward > 0;
}

const ht_tensor_spec ht_decoder_shared_expert_specs[] = {
    {AT(shared_gate), "mlp.shared_experts.gate_proj", "ffn_gate_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_shared_expert},
    {AT(shared_up), "mlp.shared_experts.up_proj", "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_shared_expert},
    {AT(shared_down), "mlp.shared_experts.down_proj", "ffn_down_shexp", HT_EXTENT_HIDDEN, HT_EXTENT_SHARED_FEED_FORWARD,
     .has = ht_decoder_has_shared_expert},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_gated_shared_expert_specs[] = {
    {AT(shared_gate), "mlp.shared_expert.gate_proj", "ffn_gate_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(shared_up), "mlp.shared_expert.up_proj", "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(shared_down), "mlp.shared_expert.down_proj", "ffn_down_shexp", HT_EXTENT_HIDDEN, HT_EXTENT_SHARED_FEED_FORWARD,
     .has = ht_decoder_has_experts},
    {AT(shared_router), "mlp.shared_expert_gate", "ffn_gate_inp_shexp", HT_EXTENT_ONE, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_mlp_specs[] = {{AT(gate), "mlp.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD,
                                                HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP, .has = ht_decoder_is_dense},
                                               {AT(up), "mlp.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD,
                                                HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP, .has = ht_decoder_is_dense},
                                               {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN,
                                                HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP,
                                                .has = ht_decoder_is_dense},
                                               {.gguf = NULL}};

const ht_tensor_spec ht_decoder_gate_up_specs[] = {
    {AT(gate_up), "mlp.gate_up_proj", "ffn_up", HT_EXTENT_GATE_UP, HT_EXTENT_HIDDEN, .has = ht_decoder_is_dense},
    {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .has = ht_decoder_is_dense},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_ungated_mlp_specs[] = {
    {AT(up), "mlp.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP,
     .has = ht_decoder_is_dense},
    {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP,
     .has = ht_decoder_is_dense},
    {.gguf = NULL}};

void ht_decoder_read_q_bias(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    c->out_bias = false;
}

ht_array *ht_decoder_relu_squared(ht_scope *s, ht_array *x) { return ht_square(s, ht_relu(s, x)); }

/* x [T, n * head_dim] -> [T, n, head_dim] */
static ht_array *split_heads(ht_ctx *c, ht_array *x, int64_t n, int64_t head_dim) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n, head_dim}, 3);
}

/* x [T, n, head_dim] -> [T, n * head_dim] */
static ht_array *merge_heads(ht_ctx *c, ht_array *x, int64_t n, int64_t head_dim) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n * head_dim}, 2);
}

/* Heads `first`, first + 2, ... of x [T, n, head_dim]. */
static ht_array *every_second(ht_ctx *c, ht_array *x, int64_t first) {
    return ht_slice(c->s, x, (int64_t[]){0, first, 0}, (int64_t[]){HT_OPEN, HT_OPEN, HT_OPEN}, (int64_t[]){1, 2, 1});
}

ht_array *ht_decoder_norm(ht_ctx *c, const ht_config *config, ht_array *x, const ht_norm_weights *norm) {
    if (!norm->weight) return x;
    if (!config->layer_norm) return ht_rms_norm(c->s, x, norm->weight, config->norm_eps, config->norm_offset);
    ht_array *gain = norm->weight, *bias = norm->bias ? norm->bias : HT_NONE;
    if (config->norm_offset != 0)
        gain = ht_add(c->s, gain, ht_full(c->s, (double)config->norm_offset, HT_F32, NULL, 0));
    return ht_layer_norm(c->s, x, gain, bias, config->norm_eps);
}

/* Norm of queries or keys x [T, n * head_dim] -> [T, n, head_dim]. */
static ht_array *normed_heads(ht_ctx *c, const ht_config *cfg, ht_array *x, const ht_norm_weights *norm, int64_t n,
                              int64_t head_dim) {
    const ht_family *f = cfg->family;
    if (f->head_norm == HT_HEAD_NORM_WHOLE) return split_heads(c, ht_decoder_norm(c, cfg, x, norm), n, head_dim);
    x = split_heads(c, x, n, head_dim);
    if (f->head_norm == HT_HEAD_NORM_EACH || !norm->weight) return ht_decoder_norm(c, cfg, x, norm);
    ht_array *gain = ht_reshape(c->s, norm->weight, (int64_t[]){n, head_dim}, 2);
    return ht_multiply(c->s, ht_layer_norm(c->s, x, HT_NONE, HT_NONE, cfg->norm_eps), gain);
}

ht_array *ht_decoder_columns(ht_ctx *c, ht_array *x, int64_t first, int64_t n) {
    return ht_slice(c->s, x, (int64_t[]){0, first}, (int64_t[]){HT_OPEN, first + n}, NULL);
}

/* Projections of x, before norm and RoPE: *q [T, n_heads * head_dim], *k and *v [T, n_kv_heads * head_dim], or HT_NONE
 * where the layer shares those of an earlier one. */
static void project(ht_ctx *c, const ht_config *cfg, const ht_decoder_layer *l, int index, ht_array *x, ht_array **q,
                    ht_array **k, ht_array **v) {
    const ht_layer_config *shape = &cfg->layer[index];
    *k = *v = HT_NONE;
    if (l->qkv.matrix) {
        const int64_t n_q = cfg->n_heads * shape->head_dim, n_kv = shape->n_kv_heads * shape->head_dim;
        ht_array *all = ht_linear(c, x, &l->qkv);
        *q = ht_decoder_columns(c, all, 0, n_q);
        *k = ht_decoder_columns(c, all, n_q, n_kv);
        *v = ht_decoder_columns(c, all, n_q + n_kv, n_kv);
        return;
    }
    *q = ht_linear(c, x, &l->q);
    if (!keeps_keys(cfg, index)) return;
    *k = ht_linear(c, x, &l->k);
    *v = shape->v_is_k ? *k : ht_linear(c, x, &l->v);
}

ht_array *ht_decoder_rotated(ht_ctx *c, const ht_decoder_weights *m, bool slides, ht_array *x, ht_array *pos) {
    const ht_rotation *r = slides && m->config->has_local_rope ? &m->local_rope
                           : c->is_long                        ? &m->rope[HT_ROPE_OF_LONG]
                                                               : &m->rope[HT_ROPE_OF_SHORT];
    return ht_rope(c->s, x, pos, r->factors, &r->how);
}

ht_array *ht_decoder_tempered(ht_ctx *c, const ht_config *cfg, ht_array *q, ht_array *pos) {
    ht_scope *s = c->s;
    if (cfg->query_beta == 0) return q;
    if (cfg->query_shift) pos = ht_add(s, pos, ht_full(s, (double)cfg->query_shift, HT_I32, NULL, 0));
    ht_array *periods = ht_floor_divide(s, pos, ht_full(s, (double)cfg->query_period, HT_I32, NULL, 0));
    ht_array *factor = ht_scale(s, ht_log1p(s, ht_astype(s, periods, HT_F32)), cfg->query_beta);
    factor = ht_add(s, factor, ht_full(s, 1, HT_F32, NULL, 0));
    return ht_multiply(s, q, ht_reshape(s, factor, (int64_t[]){-1, 1, 1}, 3));
}

/* Norm and RoPE of queries or keys x [T, n * head_dim] -> [T, n, head_dim]. */
static ht_array *positioned(ht_ctx *c, const ht_decoder_weights *m, int index, ht_array *x, const ht_norm_weights *norm,
                            int64_t n, ht_array *pos) {
    const ht_config *cfg = m->config;
    const ht_layer_config *shape = &cfg->layer[index];
    const bool late = cfg->family->head_norm_after_rope;
    x = late ? split_heads(c, x, n, shape->head_dim) : normed_heads(c, cfg, x, norm, n, shape->head_dim);
    if (!shape->no_rope) x = ht_decoder_rotated(c, m, shape->slides, x, pos);
    if (!late) return x;
    if (cfg->family->head_norm != HT_HEAD_NORM_PLAIN) return ht_decoder_norm(c, cfg, x, norm);
    return shape->no_rope || !cfg->head_norms ? x : ht_rms_norm(c->s, x, HT_NONE, cfg->norm_eps, 0);
}

ht_array *ht_decoder_attention(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                               ht_array *x, ht_array *pos) {
    const ht_config *cfg = m->config;
    const ht_layer_config *shape = &cfg->layer[index];
    if (cfg->latent.rank) return ht_latent_attention(c, m, l, index, x, pos);
    ht_array *q, *k, *v, *gate = NULL;
    project(c, cfg, l, index, x, &q, &k, &v);
    if (cfg->family->gated_queries) { /* [T, n_heads * 2 head_dim] */
        ht_array *both = split_heads(c, q, 2 * cfg->n_heads, shape->head_dim);
        q = merge_heads(c, every_second(c, both, 0), cfg->n_heads, shape->head_dim);
        gate = merge_heads(c, every_second(c, both, 1), cfg->n_heads, shape->head_dim);
    }
    if (keeps_keys(cfg, index)) {
        v = split_heads(c, v, shape->n_kv_heads, shape->head_dim); /* [T, n_kv_heads, head_dim] */
        if (cfg->family->normed_values) v = ht_rms_norm(c->s, v, HT_NONE, cfg->norm_eps, 0);
        k = positioned(c, m, index, k, &l->k_norm, shape->n_kv_heads, pos);
    }
    q = positioned(c, m, index, q, &l->q_norm, cfg->n_heads, pos); /* [T, n_heads, head_dim] */
    if (shape->no_rope || !cfg->query_shift) q = ht_decoder_tempered(c, cfg, q, pos);
    const ht_attention how = {.scale = cfg->attention_scale,
                              .softcap = cfg->attention_softcap,
                              .sinks = l->sinks,
                              .asked = index >= ht_unshared_layers(cfg),
                              .two_sided = cfg->two_sided,
                              .reach = shape->slides ? cfg->window / 2 : 0,
                              .layer = index,
                              .kv_layer = (int)shape->kv_layer};
    ht_array *o =
        ht_attend(c, q, k, v, (int)ht_cache_layer_of(cfg, shape->kv_layer, false), &how); /* [T, n_heads, head_dim] */
    o = merge_heads(c, o, cfg->n_heads, shape->head_dim);
    if (l->attention_gate.matrix) gate = ht_linear(c, x, &l->attention_gate);
    if (gate) o = ht_multiply(c->s, o, ht_sigmoid(c->s, gate));
    return ht_linear(c, o, &l->out);
}

static ht_array *activated(ht_ctx *c, const ht_config *cfg, ht_array *x) {
    return cfg->silu ? ht_silu(c->s, x) : cfg->family->activate(c->s, x);
}

/* Gate and up together. */
static ht_array *combined(ht_ctx *c, const ht_config *cfg, ht_array *gate, ht_array *up) {
    const ht_family *f = cfg->family;
    return f->combine ? f->combine(c->s, gate, up) : ht_multiply(c->s, activated(c, cfg, gate), up);
}

/* down(activation(gate x) * up x), or down(activation(up x)) without a gate; gate and up may be one matrix instead. */
static ht_array *feed_forward(ht_ctx *c, const ht_config *cfg, const ht_weight *gate_up, const ht_weight *gate,
                              const ht_weight *up, const ht_weight *down, ht_array *x) {
    if (gate_up->matrix) {
        const int64_t n = gate_up->matrix->n_rows / 2;
        ht_array *both = ht_linear(c, x, gate_up);
        ht_array *g = ht_decoder_columns(c, both, 0, n), *u = ht_decoder_columns(c, both, n, n);
        return ht_linear(c, combined(c, cfg, g, u), down);
    }
    if (!gate->matrix) return ht_linear(c, activated(c, cfg, ht_linear(c, x, up)), down);
    ht_array *g = ht_linear(c, x, gate), *u = ht_linear(c, x, up); /* [T, feed_forward] */
    return ht_linear(c, combined(c, cfg, g, u), down);
}

ht_array *ht_decoder_mlp(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x) {
    return feed_forward(c, m->config, &l->gate_up, &l->gate, &l->up, &l->down, x);
}

/* scores [T, n_experts], with those outside the chosen groups replaced by -inf. */
static ht_array *within_groups(ht_ctx *c, const ht_config *cfg, ht_array *scores) {
    ht_scope *s = c->s;
    const ht_routing *r = &cfg->routing;
    const int64_t grouped[] = {-1, r->groups, cfg->n_experts / r->groups};
    const int32_t n_best = r->best_of_group ? 1 : 2;
    ht_array *by_group = ht_reshape(s, scores, grouped, 3);
    ht_array *best = ht_take_along_axis(s, by_group, ht_argtopk(s, by_group, n_best), -1); /* [T, groups, n_best] */
    ht_array *chosen = ht_argtopk(s, ht_sum(s, best, (int[]){-1}, 1, false), (int32_t)r->groups_used);
    ht_array *all = ht_arange(s, 0, (double)r->groups, 1, HT_I32);
    ht_array *is_chosen = ht_equal(s, ht_expand_dims(s, chosen, 2), all); /* [T, groups_used, groups] */
    ht_array *keep = ht_expand_dims(s, ht_any(s, is_chosen, (int[]){1}, 1, false), 2);
    ht_array *masked = ht_where(s, keep, by_group, ht_full(s, -INFINITY, HT_F32, NULL, 0));
    return ht_reshape(s, masked, (int64_t[]){-1, cfg->n_experts}, 2);
}

/* The weight [T, 1] of the expert id [T, 1], which has the highest of the logits [T, n_experts] that are not `taken`: a
 * softmax over those of the others that are at most 2 jitter below it, relative to the larger magnitude of the two. */
static ht_array *mixed_weight(ht_ctx *c, const ht_config *config, ht_array *logits, ht_array *taken, ht_array *id) {
    ht_scope *s = c->s;
    ht_array *highest = ht_take_along_axis(s, logits, id, -1); /* [T, 1] */
    ht_array *distance = ht_divide(s, ht_subtract(s, highest, logits), ht_maximum(s, ht_abs(s, logits), highest));
    ht_array *masked = ht_greater(s, distance, ht_full(s, 2 * (double)config->routing.jitter, HT_F32, NULL, 0));
    if (taken) masked = ht_logical_or(s, masked, taken);
    ht_array *near = ht_where(s, masked, ht_full(s, -INFINITY, HT_F32, NULL, 0), logits);
    return ht_take_along_axis(s, ht_softmax(s, near, -1), id, -1);
}

/* Weights [T, 2] of the experts with the two highest logits, ids [T, 2]. In training, `transformers` draws the experts
 * at random; here, the choice is always that of generation. */
static ht_array *mixed_weights(ht_ctx *c, const ht_config *config, ht_array *logits, ht_array *ids) {
    ht_scope *s = c->s;
    ht_array *first = ht_decoder_columns(c, ids, 0, 1), *second = ht_decoder_columns(c, ids, 1, 1);
    ht_array *taken = ht_equal(s, ht_arange(s, 0, (double)config->n_experts, 1, HT_I32), first);
    ht_array *w[] = {mixed_weight(c, config, logits, NULL, first), mixed_weight(c, config, logits, taken, second)};
    return ht_concatenate(s, w, 2, -1);
}

ht_array *ht_decoder_route(ht_ctx *c, const ht_config *config, ht_array *logits, ht_array *bias, ht_array **weights) {
    ht_scope *s = c->s;
    const ht_routing *r = &config->routing;
    ht_array *scores = r->scores == HT_ROUTER_SOFTMAX   ? ht_softmax(s, logits, -1)
                       : r->scores == HT_ROUTER_SIGMOID ? ht_sigmoid(s, logits)
                                                        : logits;
    ht_array *choice = bias ? ht_add(s, scores, bias) : scores;
    if (r->groups > 1) choice = within_groups(c, config, choice);
    ht_array *ids = ht_argtopk(s, choice, (int32_t)config->experts_used);
    ht_array *w = r->scores == HT_ROUTER_SPARSE_MIXER ? mixed_weights(c, config, logits, ids)
                                                      : ht_take_along_axis(s, scores, ids, -1);
    if (r->scores == HT_ROUTER_CHOSEN_SOFTMAX) w = ht_softmax(s, w, -1);
    if (r->scores == HT_ROUTER_CHOSEN_SIGMOID) w = ht_sigmoid(s, w);
    if (r->normalized) {
        ht_array *sum = ht_sum(s, w, (int[]){-1}, 1, true);
        if (r->least_sum != 0) sum = ht_add(s, sum, ht_full(s, (double)r->least_sum, HT_F32, NULL, 0));
        w = ht_divide(s, w, sum);
    }
    *weights = r->scale != 0 && r->scale != 1 ? ht_scale(s, w, r->scale) : w;
    if (c->taps && !ht_taps_add_route(c, ids, *weights)) return NULL;
    return ids;
}

ht_array *ht_decoder_experts(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x,
                             ht_array *ids, ht_array *weights) {
    ht_array *both[2]; /* gate and up, [T, m, expert_feed_forward] */
    const bool on_input = m->config->routing.on_input;
    if (on_input)
        x = ht_multiply(c->s, ht_expand_dims(c->s, x, 1), ht_expand_dims(c->s, weights, 2)); /* [T, m, hidden] */
    ht_array *y;
    if (l->expert_gate.list.n) {
        ht_linear_gather_two(c, x, (const ht_experts *const[]){&l->expert_gate, &l->expert_up}, ids, both);
        y = combined(c, m->config, both[0], both[1]);
    } else
        y = activated(c, m->config, ht_linear_gather(c, x, &l->expert_up, ids));
    y = ht_linear_gather(c, y, &l->expert_down, ids); /* [T, m, hidden] */
    if (on_input) return ht_sum(c->s, y, (int[]){1}, 1, false);
    return ht_squeeze(c->s, ht_matmul(c->s, ht_expand_dims(c->s, weights, 1), y, false), 1);
}

/* The expert that all tokens use: x [T, hidden] -> [T, hidden]. */
static ht_array *shared_expert(ht_ctx *c, const ht_config *cfg, const ht_decoder_layer *l, ht_array *x) {
    ht_array *y = feed_forward(c, cfg, &l->shared_gate_up, &l->shared_gate, &l->shared_up, &l->shared_down, x);
    if (!l->shared_router.matrix) return y;
    return ht_multiply(c->s, y, ht_sigmoid(c->s, ht_linear(c, x, &l->shared_router)));
}

/* Feed-forward of a layer, dense or routed: x [T, hidden] -> [T, hidden]. */
static ht_array *decoder_feed_forward(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                                      ht_array *x) {
    if (!m->config->layer[index].has_experts) return ht_decoder_mlp(c, m, l, x);
    ht_array *weights, *logits = ht_linear(c, x, &l->router);
    ht_array *ids = ht_decoder_route(c, m->config, logits, l->router_bias, &weights);
    ht_array *y = ht_decoder_experts(c, m, l, l->latent_in.matrix ? ht_linear(c, x, &l->latent_in) : x, ids, weights);
    if (l->latent_out.matrix) y = ht_linear(c, y, &l->latent_out);
    if (!l->shared_down.matrix) return y;
    const float scale = m->config->routing.shared_scale;
    y = ht_add(c->s, y, shared_expert(c, m->config, l, x));
    return scale != 0 ? ht_scale(c->s, y, scale) : y;
}

ht_array *ht_decoder_embed(ht_ctx *c, const ht_decoder_weights *m) {
    return ht_embed(c, ht_batch_ids(c), &m->embedding, m->config->embedding_scale);
}

ht_array *ht_decoder_head(ht_ctx *c, const ht_decoder_weights *m, ht_array *h) {
    const ht_config *cfg = m->config;
    h = ht_decoder_norm(c, cfg, h, &m->final_norm);
    if (c->hidden || cfg->two_sided) return h;
    /* A factor on the logits is one on the head's input. */
    if (cfg->logit_scale != 1) h = ht_scale(c->s, h, cfg->logit_scale);
    const bool biased = m->head.bias && m->head.bias != HT_NONE;
    if (c->pass && !biased) return ht_head_loss(c, h, &m->head, cfg->final_softcap);
    ht_array *logits = ht_linear(c, h, &m->head);
    if (cfg->final_softcap > 0) logits = ht_softcap(c->s, logits, cfg->final_softcap);
    if (!c->pass) return logits;
    ht_array *target = ht_expand_dims(c->s, c->pass->target, 1);
    ht_array *of_target = ht_squeeze(c->s, ht_take_along_axis(c->s, logits, target, -1), 1);
    return ht_subtract(c->s, ht_logsumexp(c->s, logits, (int[]){-1}, 1, false), of_target);
}

ht_array *ht_decoder_cut(ht_ctx *c, ht_array *x) { return ht_take(c->s, x, ht_batch_out_rows(c), 0); }

/* A sublayer's result, scaled for the residual stream. */
static ht_array *addition(ht_ctx *c, const ht_config *cfg, ht_array *y) {
    return cfg->residual_scale != 1 ? ht_scale(c->s, y, cfg->residual_scale) : y;
}

/* Attention, the recurrence, or the sum of both: x [T, hidden] -> [T, hidden]. */
static ht_array *mixed(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int i, ht_array *x,
                       ht_array *pos) {
    const ht_layer_config *of = &m->config->layer[i];
    ht_array *y = of->no_attention ? NULL : ht_decoder_attention(c, m, l, i, x, pos);
    if (!of->recurrent) return y;
    ht_array *r = ht_decoder_recurrence(c, m, l, i, x);
    return of->no_attention ? r : ht_add(c->s, y, r);
}

/* in: h [T, hidden], pos i32 [T]. */
static ht_array *decoder_layer(ht_ctx *c, const void *model, int i, ht_array *const *in) {
    const ht_decoder_weights *m = model;
    const ht_config *cfg = m->config;
    const ht_decoder_layer *l = (const ht_decoder_layer *)m->layers + i;
    const bool is_last = i == cfg->n_layers - 1; /* rows are independent after its attention: the output rows suffice */
    const bool mixes = cfg->layer[i].recurrent || !cfg->layer[i].no_attention;
    ht_array *h = in[0], *x = ht_decoder_norm(c, cfg, h, &l->attention_norm), *a = NULL, *f;
    if (mixes) a = addition(c, cfg, ht_decoder_norm(c, cfg, mixed(c, m, l, i, x, in[1]), &l->after_attention_norm));
    if (cfg->parallel) {
        if (is_last) h = ht_decoder_cut(c, h), a = ht_decoder_cut(c, a), x = ht_decoder_cut(c, x);
        if (l->mlp_norm.weight) x = ht_decoder_norm(c, cfg, h, &l->mlp_norm);
        f = ht_add(c->s, a, decoder_feed_forward(c, m, l, i, x));
    } else {
        if (mixes) h = ht_add(c->s, h, a);
        if (is_last) h = ht_decoder_cut(c, h);
        if (!ht_decoder_has_feed_forward(cfg, i)) return h;
        f = decoder_feed_forward(c, m, l, i, ht_decoder_norm(c, cfg, h, &l->mlp_norm));
        f = addition(c, cfg, ht_decoder_norm(c, cfg, f, &l->after_mlp_norm));
    }
    return ht_add(c->s, h, f);
}

ht_array *ht_decoder_layers(ht_ctx *c, const ht_decoder_weights *m, ht_array *h, ht_array *pos) {
    for (int i = 0; i < m->config->n_layers; i++) h = ht_layer(c, decoder_layer, m, i, i, (ht_array *[]){h, pos}, 2);
    return ht_decoder_head(c, m, h);
}

ht_array *ht_decoder_forward(ht_ctx *c, const void *model) {
    const ht_decoder_weights *m = model;
    if (m->config->two_sided) ht_begin_two_sided(c, m->config->window / 2);
    return ht_decoder_layers(c, m, ht_decoder_embed(c, m), ht_batch_positions(c));
}
