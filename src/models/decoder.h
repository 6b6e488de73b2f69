/* Decoder layer, its weight tables and forward function, shared by decoder-only families.
 *
 * A family made of these parts is a registry row with weight tables. A family with further parts begins its layer
 * struct with ht_decoder_layer and composes its forward function from the pieces below. */
#ifndef HT_MODELS_DECODER_H
#define HT_MODELS_DECODER_H

#include "checkpoint/family.h"
#include "models/weights.h"

/* Weights of a recurrence; heads, keys and values are those of the scan. */
typedef struct ht_recurrence_weights {
    ht_weight in;          /* what it begins with, in one matrix */
    ht_weight qkv;         /* the convolution's channels: q and k [key_heads * key_dim], v [heads * value_dim] */
    ht_weight gate;        /* [heads * value_dim, hidden], of the output */
    ht_weight decay, rate; /* [heads, hidden]: what decay and rate of the delta rule are computed from */
    /* [key_dim, hidden]: where decay is [heads * key_dim, key_dim] and gate [heads * value_dim, value_dim], their inputs. */
    ht_weight decay_in, gate_in;
    ht_weight rate_decay; /* [2 heads, hidden]: both in one matrix */
    ht_weight out;        /* [hidden, heads * value_dim, or hidden] */
    ht_array *conv;       /* f32 [channels * taps]: weights of the short convolution */
    ht_array *conv_of[3]; /* those of the channels of q, k and v apart, instead of `conv` */
    ht_array *conv_bias;  /* f32 [channels]; NULL: none */
    ht_array *a;          /* f32 [heads]: the decay is exp(a * time step) */
    ht_array *time_bias;  /* f32 [heads], or [heads * key_dim]: added to the time step */
    ht_array *skip;       /* f32 [heads]: share of the input in the output; NULL: none */
    ht_norm_weights norm; /* of the output */
} ht_recurrence_weights;

typedef struct ht_decoder_layer {
    ht_norm_weights attention_norm, mlp_norm; /* pre-norms, f32 [hidden]; none in families with post-norms only */
    ht_norm_weights after_attention_norm, after_mlp_norm; /* post-norms, f32 [hidden] */
    ht_array *sinks;                /* f32 [n_heads]: scores in the softmax without a key; NULL: none */
    ht_norm_weights q_norm, k_norm; /* see ht_head_norm */
    ht_weight qkv;                  /* q, k and v in one matrix, instead of the next three */
    ht_weight q;                    /* [n_heads * head_dim, hidden]; twice as many rows with ht_family.gated_queries */
    ht_weight k, v;                 /* [n_kv_heads * head_dim, hidden] */
    ht_weight attention_gate;       /* [n_heads * head_dim, hidden]: its sigmoid multiplies the attention's output */
    ht_weight out;                  /* [hidden, n_heads * head_dim] */
    ht_weight q_a, kv_a;            /* latent attention: see deepseek.c */
    ht_norm_weights q_a_norm, kv_a_norm;
    ht_experts key_heads, value_heads;
    ht_recurrence_weights recurrence;
    ht_weight gate_up;     /* gate and up in one matrix [2 * feed_forward, hidden] */
    ht_weight gate;        /* [feed_forward, hidden]; absent: activation(up) without a gate */
    ht_weight up;          /* [feed_forward, hidden] */
    ht_weight down;        /* [hidden, feed_forward] */
    ht_weight router;      /* [n_experts, hidden]; layers with experts only */
    ht_array *router_bias; /* f32 [n_experts], of the choice alone */
    ht_experts expert_gate,
        expert_up;          /* [n_experts][expert_feed_forward, hidden or expert_latent]; the gate may be absent */
    ht_experts expert_down; /* [n_experts][hidden or expert_latent, expert_feed_forward] */
    ht_weight latent_in, latent_out;  /* [expert_latent, hidden] and back, around the experts; absent: none */
    ht_weight shared_gate, shared_up; /* [shared_feed_forward, hidden]: the expert of all tokens */
    ht_weight shared_gate_up;         /* gate and up of the shared expert in one matrix */
    ht_weight shared_down;            /* [hidden, shared_feed_forward] */
    ht_weight shared_router;          /* [1, hidden]: its weight is sigmoid(shared_router x) */
} ht_decoder_layer;

/* Classification head of a text encoder: out(norm(activation(dense(x)))), with parts left out. */
typedef struct ht_label_head {
    ht_weight dense; /* [hidden, hidden] */
    ht_norm_weights norm;
    ht_weight out; /* [n_labels, hidden] */
} ht_label_head;

/* Weights of text encoders outside their layers. */
typedef struct ht_encoder_around {
    ht_weight positions;  /* [context, hidden] */
    ht_weight types;      /* [n_token_types, hidden] */
    ht_norm_weights norm; /* of the sum of embeddings */
    ht_label_head head;
} ht_encoder_around;

/* Common fields of registry rows: Llama-like defaults, Gemma defaults, and the shared forward function. */
#define HT_LLAMA_LIKE(name) .activation_field = "hidden_act", .activation = name
#define HT_LLAMA_DEFAULTS   .norm_eps = 1e-6, .rope_theta = 10000, HT_LLAMA_LIKE("silu")
#define HT_LLAMA_SIZES      .n_layers = 32, .hidden = 4096, .n_heads = 32
#define HT_GEMMA_DEFAULTS                                                                                              \
    .hidden = 2304, .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .feed_forward = 9216, .norm_eps = 1e-6,            \
    .tied_head = true, .activation_field = "hidden_activation", .activation = "gelu_pytorch_tanh"
#define HT_LLAMA_RUNS                                                                                                  \
    .activate = ht_silu, HT_DECODER_RUNS,                                                                              \
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs}
#define HT_GEMMA3_THETAS .rope_theta = 1000000, .local_rope_theta = 10000
#define HT_GEMMA_RUNS(...)                                                                                             \
    .activate = ht_gelu_tanh, .scaled_embedding = true,                                                                \
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, __VA_ARGS__}
#define HT_DECODER_RUNS .layer_bytes = sizeof(ht_decoder_layer), .forward = ht_decoder_forward

/* Weight tables for ht_family.layer. Norms: before attention; before the feed-forward; after both; after both and
 * before the feed-forward (Gemma); of q and k, per head or over the whole projection. */
extern const ht_tensor_spec ht_decoder_norm_specs[], ht_decoder_mlp_norm_specs[], ht_decoder_post_norm_specs[],
    ht_decoder_sandwich_norm_specs[], ht_decoder_head_norm_specs[], ht_decoder_whole_head_norm_specs[];
/* Attention: q, k and v apart, or in one matrix. */
extern const ht_tensor_spec ht_decoder_attention_specs[], ht_decoder_qkv_specs[];
/* Feed-forwards: gate, up and down; gate and up in one matrix; without a gate. */
extern const ht_tensor_spec ht_decoder_mlp_specs[], ht_decoder_gate_up_specs[], ht_decoder_ungated_mlp_specs[];
/* Mixtures: the experts; the router named mlp.gate, or block_sparse_moe.gate; the shared expert named
 * mlp.shared_experts. */
extern const ht_tensor_spec ht_decoder_expert_specs[], ht_decoder_router_specs[], ht_decoder_sparse_router_specs[],
    ht_decoder_shared_expert_specs[];
/* The shared expert of Qwen's mixtures, which has a gate. */
extern const ht_tensor_spec ht_decoder_gated_shared_expert_specs[];
/* Layers with experts: every decoder_sparse_step-th, except mlp_only_layers. Reads and writes these fields. */
void ht_decoder_read_sparse_layers(ht_config *c, ht_json_reader *r, const ht_json *object);
void ht_decoder_write_sparse_layers(const ht_config *c, struct ht_document *d);
/* For ht_family.read_json: `attention_bias` is of q, k and v alone. */
void ht_decoder_read_q_bias(ht_config *c, ht_json_reader *r, const ht_json *object);
/* For ht_family.read_json: the temperature of queries, of the later Mistral families. */
void ht_decoder_read_temperature(ht_config *c, ht_json_reader *r, const ht_json *object);
/* Activation relu(x)^2. */
ht_array *ht_decoder_relu_squared(ht_scope *s, ht_array *x);

/* Token embeddings of the step, scaled if the family does so: [T, hidden]. */
ht_array *ht_decoder_embed(ht_ctx *c, const ht_decoder_weights *m);
/* Final norm, output head and logit softcap: h [n_out, hidden] -> [n_out, vocab]. Also handles c->hidden and plain
 * passes for all families. */
ht_array *ht_decoder_head(ht_ctx *c, const ht_decoder_weights *m, ht_array *h);
/* The family's norm over the last axis, RMS or LayerNorm, with the model's epsilon and offset; returns x when there is
 * no such norm. */
ht_array *ht_decoder_norm(ht_ctx *c, const ht_config *config, ht_array *x, const ht_norm_weights *norm);
/* Grouped-query attention with RoPE: x [T, hidden], pos i32 [T] -> [T, hidden]. In layers from ht_unshared_layers on, which
 * share all K and V, x and pos have the output rows only. */
ht_array *ht_decoder_attention(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                               ht_array *x, ht_array *pos);
/* The same by latent attention, which ht_decoder_attention calls in models that have it. */
ht_array *ht_latent_attention(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index, ht_array *x,
                              ht_array *pos);
/* The recurrence of a layer, of the model's kind: x [T, hidden] -> [T, hidden] (recurrence.c). */
ht_array *ht_decoder_recurrence(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                                ht_array *x);
/* Mamba-2, which ht_decoder_recurrence calls (mamba.c). */
ht_array *ht_mamba2(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index, ht_array *x);
/* The same by the gated delta rule (delta.c). */
ht_array *ht_gated_delta(ht_ctx *c, const ht_config *config, const ht_recurrence_weights *w, int index, ht_array *x);
/* The same with a decay for each channel, by the layer's q, k, v and out (kimi.c). */
ht_array *ht_kimi_delta(ht_ctx *c, const ht_config *cfg, const ht_decoder_layer *l, int index, ht_array *x);
/* Key heads of x [T, key_heads * key_dim], each of L2 norm `length`: length * x / sqrt(sum x^2 + 1e-6) -> [T, key_heads,
 * key_dim]. */
ht_array *ht_unit_heads(ht_ctx *c, const ht_recurrence_spec *r, ht_array *x, double length);
/* The short convolution of all channels of a layer's recurrence: x [T, channels] -> [T, channels]. */
ht_array *ht_decoder_convolved(ht_ctx *c, const ht_config *config, const ht_recurrence_weights *w, int index,
                               ht_array *x);
/* Columns [first, first + n) of x [T, *]. */
ht_array *ht_decoder_columns(ht_ctx *c, ht_array *x, int64_t first, int64_t n);
/* RoPE of x [T, n, *] at the positions pos i32 [T], as in layers with or without a sliding window. */
ht_array *ht_decoder_rotated(ht_ctx *c, const ht_decoder_weights *m, bool slides, ht_array *x, ht_array *pos);
/* Queries q [T, n_heads, *] after RoPE, multiplied by the temperature of their position, if the model has one. */
ht_array *ht_decoder_tempered(ht_ctx *c, const ht_config *config, ht_array *q, ht_array *pos);
/* Feed-forward with the family's activation, with or without a gate: x [T, hidden] -> [T, hidden]. */
ht_array *ht_decoder_mlp(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x);
/* Routing by config->routing: logits [T, n_experts] -> ids i32 [T, experts_used] and *weights [T, experts_used].
 * `bias` f32 [n_experts] is added to the scores for the choice; NULL: none. */
ht_array *ht_decoder_route(ht_ctx *c, const ht_config *config, ht_array *logits, ht_array *bias, ht_array **weights);
/* Weighted sum of the chosen experts' feed-forward, with or without a gate: x [T, hidden], ids and weights [T, m] -> [T, hidden]. */
ht_array *ht_decoder_experts(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, ht_array *x,
                             ht_array *ids, ht_array *weights);
/* Predicate for weight tables: layer `layer` has experts. */
bool ht_decoder_has_experts(const ht_config *c, int64_t layer);
/* Predicate: layer `layer` has a dense feed-forward. */
bool ht_decoder_is_dense(const ht_config *c, int64_t layer);
/* Predicate: layer `layer` has experts and a shared one. */
bool ht_decoder_has_shared_expert(const ht_config *c, int64_t layer);
/* Predicates: layer `layer` has attention; it has the recurrence. */
bool ht_decoder_has_attention(const ht_config *c, int64_t layer);
bool ht_decoder_is_recurrent(const ht_config *c, int64_t layer);
/* Predicate: layer `layer` has a feed-forward, dense or of experts. */
bool ht_decoder_has_feed_forward(const ht_config *c, int64_t layer);
/* Predicate: q and k have norms. */
bool ht_decoder_has_head_norms(const ht_config *c, int64_t layer);

/* The output rows of x [T, *]. */
ht_array *ht_decoder_cut(ht_ctx *c, ht_array *x);
/* All layers, then the head: h [T, hidden], pos i32 [T]. The layers are ht_decoder_layer. */
ht_array *ht_decoder_layers(ht_ctx *c, const ht_decoder_weights *m, ht_array *h, ht_array *pos);

/* Embedding, layers, head. `model` is an ht_decoder_weights whose layers are ht_decoder_layer. */
ht_forward_fn ht_decoder_forward;

#endif
