/* Inspection internals: what is kept of a pass, and the pass itself. */
#ifndef HT_ANALYSIS_INSPECT_H
#define HT_ANALYSIS_INSPECT_H

#include "device/lora.h"
#include "models/model.h"

#include <hearth/inspect.h>

/* Rows of a step: the intermediate values of so many are in memory at once. */
enum { HT_INSPECT_ROWS = 256 };

/* Arrays of a layer, NULL where they are not wanted. */
typedef struct ht_inspected_values {
    float *k, *v;     /* [n_kv_heads, n_tokens, head_dim]; of the layer that owns them */
    float *q;         /* [n_heads, n_tokens, head_dim] */
    float *attention; /* [n_heads, n_tokens, n_tokens], zeros before the pass */
} ht_inspected_values;

/* The public struct, with all that it lends. */
typedef struct ht_inspection_data {
    ht_inspection public;
    ht_inspected_layer *layer;   /* [n_layers] */
    ht_inspected_values *values; /* [n_layers] */
    int32_t *token;              /* [n_tokens] */
} ht_inspection_data;

/* Runs the prompt through the model up to layer `last`, and fills the arrays of `into`. `lora` is NULL without adapters. */
ht_status ht_inspect_pass(const ht_model *m, const ht_lora_set *lora, int last, const ht_inspect_options *o,
                          ht_inspection_data *into, ht_error *err);

#endif
