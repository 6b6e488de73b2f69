/* Model configuration: config.json or GGUF metadata in one form, with every default filled in and every number checked.
 * Which file it came from is not visible any more. */
#ifndef HT_MODELS_CONFIG_H
#define HT_MODELS_CONFIG_H

#include "models/rope.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HT_MAX_LAYERS = 1024, HT_MAX_EOS = 32 };

typedef struct ht_family ht_family; /* registry.h */

/* What may differ from layer to layer. */
typedef struct ht_layer_config {
    bool slides; /* sees the last `window` keys alone */
    int64_t n_kv_heads, head_dim, feed_forward;
    int64_t kv_layer; /* whose keys and values it attends to: its own, or an earlier layer's that it shares */
    bool v_is_k;      /* values are what the k projection gives */
    bool has_experts; /* a feed-forward of experts: beside the dense one, or in its place when feed_forward is 0 */
} ht_layer_config;

typedef struct ht_config {
    const ht_family *family;
    char name[128]; /* the file's own name for the model, or "" */

    int64_t n_layers, hidden, n_heads;
    int64_t n_kv_heads, head_dim, feed_forward; /* of most layers: `layer` has the last word */
    int64_t vocab;                              /* rows of the embedding */
    int64_t context;                            /* positions the model was trained for */
    float rms_eps;
    float norm_offset;       /* norms multiply by norm_offset + weight */
    float attention_scale;   /* on q.k */
    float attention_softcap; /* of scaled q.k; 0: none */
    float final_softcap;     /* of the logits; 0: none */

    bool q_bias, out_bias, mlp_bias; /* of the q, k and v projections; of the attention output; of the MLP */
    bool tied_head;                  /* the head is the embedding */
    /* Rows of q and k are stored for interleaved RoPE (a GGUF's llama); they are put back while packing. */
    bool interleaved_rows;

    int64_t window;          /* keys a sliding layer sees; 0: no layer slides */
    ht_rope_spec rope;       /* of the layers that see everything */
    ht_rope_spec local_rope; /* of the sliding layers, in families that give them their own */
    ht_layer_config layer[HT_MAX_LAYERS];

    /* Of the layers that have experts; n_experts == 0: none has. */
    int64_t n_experts, experts_used, expert_feed_forward;
    bool scaled_routing; /* the weights of the chosen experts are made to add up to 1 */

    /* Gemma 4's inputs per layer: every layer adds a projection of its own part of a second embedding. */
    int64_t layer_input; /* values per layer; 0: none */
    int64_t layer_input_vocab;

    int32_t eos[HT_MAX_EOS]; /* ids that end the output, as the files say */
    int n_eos;
} ht_config;

/* What the tensors of a checkpoint tell that a config.json may leave open. */
typedef struct ht_config_hints {
    bool has_tensors;    /* false: nothing below is known */
    bool has_q_norm;     /* layer 0 */
    bool has_q_bias;     /* layer 0 */
    bool has_more_norms; /* layer 0: those that Gemma has around its feed-forward */
    bool has_head;       /* lm_head.weight exists */
    int64_t q_rows;      /* of layer 0's q_proj */
} ht_config_hints;

typedef struct ht_json_text { /* a JSON file's bytes; data NULL: no such file */
    const char *data;
    size_t size;
} ht_json_text;

/* From config.json and, when there is one, generation_config.json. A pure function of its arguments. */
ht_status ht_config_from_json(ht_json_text config, ht_json_text generation, const ht_config_hints *hints,
                              ht_config *out, ht_error *err);

/* Adds the ids that end the output, as a config.json or generation_config.json (`file`) lists them. */
ht_status ht_config_eos_from_json(ht_json_text text, const char *file, ht_config *c, ht_error *err);

struct ht_gguf;
/* From a GGUF file's metadata; `file` is its name for messages. */
ht_status ht_config_from_gguf(const struct ht_gguf *g, const char *file, ht_config *out, ht_error *err);

/* The part both readers end with: ranges and ratios. `file` is named in messages. */
ht_status ht_config_check(const ht_config *c, const char *file, ht_error *err);

/* Adds an id of the vocabulary once, and leaves others out. False when the list is full. */
bool ht_config_add_eos(ht_config *c, int64_t id);

/* Gives every layer what most layers have, and keys and values of its own. */
void ht_config_fill_layers(ht_config *c);
/* Which layers slide: all but every pattern-th, when there is a window. */
void ht_config_slide_by_pattern(ht_config *c, int64_t pattern);

#endif
