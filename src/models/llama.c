/* Llama and Qwen2: one decoder shape. Pre-norm blocks of grouped-query attention with rotary positions and a SwiGLU
 * feed-forward; Qwen2 has biases on q, k and v, and may slide in its last layers. */
#include "models/decoder.h"

typedef struct layer {
    ht_array *attention_norm, *mlp_norm; /* f32 [hidden] */
    ht_weight q;                         /* [n_heads * head_dim, hidden] */
    ht_weight k, v;                      /* [n_kv_heads * head_dim, hidden] */
    ht_weight out;                       /* [hidden, n_heads * head_dim] */
    ht_weight gate, up;                  /* [feed_forward, hidden] */
    ht_weight down;                      /* [hidden, feed_forward] */
} layer;

#define AT(field) offsetof(layer, field)
static const ht_weight_place layer_places[] = {
    {AT(attention_norm), "input_layernorm", "attn_norm", HT_EXTENT_HIDDEN, .columns = HT_EXTENT_NONE},
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, HT_BIAS_Q, HT_HEADS_Q},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, HT_BIAS_Q, HT_HEADS_KV},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, HT_BIAS_Q, HT_HEADS_NONE},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, HT_BIAS_OUT, HT_HEADS_NONE},
    {AT(mlp_norm), "post_attention_layernorm", "ffn_norm", HT_EXTENT_HIDDEN, .columns = HT_EXTENT_NONE},
    {AT(gate), "mlp.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, HT_BIAS_MLP, HT_HEADS_NONE},
    {AT(up), "mlp.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, HT_BIAS_MLP, HT_HEADS_NONE},
    {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, HT_BIAS_MLP, HT_HEADS_NONE},
    {.gguf = NULL}};
#undef AT

static ht_array *norm(ht_ctx *c, const ht_config *cfg, ht_array *x, ht_array *weight) {
    return ht_rms_norm(c->s, x, weight, cfg->rms_eps, cfg->norm_offset);
}

/* x [T, hidden] -> [T, hidden] */
static ht_array *attention(ht_ctx *c, const ht_decoder *m, const layer *l, int index, ht_array *x, ht_array *pos) {
    const ht_config *cfg = m->config;
    ht_array *q = ht_split_heads(c, ht_linear(c, x, &l->q), cfg->n_heads, cfg->head_dim); /* [T, n_heads, head_dim] */
    ht_array *k =
        ht_split_heads(c, ht_linear(c, x, &l->k), cfg->n_kv_heads, cfg->head_dim); /* [T, n_kv_heads, head_dim] */
    ht_array *v = ht_split_heads(c, ht_linear(c, x, &l->v), cfg->n_kv_heads, cfg->head_dim);
    q = ht_rope(c->s, q, pos, m->rope_factors, &m->rope);
    k = ht_rope(c->s, k, pos, m->rope_factors, &m->rope);
    ht_array *o =
        ht_attend(c, q, k, v, index, &(ht_attention){.scale = cfg->attention_scale}); /* [T, n_heads, head_dim] */
    return ht_linear(c, ht_merge_heads(c, o, cfg->n_heads, cfg->head_dim), &l->out);
}

/* x [T, hidden] -> [T, hidden], by way of [T, feed_forward] */
static ht_array *mlp(ht_ctx *c, const layer *l, ht_array *x) {
    ht_array *gate = ht_linear(c, x, &l->gate), *up = ht_linear(c, x, &l->up);
    return ht_linear(c, ht_mul(c->s, ht_silu(c->s, gate), up), &l->down);
}

static ht_array *forward(ht_ctx *c, const void *model) {
    const ht_decoder *m = model;
    const ht_config *cfg = m->config;
    const layer *layers = m->layers;
    ht_array *pos = ht_batch_positions(c);
    ht_array *h = ht_embed(c, ht_batch_ids(c), &m->embedding, 1); /* [T, hidden] */
    for (int i = 0; i < cfg->n_layers; i++) {
        const layer *l = &layers[i];
        h = ht_add(c->s, h, attention(c, m, l, i, norm(c, cfg, h, l->attention_norm), pos));
        /* After the last attention rows no longer meet: only those asked for go on, [n_out, hidden]. */
        if (i == cfg->n_layers - 1) h = ht_take(c->s, h, ht_batch_out_rows(c));
        h = ht_add(c->s, h, mlp(c, l, norm(c, cfg, h, l->mlp_norm)));
    }
    return ht_linear(c, norm(c, cfg, h, m->final_norm), &m->head); /* [n_out, vocab] */
}

/* GGUF files of this architecture hold q and k for the RoPE that turns neighbours. */
static void read_llama_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    c->interleaved_rows = true;
}

const ht_family ht_family_llama = {.architecture = "llama",
                                   .model_types = {"llama"},
                                   .defaults = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .feed_forward = 11008,
                                                .vocab = 32000,
                                                .context = 2048,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 10000,
                                                .activation_field = "hidden_act",
                                                .activation = "silu"},
                                   .read_gguf = read_llama_gguf,
                                   .layer = layer_places,
                                   .layer_bytes = sizeof(layer),
                                   .forward = forward};

static void read_qwen2_json(ht_config *c, ht_json_reader *r, const json_t *object) {
    c->q_bias = true; /* always, and only there; the class has no such field */
    c->out_bias = c->mlp_bias = false;
    bool slides = false;
    int64_t first = 28;
    c->window = 4096;
    ht_json_bool(r, object, "use_sliding_window", &slides);
    ht_json_i64(r, object, "sliding_window", &c->window);
    ht_json_i64(r, object, "max_window_layers", &first);
    if (!slides) c->window = 0;
    for (int64_t i = 0; i < c->n_layers; i++) c->sliding[i] = slides && i >= first;
}

const ht_family ht_family_qwen2 = {.architecture = "qwen2",
                                   .model_types = {"qwen2"},
                                   .defaults = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .feed_forward = 22016,
                                                .vocab = 151936,
                                                .context = 32768,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 10000,
                                                .activation_field = "hidden_act",
                                                .activation = "silu"},
                                   .read_json = read_qwen2_json,
                                   .layer = layer_places,
                                   .layer_bytes = sizeof(layer),
                                   .forward = forward};
