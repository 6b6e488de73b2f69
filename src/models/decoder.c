/* Decoder of most families: blocks of attention and gated feed-forward, with pre-norms and optional post-norms. */
#include "models/decoder.h"

#include "checkpoint/kv_size.h"
#include "models/taps.h"

#include <math.h>

#define AT(field) offsetof(ht_decoder_layer, field)

static bool keeps_keys(const ht_config *c, int64_t layer) { return c->layer[layer].kv_layer == layer; }
static bool projects_values(const ht_config *c, int64_t layer) {
    return keeps_keys(c, layer) && !c->layer[layer].v_is_k;
}

const ht_tensor_spec ht_decoder_attention_specs[] = {
    {AT(attention_norm), "input_layernorm", "attn_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .heads = HT_HEADS_Q},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .heads = HT_HEADS_KV,
     .has = keeps_keys},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .has = projects_values},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_head_norm_specs[] = {
    {AT(q_norm), "self_attn.q_norm", "attn_q_norm", .rows = HT_EXTENT_HEAD},
    {AT(k_norm), "self_attn.k_norm", "attn_k_norm", .rows = HT_EXTENT_HEAD, .has = keeps_keys},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_mlp_norm_specs[] = {
    {AT(mlp_norm), "post_attention_layernorm", "ffn_norm", .rows = HT_EXTENT_HIDDEN}, {.gguf = NULL}};

const ht_tensor_spec ht_decoder_sandwich_norm_specs[] = {
    {AT(after_attention_norm), "post_attention_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(mlp_norm), "pre_feedforward_layernorm", "ffn_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(after_mlp_norm), "post_feedforward_layernorm", "post_ffw_norm", .rows = HT_EXTENT_HIDDEN},
    {.gguf = NULL}};

static bool is_dense(const ht_config *c, int64_t layer) { return c->layer[layer].feed_forward > 0; }
bool ht_decoder_has_experts(const ht_config *c, int64_t layer) { return c->layer[layer].has_experts; }

const ht_tensor_spec ht_decoder_expert_specs[] = {
    {AT(expert_gate), "experts.gate_proj", "ffn_gate_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_GATE},
    {AT(expert_up), "experts.up_proj", "ffn_up_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_UP},
    {AT(expert_down), "experts.down_proj", "ffn_down_exps", HT_EXTENT_HIDDEN, HT_EXTENT_EXPERT_FEED_FORWARD,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_DOWN},
    {.gguf = NULL}};

const ht_tensor_spec ht_decoder_mlp_specs[] = {
    {AT(gate), "mlp.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP,
     .has = is_dense},
    {AT(up), "mlp.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP, .has = is_dense},
    {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP,
     .has = is_dense},
    {.gguf = NULL}};

/* x [T, n * head_dim] -> [T, n, head_dim] */
static ht_array *split_heads(ht_ctx *c, ht_array *x, int64_t n, int64_t head_dim) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n, head_dim}, 3);
}

/* x [T, n, head_dim] -> [T, n * head_dim] */
static ht_array *merge_heads(ht_ctx *c, ht_array *x, int64_t n, int64_t head_dim) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n * head_dim}, 2);
}

ht_array *ht_decoder_norm(ht_ctx *c, const ht_config *config, ht_array *x, ht_array *weight) {
    return weight ? ht_rms_norm(c->s, x, weight, config->rms_eps, config->norm_offset) : x;
}

ht_array *ht_decoder_attention(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                               ht_array *x, ht_array *pos) {
    const ht_config *cfg = m->config;
    const ht_layer_config *shape = &cfg->layer[index];
    const ht_rope_config *rope = shape->slides ? &m->local_rope : &m->rope;
    ht_array *factors = shape->slides ? m->local_rope_factors : m->rope_factors;
    ht_array *q = split_heads(c, ht_linear(c, x, &l->q), cfg->n_heads, shape->head_dim); /* [T, n_heads, head_dim] */
    ht_array *k = HT_NONE, *v = HT_NONE;
    if (keeps_keys(cfg, index)) {
        k = split_heads(c, ht_linear(c, x, &l->k), shape->n_kv_heads, shape->head_dim); /* [T, n_kv_heads, head_dim] */
        v = shape->v_is_k ? k : split_heads(c, ht_linear(c, x, &l->v), shape->n_kv_heads, shape->head_dim);
        if (cfg->family->normed_values) v = ht_rms_norm(c->s, v, HT_NONE, cfg->rms_eps, 0);
        k = ht_rope(c->s, ht_decoder_norm(c, cfg, k, l->k_norm), pos, factors, rope);
    }
    q = ht_rope(c->s, ht_decoder_norm(c, cfg, q, l->q_norm), pos, factors, rope);
    const ht_attention how = {cfg->attention_scale, cfg->attention_softcap, index >= ht_kv_layers(cfg), index};
    ht_array *o = ht_attend(c, q, k, v, (int)shape->kv_layer, &how); /* [T, n_heads, head_dim] */
    return ht_linear(c, merge_heads(c, o, cfg->n_heads, shape->head_dim), &l->out);
}

ht_array *ht_decoder_mlp(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x) {
    ht_array *gate = ht_linear(c, x, &l->gate), *up = ht_linear(c, x, &l->up); /* [T, feed_forward] */
    return ht_linear(c, ht_multiply(c->s, m->config->family->activate(c->s, gate), up), &l->down);
}

ht_array *ht_decoder_route(ht_ctx *c, const ht_config *config, ht_array *scores, ht_array **weights) {
    ht_array *ids = ht_argtopk(c->s, scores, (int32_t)config->experts_used);
    ht_array *w = ht_take_along_axis(c->s, ht_softmax(c->s, scores, -1), ids, -1);
    *weights = config->scaled_routing ? ht_divide(c->s, w, ht_sum(c->s, w, (int[]){-1}, 1, true)) : w;
    if (c->taps && !ht_taps_add_route(c, ids, *weights)) return NULL;
    return ids;
}

ht_array *ht_decoder_experts(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x,
                             ht_array *ids, ht_array *weights) {
    ht_array *both[2]; /* gate and up, [T, m, expert_feed_forward] */
    ht_linear_gather_two(c, x, (const ht_experts *const[]){&l->expert_gate, &l->expert_up}, ids, both);
    ht_array *y = ht_multiply(c->s, m->config->family->activate(c->s, both[0]), both[1]);
    y = ht_linear_gather(c, y, &l->expert_down, ids); /* [T, m, hidden] */
    return ht_squeeze(c->s, ht_matmul(c->s, ht_expand_dims(c->s, weights, 1), y, false), 1);
}

/* Feed-forward of a layer, dense or routed: x [T, hidden] -> [T, hidden]. */
static ht_array *decoder_feed_forward(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                                      ht_array *x) {
    if (!m->config->layer[index].has_experts) return ht_decoder_mlp(c, m, l, x);
    ht_array *weights, *ids = ht_decoder_route(c, m->config, ht_linear(c, x, &l->router), &weights);
    return ht_decoder_experts(c, m, l, x, ids, weights);
}

ht_array *ht_decoder_embed(ht_ctx *c, const ht_decoder_weights *m) {
    float scale = m->config->family->scaled_embedding ? (float)sqrt((double)m->config->hidden) : 1;
    return ht_embed(c, ht_batch_ids(c), &m->embedding, scale);
}

ht_array *ht_decoder_head(ht_ctx *c, const ht_decoder_weights *m, ht_array *h) {
    const ht_config *cfg = m->config;
    h = ht_decoder_norm(c, cfg, h, m->final_norm);
    if (c->hidden) return h;
    if (c->pass) return ht_head_loss(c, h, &m->head, cfg->final_softcap);
    ht_array *logits = ht_linear(c, h, &m->head);
    return cfg->final_softcap > 0 ? ht_softcap(c->s, logits, cfg->final_softcap) : logits;
}

/* in: h [T, hidden], pos i32 [T]. */
static ht_array *decoder_layer(ht_ctx *c, const void *model, int i, ht_array *const *in) {
    const ht_decoder_weights *m = model;
    const ht_config *cfg = m->config;
    const ht_decoder_layer *l = (const ht_decoder_layer *)m->layers + i;
    ht_array *h = in[0];
    ht_array *a = ht_decoder_attention(c, m, l, i, ht_decoder_norm(c, cfg, h, l->attention_norm), in[1]);
    h = ht_add(c->s, h, ht_decoder_norm(c, cfg, a, l->after_attention_norm));
    /* Rows are independent after the last attention, so keep only the output rows, [n_out, hidden]. */
    if (i == cfg->n_layers - 1) h = ht_take(c->s, h, ht_batch_out_rows(c), 0);
    ht_array *f = decoder_feed_forward(c, m, l, i, ht_decoder_norm(c, cfg, h, l->mlp_norm));
    return ht_add(c->s, h, ht_decoder_norm(c, cfg, f, l->after_mlp_norm));
}

ht_array *ht_decoder_forward(ht_ctx *c, const void *model) {
    const ht_decoder_weights *m = model;
    ht_array *pos = ht_batch_positions(c), *h = ht_decoder_embed(c, m); /* [T, hidden] */
    for (int i = 0; i < m->config->n_layers; i++) h = ht_layer(c, decoder_layer, m, i, i, (ht_array *[]){h, pos}, 2);
    return ht_decoder_head(c, m, h);
}
