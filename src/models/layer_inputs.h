/* Per-layer inputs of Gemma 3n and 4: every layer adds a projection of its slice of the token's second embedding. Layers from
 * ht_unshared_layers on, which share the keys of earlier ones, compute output rows alone. */
#ifndef HT_MODELS_LAYER_INPUTS_H
#define HT_MODELS_LAYER_INPUTS_H

#include "models/decoder.h"

/* Begins the layer struct of a family with these inputs. */
typedef struct ht_input_layer {
    ht_decoder_layer base;
    ht_weight input_gate;             /* [layer_input, hidden] */
    ht_weight input_projection;       /* [hidden, layer_input] */
    ht_norm_weights after_input_norm; /* f32 [hidden] */
} ht_input_layer;

/* Begins its struct of weights outside the layers. */
typedef struct ht_input_tables {
    ht_weight inputs;            /* [layer_input_vocab, n_layers * layer_input]: per-token embedding of all layers */
    ht_weight inputs_projection; /* [n_layers * layer_input, hidden]: applied to the token embedding */
    ht_norm_weights inputs_norm; /* f32 [layer_input] */
} ht_input_tables;

/* Predicate for weight tables: the model has these inputs. */
bool ht_has_layer_inputs(const ht_config *c, int64_t layer);

extern const ht_tensor_spec ht_layer_input_specs[];
/* Rows of a family's table for the beginning of its struct. */
#define HT_INPUT_TABLE_SPECS                                                                                           \
    {offsetof(ht_input_tables, inputs),                                                                                \
     "embed_tokens_per_layer",                                                                                         \
     "per_layer_token_embd",                                                                                           \
     HT_EXTENT_LAYER_INPUT_VOCAB,                                                                                      \
     HT_EXTENT_LAYER_INPUTS,                                                                                           \
     .has = ht_has_layer_inputs,                                                                                       \
     .looked_up = true},                                                                                               \
        {offsetof(ht_input_tables, inputs_projection),                                                                 \
         "per_layer_model_projection",                                                                                 \
         "per_layer_model_proj",                                                                                       \
         HT_EXTENT_LAYER_INPUTS,                                                                                       \
         HT_EXTENT_HIDDEN,                                                                                             \
         .has = ht_has_layer_inputs},                                                                                  \
    {                                                                                                                  \
        offsetof(ht_input_tables, inputs_norm), "per_layer_projection_norm", "per_layer_proj_norm",                    \
            .rows = HT_EXTENT_LAYER_INPUT, .has = ht_has_layer_inputs                                                  \
    }

/* The term that layer l adds: h [T, hidden] and its input [T, layer_input]: [T, hidden]. */
ht_array *ht_layer_input_term(ht_ctx *c, const ht_decoder_weights *m, const ht_input_layer *l, ht_array *h,
                              ht_array *input);
/* Calls `layer` for all layers, with in[0]: h [T, *], in[1]: i32 [T] positions, and in[2], if the model has inputs: the layer's
 * [T, layer_input], made of the token embeddings. Layer ht_unshared_layers - 1 has to return output rows. */
ht_array *ht_input_layers(ht_ctx *c, const ht_decoder_weights *m, ht_layer_fn *layer, ht_array *h,
                          ht_array *embeddings);
/* The output rows of x. */
ht_array *ht_input_cut(ht_ctx *c, ht_array *x);

#endif
