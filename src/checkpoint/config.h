/* Model configuration: config.json or GGUF metadata in one form, all defaults filled in, all numbers checked. */
#ifndef HT_CHECKPOINT_CONFIG_H
#define HT_CHECKPOINT_CONFIG_H

#include "checkpoint/rope.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HT_MAX_LAYERS = 1024, HT_MAX_EOS = 32 };

typedef struct ht_family ht_family; /* family.h */

/* Settings that may differ between layers. */
typedef struct ht_layer_config {
    bool slides;  /* sliding window: attends to the last `window` keys */
    bool chunked; /* of a layer that slides: attends to its chunk of `window` positions instead (device/window.h) */
    bool no_rope; /* queries and keys are not rotated */
    int64_t n_kv_heads, head_dim;
    int64_t feed_forward; /* of the dense one; 0: none */
    bool no_attention;    /* the layer has a recurrence or a feed-forward alone, and no K and V: n_kv_heads is 0 */
    bool recurrent;       /* it has ht_config.recurrence, with or without attention */
    int64_t kv_layer;     /* layer whose K and V it attends to: itself, or the earlier layer it shares them with */
    bool v_is_k;          /* values are the k projection's output, before norm and RoPE */
    bool has_experts;     /* in addition to the dense feed-forward, or instead of it when feed_forward is 0 */
    /* Gates of the feed-forward lose their mean and `cutoff` of their standard deviations, and are 0 below that. */
    bool is_sparse;
    float cutoff;
} ht_layer_config;

/* How a router's scores choose experts and weight them. */
typedef enum ht_router_scores {
    HT_ROUTER_SOFTMAX,        /* over all experts */
    HT_ROUTER_SIGMOID,        /* of each expert */
    HT_ROUTER_CHOSEN_SOFTMAX, /* over the chosen experts */
    HT_ROUTER_CHOSEN_SIGMOID, /* of the chosen experts, which have the highest logits */
    HT_ROUTER_SPARSE_MIXER    /* two experts; the weight of each is a softmax over the logits near its own */
} ht_router_scores;

typedef struct ht_routing {
    ht_router_scores scores;
    bool normalized;     /* the weights of the chosen experts are divided by their sum */
    float least_sum;     /* which this is added to */
    bool unbiased;       /* the choice adds no bias to the scores, in families where that is optional */
    bool on_input;       /* an expert's input is multiplied by its weight, else its output */
    float scale;         /* factor on the weights; 0 means 1 */
    float shared_scale;  /* factor on the sum of the experts and the shared one; 0 means 1 */
    float jitter;        /* sparse mixer: half the relative distance within which logits are near */
    int64_t groups;      /* equal groups of consecutive experts, of which `groups_used` are eligible; 0: no groups */
    int64_t groups_used; /* by the sum of each group's two best scores, */
    bool best_of_group;  /* or by its best score */
} ht_routing;

/* Latent attention: K and V of all heads are projections of one latent vector per token. The cache keeps that and the
 * rotated values that all heads' keys share, as one key of rank + rope_dim values, of which the latent is the value. */
typedef struct ht_latent {
    int64_t rank;   /* of the latent vector; 0: no latent attention */
    int64_t q_rank; /* of the latent vector of q; 0: q is projected from the residual stream */
    /* Sizes of a head: the part of q and k that is not rotated, the part that is, and v. */
    int64_t key_dim, rope_dim, value_dim;
} ht_latent;
/* Rows of a head in the projection of latents to keys and values: those of its key, then those of its value. */
static inline int64_t ht_latent_head_rows(const ht_latent *l) { return l->key_dim + l->value_dim; }

/* AltUp: layers compute one of several residual streams and predict the others. */
typedef struct ht_altup {
    int64_t streams;     /* 0: no AltUp */
    int64_t active;      /* the stream that layers compute */
    bool unscaled;       /* what the per-layer input is made of is not scaled by a vector */
    int64_t laurel_rank; /* of the learned residual layer, parallel to attention */
} ht_altup;

/* Segments of the input projection's rows in Mamba-2: gate z, input x, B and C, which are k and q of the scan, and time
 * steps. */
enum { HT_SSM_Z, HT_SSM_X, HT_SSM_B, HT_SSM_C, HT_SSM_DT, HT_SSM_SEGMENTS };

/* How a recurrent layer carries information from position to position. */
typedef enum ht_recurrence_kind {
    HT_RECURRENCE_NONE,
    HT_RECURRENCE_CONV,  /* a short convolution between two gates */
    HT_RECURRENCE_DELTA, /* the delta rule with a decay for each head */
    HT_RECURRENCE_KDA,   /* the delta rule with a decay for each channel of the key */
    HT_RECURRENCE_SSM    /* Mamba-2: a state space model with a decay for each head */
} ht_recurrence_kind;

/* The recurrence of all recurrent layers: a short convolution of several channels, and a scan with a state [key_dim,
 * value_dim] for each of its heads (STATE_SCAN in device/params.h). */
typedef struct ht_recurrence_spec {
    ht_recurrence_kind kind;
    int64_t taps;             /* inputs of the convolution, the current one included */
    int64_t key_heads, heads; /* of the scan; none for a convolution alone */
    int64_t key_dim, value_dim;
    bool joined;           /* queries, keys, values and gates are one matrix in the GGUF file; Qwen3-Next */
    bool conv_bias;        /* of the convolution; Mamba-2 */
    bool normed;           /* its output, multiplied by its gate, has an RMS norm of each key head's values; Mamba-2 */
    bool norm_before_gate; /* the norm is of the output alone, before that product */
} ht_recurrence_spec;

/* Factors on the products of matrices, of Falcon-H1: on all of x W^T, an adapter's part included. 1 in other families,
 * and in GGUF files, whose weights contain them. */
typedef struct ht_multipliers {
    float attention_in, key, attention_out; /* of q, k and v; of k in addition; of the output */
    float gate, down;                       /* of the feed-forward */
    float ssm_in, ssm_out;
    float ssm[HT_SSM_SEGMENTS]; /* of the segments of ssm_in's rows, in addition */
} ht_multipliers;

typedef struct ht_config {
    const ht_family *family;
    char name[128];        /* the checkpoint's model name, or "" */
    char architecture[64]; /* general.architecture of a GGUF file, which may be an alias of the family's; or "" */

    int64_t n_layers, hidden, n_heads;
    int64_t n_kv_heads, head_dim, feed_forward; /* of most layers; `layer` is authoritative */
    int64_t vocab;                              /* embedding rows */
    int64_t context;                            /* trained context length in positions */
    bool layer_norm;                            /* norms subtract the mean (LayerNorm), else they are RMS norms */
    float norm_eps;
    float norm_offset;       /* the gain of a norm is norm_offset + weight */
    float attention_scale;   /* factor on q.k */
    float attention_softcap; /* tanh cap of scaled q.k; 0: none */
    float final_softcap;     /* tanh cap of the logits; 0: none */
    float embedding_scale;   /* factor on embeddings; 1: none */
    float residual_scale;    /* factor on what attention and feed-forward add to the residual stream; 1: none */
    float logit_scale;       /* factor on the logits; 1: none */
    /* Query temperature: queries are multiplied by 1 + query_beta * ln(1 + floor((position + query_shift) /
     * query_period)) after RoPE; query_beta 0: none. With query_shift only on layers without RoPE (Llama 4). */
    float query_beta;
    int64_t query_period, query_shift;

    bool q_bias, out_bias, mlp_bias; /* of q, k, v; of the attention output; of the MLP */
    bool norm_bias, head_bias;       /* of the norms; of the output head */
    bool head_norms;                 /* q and k have norms, in families where that is optional */
    bool silu;                       /* the feed-forward has SiLU instead of the family's activation */
    bool fused_gate_up;              /* gate and up are one matrix, in families where the checkpoint decides */
    bool parallel;                   /* attention and feed-forward read the same residual stream */
    bool tied_head;                  /* the output head is the embedding */
    /* A text encoder: tokens attend to both sides, within window / 2 in layers that slide. It has neither a cache nor an
     * output head. */
    bool two_sided;
    int64_t n_token_types;   /* rows of the table of token types; 0: no such table */
    int64_t n_labels;        /* scores of its classification head; 0: no such head */
    bool label_mean;         /* the head reads the mean over all tokens, else the first token's hidden state */
    int64_t position_offset; /* rows of the table of positions that are stored before the first position's */
    /* The checkpoint is a GGUF file, in which some weights of some families have another order of rows or columns
     * (ht_heads_rule), or are parts of a matrix (ht_part_rule). */
    bool is_gguf;
    bool is_of_mlx; /* it is a directory of mlx-lm (ht_config_hints) */

    int64_t window;          /* sliding window in keys; 0: no sliding layers */
    ht_rope_spec rope;       /* of full-attention layers; of all without local_rope */
    ht_rope_spec local_rope; /* of sliding layers, if has_local_rope */
    bool has_local_rope;
    ht_layer_config layer[HT_MAX_LAYERS];

    /* Experts per layer with experts; n_experts == 0: dense model. */
    int64_t n_experts, experts_used, expert_feed_forward;
    int64_t shared_feed_forward; /* of the expert that every token uses; 0: none */
    int64_t expert_latent; /* size of the vectors between two projections on which experts work; 0: the hidden size */
    ht_routing routing;

    ht_latent latent;
    ht_recurrence_spec recurrence;
    ht_multipliers multipliers;

    ht_altup altup;

    /* Per-layer inputs of Gemma 3n and 4: each layer adds a projection of its slice of a second embedding. */
    int64_t layer_input; /* width per layer; 0: none */
    int64_t layer_input_vocab;

    /* Pooling of embeddings that the checkpoint states: "last", "mean", "cls", or one that is not supported; "rank":
     * a classifier pools instead, as in text encoders with a head that state none; "": none. A constant. */
    const char *pooling;

    int32_t eos[HT_MAX_EOS]; /* EOS ids from the files */
    int n_eos;
} ht_config;

/* Channels of the convolution: q, k and v of the scan, or the hidden size. */
int64_t ht_conv_channels(const ht_config *c);
/* Rows of segment `segment` of Mamba-2's input projection; and of those before it. */
int64_t ht_ssm_rows(const ht_config *c, int segment);
int64_t ht_ssm_rows_before(const ht_config *c, int segment);
/* Values of a state: the convolution's last taps - 1 inputs, and the scan's matrices. */
int64_t ht_state_values(const ht_config *c);

/* Facts from a checkpoint's tensors that config.json may omit. */
typedef struct ht_config_hints {
    bool has_tensors;    /* false: no tensors known, ignore the fields below */
    bool has_q_norm;     /* layer 0 */
    bool has_q_bias;     /* layer 0 */
    bool has_more_norms; /* layer 0: Gemma's norms around the feed-forward */
    bool has_gate;       /* layer 0: mlp.gate_proj, apart from mlp.up_proj */
    bool has_head;       /* lm_head.weight exists */
    int64_t n_labels;    /* rows of the matrix that ends a classification head; 0: none */
    bool is_of_mlx;      /* the directory is mlx-lm's, whose weights contain norm offsets and multipliers */
    int64_t q_rows;      /* rows of layer 0's q_proj; 0: unknown */
} ht_config_hints;

typedef struct ht_json_text { /* contents of a JSON file; data NULL: no file */
    const char *data;
    size_t size;
} ht_json_text;

/* Parses config.json and an optional generation_config.json. Pure function. */
ht_status ht_config_from_json(ht_json_text config, ht_json_text generation, const ht_config_hints *hints,
                              ht_config *out, ht_error *err);

/* Adds the EOS ids of a config.json or generation_config.json, named `file`, that are below c->vocab. */
ht_status ht_config_eos_read(ht_json_text text, const char *file, ht_config *c, ht_error *err);

struct ht_gguf;
/* Parses GGUF metadata; `file` is used in messages. */
ht_status ht_config_from_gguf(const struct ht_gguf *g, const char *file, ht_config *out, ht_error *err);

/* Final range and ratio checks of both parsers; `file` is used in messages. */
ht_status ht_config_check(const ht_config *c, const char *file, ht_error *err);

/* Adds an EOS id once, ignoring ids outside the vocabulary. False when the list is full. */
bool ht_config_add_eos(ht_config *c, int64_t id);

enum { HT_CONFIG_DIFFERENCE = 192 }; /* bytes */
/* Describes the first setting of `a` with another effect than in `b`, as in "queries have no bias": "" when both
 * compute the same. Names and EOS ids do not count. Returns `text`. */
const char *ht_config_difference(const ht_config *a, const ht_config *b, char text[HT_CONFIG_DIFFERENCE]);

typedef struct ht_config_field ht_config_field; /* family.h */
/* Sets the family's constants and the defaults of optional parts; c->family and the sizes are known. */
void ht_config_begin(ht_config *c);
void ht_config_set_field(ht_config *c, const ht_config_field *f, double value);
double ht_config_get_field(const ht_config *c, const ht_config_field *f); /* as in the files */
/* The family's row of the value at `offset` in ht_config; NULL: none. */
const ht_config_field *ht_config_field_of(const ht_family *f, size_t offset);

/* Initialises every layer from the model-wide fields, with its own K and V. */
void ht_config_fill_layers(ht_config *c);
/* Takes a layer's attention away; gives it the recurrence instead. */
void ht_config_remove_attention(ht_config *c, int64_t layer);
void ht_config_make_recurrent(ht_config *c, int64_t layer);
/* Call when all layers are known: a model without recurrent ones has no recurrence. */
void ht_config_end(ht_config *c);
/* Whether a multiplier is not 1. */
bool ht_config_has_multipliers(const ht_config *c);
/* Sets all multipliers to 1. */
void ht_multipliers_clear(ht_multipliers *m);
bool ht_multipliers_equal(const ht_multipliers *a, const ht_multipliers *b);
enum { HT_MULTIPLIERS_TEXT = 256 }; /* bytes */
/* Writes all multipliers as numbers with spaces between them, and reads them; false: the text is another one. */
void ht_multipliers_to_text(const ht_multipliers *m, char text[HT_MULTIPLIERS_TEXT]);
bool ht_multipliers_from_text(const char *text, ht_multipliers *out);
/* Head size of the layers with or without a sliding window; of the first layer when there are none. */
int64_t ht_config_head_dim(const ht_config *c, bool slides);
/* Makes the last n layers share K and V of the last unshared layer of their type (sliding or full). False if it is
 * missing. */
bool ht_config_share_keys(ht_config *c, int64_t n);
/* Number of layers before the first with experts. */
int64_t ht_config_leading_dense(const ht_config *c);
/* Marks all layers with attention but every pattern-th layer as sliding, when there is a window. */
void ht_config_slide_by_pattern(ht_config *c, int64_t pattern);

#endif
