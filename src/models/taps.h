/* Taps: what a step says of its layers beside the logits, for probes. For each output row the sum of squares of the residual stream
 * after each layer, and of layers with experts the chosen ones and their weights, as one row of floats; a second result
 * of a plan of its own (HT_PLAN_TAPS), made of the operations that every device has. */
#ifndef HT_MODELS_TAPS_H
#define HT_MODELS_TAPS_H

#include "checkpoint/config.h"
#include "models/forward.h"

/* Filled while the forward function is traced. */
typedef struct ht_taps {
    int n, room;
    ht_array **array; /* [n] f32 [n_out, columns], in the order in which they are computed */
} ht_taps;

ht_status ht_taps_begin(ht_taps *t, const ht_config *config, ht_error *err);
void ht_taps_free(ht_taps *t);
/* Of the residual stream h [T or n_out, hidden] after a layer; of a router ids i32 and weights f32 [T or n_out, experts_used]. False,
 * with an error in c->s, on failure. */
bool ht_taps_add_stream(ht_ctx *c, ht_array *h);
bool ht_taps_add_route(ht_ctx *c, ht_array *ids, ht_array *weights);
/* All of them, f32 [n_out, ht_taps_width]. */
ht_array *ht_taps_join(ht_ctx *c);

/* Floats of a row. */
int64_t ht_taps_width(const ht_config *config);
/* Reads a row: norms [n_layers]; ids and weights [n_layers, experts_used], of which those of layers without experts stay as they are. */
void ht_taps_read(const ht_config *config, const float *row, float *norm, int32_t *expert, float *weight);

#endif
