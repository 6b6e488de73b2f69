/* Gemma 3: blocks with a norm before and after both halves, norms of q and k per head, and a window on most layers, which
 * turn positions by a base of their own. */
#include "models/decoder.h"

#include <math.h>

typedef struct layer {
    ht_array *attention_norm, *after_attention_norm; /* f32 [hidden] */
    ht_array *mlp_norm, *after_mlp_norm;             /* f32 [hidden] */
    ht_array *q_norm, *k_norm;                       /* f32 [head_dim] */
    ht_weight q;                                     /* [n_heads * head_dim, hidden] */
    ht_weight k, v;                                  /* [n_kv_heads * head_dim, hidden] */
    ht_weight out;                                   /* [hidden, n_heads * head_dim] */
    ht_weight gate, up;                              /* [feed_forward, hidden] */
    ht_weight down;                                  /* [hidden, feed_forward] */
} layer;

#define AT(field) offsetof(layer, field)
static const ht_weight_place layer_places[] = {
    {AT(attention_norm), "input_layernorm", "attn_norm", HT_EXTENT_HIDDEN, .columns = HT_EXTENT_NONE},
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, HT_BIAS_Q, HT_HEADS_Q},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, HT_BIAS_Q, HT_HEADS_KV},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, HT_BIAS_Q, HT_HEADS_NONE},
    {AT(q_norm), "self_attn.q_norm", "attn_q_norm", HT_EXTENT_HEAD, .columns = HT_EXTENT_NONE},
    {AT(k_norm), "self_attn.k_norm", "attn_k_norm", HT_EXTENT_HEAD, .columns = HT_EXTENT_NONE},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, HT_BIAS_OUT, HT_HEADS_NONE},
    {AT(after_attention_norm), "post_attention_layernorm", "post_attention_norm", HT_EXTENT_HIDDEN,
     .columns = HT_EXTENT_NONE},
    {AT(mlp_norm), "pre_feedforward_layernorm", "ffn_norm", HT_EXTENT_HIDDEN, .columns = HT_EXTENT_NONE},
    {AT(gate), "mlp.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, HT_BIAS_NONE, HT_HEADS_NONE},
    {AT(up), "mlp.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, HT_BIAS_NONE, HT_HEADS_NONE},
    {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, HT_BIAS_NONE, HT_HEADS_NONE},
    {AT(after_mlp_norm), "post_feedforward_layernorm", "post_ffw_norm", HT_EXTENT_HIDDEN, .columns = HT_EXTENT_NONE},
    {.gguf = NULL}};
#undef AT

static ht_array *norm(ht_ctx *c, const ht_config *cfg, ht_array *x, ht_array *weight) {
    return ht_rms_norm(c->s, x, weight, cfg->rms_eps, cfg->norm_offset);
}

/* x [T, hidden] -> [T, hidden] */
static ht_array *attention(ht_ctx *c, const ht_decoder *m, const layer *l, int index, ht_array *x, ht_array *pos) {
    const ht_config *cfg = m->config;
    bool local = cfg->sliding[index];
    const ht_rope_config *rope = local ? &m->local_rope : &m->rope;
    ht_array *factors = local ? m->local_rope_factors : m->rope_factors;
    ht_array *q = ht_split_heads(c, ht_linear(c, x, &l->q), cfg->n_heads, cfg->head_dim); /* [T, n_heads, head_dim] */
    ht_array *k =
        ht_split_heads(c, ht_linear(c, x, &l->k), cfg->n_kv_heads, cfg->head_dim); /* [T, n_kv_heads, head_dim] */
    ht_array *v = ht_split_heads(c, ht_linear(c, x, &l->v), cfg->n_kv_heads, cfg->head_dim);
    q = ht_rope(c->s, norm(c, cfg, q, l->q_norm), pos, factors, rope);
    k = ht_rope(c->s, norm(c, cfg, k, l->k_norm), pos, factors, rope);
    ht_array *o =
        ht_attend(c, q, k, v, index, &(ht_attention){.scale = cfg->attention_scale}); /* [T, n_heads, head_dim] */
    return ht_linear(c, ht_merge_heads(c, o, cfg->n_heads, cfg->head_dim), &l->out);
}

/* x [T, hidden] -> [T, hidden], by way of [T, feed_forward] */
static ht_array *mlp(ht_ctx *c, const layer *l, ht_array *x) {
    ht_array *gate = ht_linear(c, x, &l->gate), *up = ht_linear(c, x, &l->up);
    return ht_linear(c, ht_mul(c->s, ht_gelu_tanh(c->s, gate), up), &l->down);
}

static ht_array *forward(ht_ctx *c, const void *model) {
    const ht_decoder *m = model;
    const ht_config *cfg = m->config;
    const layer *layers = m->layers;
    ht_array *pos = ht_batch_positions(c);
    ht_array *h = ht_embed(c, ht_batch_ids(c), &m->embedding, (float)sqrt((double)cfg->hidden)); /* [T, hidden] */
    for (int i = 0; i < cfg->n_layers; i++) {
        const layer *l = &layers[i];
        ht_array *a = attention(c, m, l, i, norm(c, cfg, h, l->attention_norm), pos);
        h = ht_add(c->s, h, norm(c, cfg, a, l->after_attention_norm));
        /* After the last attention rows no longer meet: only those asked for go on, [n_out, hidden]. */
        if (i == cfg->n_layers - 1) h = ht_take(c->s, h, ht_batch_out_rows(c));
        ht_array *f = mlp(c, l, norm(c, cfg, h, l->mlp_norm));
        h = ht_add(c->s, h, norm(c, cfg, f, l->after_mlp_norm));
    }
    ht_array *logits = ht_linear(c, norm(c, cfg, h, m->final_norm), &m->head); /* [n_out, vocab] */
    return cfg->final_softcap > 0 ? ht_softcap(c->s, logits, cfg->final_softcap) : logits;
}

enum { PATTERN = 6 }; /* every sixth layer sees everything, unless the file says otherwise */
static const double local_theta = 10000;

static void slide_by_pattern(ht_config *c, int64_t pattern) {
    for (int64_t i = 0; i < c->n_layers; i++) c->sliding[i] = c->window > 0 && (i + 1) % pattern != 0;
}

static void read_json(ht_config *c, ht_json_reader *r, const json_t *object) {
    c->norm_offset = 1;
    c->mlp_bias = false;
    c->local_rope.theta = local_theta;
    double scalar = 256, cap = 0;
    ht_json_f64(r, object, "query_pre_attn_scalar", &scalar);
    if (!(scalar > 0))
        ht_json_fail(r, HT_ERR_FORMAT, "`query_pre_attn_scalar` is %g, expected a positive number", scalar);
    c->attention_scale = (float)(1 / sqrt(scalar));
    ht_json_f64(r, object, "final_logit_softcapping", &cap);
    c->final_softcap = (float)cap;
    int64_t pattern = PATTERN;
    c->window = 4096;
    ht_json_i64(r, object, "sliding_window", &c->window);
    ht_json_i64(r, object, "sliding_window_pattern", &pattern);
    if (pattern < 1)
        ht_json_fail(r, HT_ERR_FORMAT, "`sliding_window_pattern` is %lld, expected a positive number",
                     (long long)pattern);
    else
        slide_by_pattern(c, pattern);
    bool both_ways = false;
    if (ht_json_bool(r, object, "use_bidirectional_attention", &both_ways) && both_ways)
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "`use_bidirectional_attention` is true: the model is an encoder, not a generator");
}

/* The pattern as one number, or as one boolean per layer. */
static void read_pattern(ht_config *c, ht_meta *m) {
    const char *name = "attention.sliding_window_pattern";
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v || v->type != HT_GGUF_ARRAY) {
        int64_t pattern = ht_meta_i64(m, name, PATTERN);
        if (pattern < 1)
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` is %lld, expected a positive number", m->architecture, name,
                         (long long)pattern);
        else
            slide_by_pattern(c, pattern);
        return;
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        int64_t slides;
        if (!ht_gguf_item_i64(v, (uint64_t)i, &slides)) {
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` does not say for each of %lld layers whether it slides",
                         m->architecture, name, (long long)c->n_layers);
            return;
        }
        c->sliding[i] = slides != 0;
    }
}

/* The file has 1 + w as the weight of a norm; what it lacks is as the family has it. */
static void read_gguf(ht_config *c, ht_meta *m) {
    enum { LAYERS_OF_27B = 62 }; /* the one size whose scale is not from head_dim, and whose file does not say so */
    if (c->n_layers == LAYERS_OF_27B && c->n_heads > 0 && !ht_meta_has(m, "attention.scale"))
        c->attention_scale = (float)(1 / sqrt((double)c->hidden / (double)c->n_heads));
    c->local_rope.theta = ht_meta_f64(m, "rope.freq_base_swa", local_theta);
    c->final_softcap = (float)ht_meta_f64(m, "final_logit_softcapping", 0);
    c->window = ht_meta_i64(m, "attention.sliding_window", 0);
    read_pattern(c, m);
}

const ht_family ht_family_gemma3 = {.architecture = "gemma3",
                                    .model_types = {"gemma3_text", "gemma3"},
                                    .defaults = {.n_layers = 26,
                                                 .hidden = 2304,
                                                 .n_heads = 8,
                                                 .n_kv_heads = 4,
                                                 .head_dim = 256,
                                                 .feed_forward = 9216,
                                                 .vocab = 262208,
                                                 .context = 131072,
                                                 .rms_eps = 1e-6,
                                                 .rope_theta = 1000000,
                                                 .tied_head = true,
                                                 .activation_field = "hidden_activation",
                                                 .activation = "gelu_pytorch_tanh"},
                                    .read_json = read_json,
                                    .read_gguf = read_gguf,
                                    .layer = layer_places,
                                    .layer_bytes = sizeof(layer),
                                    .forward = forward};
