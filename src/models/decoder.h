/* Decoder layer, its weight tables and forward function, shared by decoder-only families.
 *
 * A family made of these parts is a registry row with weight tables. A family with further parts begins its layer
 * struct with ht_decoder_layer and composes its forward function from the pieces below. */
#ifndef HT_MODELS_DECODER_H
#define HT_MODELS_DECODER_H

#include "models/weights.h"

typedef struct ht_decoder_layer {
    ht_array *attention_norm, *mlp_norm;             /* pre-norms, f32 [hidden] */
    ht_array *after_attention_norm, *after_mlp_norm; /* post-norms, f32 [hidden]; NULL: the family has none */
    ht_array *q_norm, *k_norm;                       /* f32 [head_dim]; NULL: the family has none */
    ht_weight q;                                     /* [n_heads * head_dim, hidden] */
    ht_weight k, v;                                  /* [n_kv_heads * head_dim, hidden] */
    ht_weight out;                                   /* [hidden, n_heads * head_dim] */
    ht_weight gate, up;                              /* [feed_forward, hidden] */
    ht_weight down;                                  /* [hidden, feed_forward] */
    ht_weight router;                                /* [n_experts, hidden]; layers with experts only */
    ht_experts expert_gate, expert_up;               /* [n_experts][expert_feed_forward, hidden] */
    ht_experts expert_down;                          /* [n_experts][hidden, expert_feed_forward] */
} ht_decoder_layer;

/* Common fields of registry rows: Llama-like defaults, Gemma defaults, and the shared forward function. */
#define HT_LLAMA_DEFAULTS .rms_eps = 1e-6, .rope_theta = 10000, .activation_field = "hidden_act", .activation = "silu"
#define HT_LLAMA_SIZES    .n_layers = 32, .hidden = 4096, .n_heads = 32
#define HT_GEMMA_DEFAULTS                                                                                              \
    .hidden = 2304, .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .feed_forward = 9216, .rms_eps = 1e-6,             \
    .tied_head = true, .activation_field = "hidden_activation", .activation = "gelu_pytorch_tanh"
#define HT_LLAMA_RUNS                                                                                                  \
    .activate = ht_silu, .layer = {ht_decoder_attention_specs, ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs},       \
    HT_DECODER_RUNS
#define HT_GEMMA3_THETAS .rope_theta = 1000000, .local_rope_theta = 10000
#define HT_GEMMA_RUNS(...)                                                                                             \
    .activate = ht_gelu_tanh, .scaled_embedding = true, .layer = {ht_decoder_attention_specs, __VA_ARGS__}
#define HT_DECODER_RUNS .layer_bytes = sizeof(ht_decoder_layer), .forward = ht_decoder_forward

/* Weight tables for ht_family.layer: attention norm and projections; q and k norms; feed-forward matrices; the
 * feed-forward norm of Llama-like families; Gemma's four norms. */
extern const ht_tensor_spec ht_decoder_attention_specs[], ht_decoder_head_norm_specs[], ht_decoder_mlp_specs[],
    ht_decoder_mlp_norm_specs[], ht_decoder_sandwich_norm_specs[], ht_decoder_expert_specs[];

/* Token embeddings of the step, scaled if the family does so: [T, hidden]. */
ht_array *ht_decoder_embed(ht_ctx *c, const ht_decoder_weights *m);
/* Final norm, output head and logit softcap: h [n_out, hidden] -> [n_out, vocab]. Also handles c->hidden and plain
 * passes for all families. */
ht_array *ht_decoder_head(ht_ctx *c, const ht_decoder_weights *m, ht_array *h);
/* RMS norm over the last axis with the model's epsilon and offset; returns x when `weight` is NULL. */
ht_array *ht_decoder_norm(ht_ctx *c, const ht_config *config, ht_array *x, ht_array *weight);
/* Grouped-query attention with RoPE: x [T, hidden], pos i32 [T] -> [T, hidden]. In layers beyond ht_kv_layers, which
 * share all K and V, x and pos have the output rows only. */
ht_array *ht_decoder_attention(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                               ht_array *x, ht_array *pos);
/* Gated feed-forward with the family's activation, x [T, hidden] -> [T, hidden]. */
ht_array *ht_decoder_mlp(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x);
/* Top-k routing: scores [T, n_experts] -> ids i32 [T, experts_used] and *weights [T, experts_used], the softmax over
 * all experts at those ids, normalised if config->scaled_routing. */
ht_array *ht_decoder_route(ht_ctx *c, const ht_config *config, ht_array *scores, ht_array **weights);
/* Weighted sum of the chosen experts' gated feed-forward: x [T, hidden], ids and weights [T, m] -> [T, hidden]. */
ht_array *ht_decoder_experts(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x,
                             ht_array *ids, ht_array *weights);
/* Predicate for weight tables: layer `layer` has experts. */
bool ht_decoder_has_experts(const ht_config *c, int64_t layer);

/* Embedding, layers, head. `model` is an ht_decoder_weights whose layers are ht_decoder_layer. */
ht_forward_fn ht_decoder_forward;

#endif
