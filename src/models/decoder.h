/* Decoder layer, the tables of its weights, and the forward function, shared by decoder-only families.
 *
 * A family whose layers are made of these parts, some of which it may lack, is a row in the registry and the names of its
 * other weights. One with parts of its own begins its layer struct with ht_decoder_layer and writes its forward function
 * with the pieces below. */
#ifndef HT_MODELS_DECODER_H
#define HT_MODELS_DECODER_H

#include "models/registry.h"

typedef struct ht_decoder_layer {
    ht_array *attention_norm, *mlp_norm;             /* f32 [hidden]: of what goes into each half */
    ht_array *after_attention_norm, *after_mlp_norm; /* f32 [hidden]: of what comes out; NULL: the family has none */
    ht_array *q_norm, *k_norm;                       /* f32 [head_dim]; NULL: the family has none */
    ht_weight q;                                     /* [n_heads * head_dim, hidden] */
    ht_weight k, v;                                  /* [n_kv_heads * head_dim, hidden] */
    ht_weight out;                                   /* [hidden, n_heads * head_dim] */
    ht_weight gate, up;                              /* [feed_forward, hidden] */
    ht_weight down;                                  /* [hidden, feed_forward] */
    ht_weight router;                                /* [n_experts, hidden]; a layer that has experts */
    ht_experts expert_gate, expert_up;               /* [n_experts][expert_feed_forward, hidden] */
    ht_experts expert_down;                          /* [n_experts][hidden, expert_feed_forward] */
} ht_decoder_layer;

/* What families' rows have in common: defaults of Llama's descendants and of Gemma's, and of families whose layers are made
 * of these parts alone, how they run. */
#define HT_LLAMA_DEFAULTS .rms_eps = 1e-6, .rope_theta = 10000, .activation_field = "hidden_act", .activation = "silu"
#define HT_GEMMA_DEFAULTS                                                                                              \
    .hidden = 2304, .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .feed_forward = 9216, .rms_eps = 1e-6,             \
    .tied_head = true, .activation_field = "hidden_activation", .activation = "gelu_pytorch_tanh"
#define HT_DECODER_RUNS .layer_bytes = sizeof(ht_decoder_layer), .forward = ht_decoder_forward

/* Tables for ht_family.layer. The norm before attention and its four matrices, and the three matrices of the feed-forward,
 * have the same names in all families, and so have the norms of q and k where there are any; the norm before the
 * feed-forward has this one in Llama and its descendants; Gemma has norms before and after both halves. */
extern const ht_weight_place ht_decoder_attention_places[], ht_decoder_head_norm_places[], ht_decoder_mlp_places[],
    ht_decoder_mlp_norm_places[], ht_decoder_sandwich_norm_places[], ht_decoder_expert_places[];

/* The embeddings of the step's tokens, scaled as the family does: [T, hidden]. */
ht_array *ht_decoder_embed(ht_ctx *c, const ht_decoder *m);
/* The last norm, the head and the cap of logits: h [n_out, hidden] -> [n_out, vocab]. */
ht_array *ht_decoder_head(ht_ctx *c, const ht_decoder *m, ht_array *h);
/* RMS norm over the last axis with the model's epsilon and offset; x itself when `weight` is NULL. */
ht_array *ht_decoder_norm(ht_ctx *c, const ht_config *config, ht_array *x, ht_array *weight);
/* Grouped-query attention with rotary positions, x [T, hidden], pos i32 [T] -> [T, hidden]. Behind the last layer that
 * keeps keys and values (models/kv.h) rows no longer meet: there x and pos have the rows that are asked for alone. */
ht_array *ht_decoder_attention(ht_ctx *c, const ht_decoder *m, const ht_decoder_layer *l, int index, ht_array *x,
                               ht_array *pos);
/* Gated feed-forward with the family's activation, x [T, hidden] -> [T, hidden]. */
ht_array *ht_decoder_mlp(ht_ctx *c, const ht_decoder *m, const ht_decoder_layer *l, ht_array *x);
/* What a router's scores [T, n_experts] choose: ids i32 [T, experts_used] and their weights, of which the softmax of all
 * scores gives the ratios. */
ht_array *ht_decoder_route(ht_ctx *c, const ht_config *config, ht_array *scores, ht_array **weights);
/* The gated feed-forward of the chosen experts, added up by their weights [T, m]: x [T, hidden] -> [T, hidden]. */
ht_array *ht_decoder_experts(ht_ctx *c, const ht_decoder *m, const ht_decoder_layer *l, ht_array *x, ht_array *ids,
                             ht_array *weights);
/* A layer's feed-forward: dense, or of the experts that its router chooses. */
ht_array *ht_decoder_feed_forward(ht_ctx *c, const ht_decoder *m, const ht_decoder_layer *l, int index, ht_array *x);
/* Whether a layer has experts: for tables. */
bool ht_decoder_has_experts(const ht_config *c, int64_t layer);

/* The whole: embedding, layers, head. Given an ht_decoder whose layers are ht_decoder_layer. */
ht_forward_fn ht_decoder_forward;

#endif
