/* Taps: statistics of the layers, for probes. Each output row has one row of floats: the residual stream's sum of
 * squares after each layer, and the chosen experts with their weights. They are the second result of a separate plan
 * (HT_PLAN_TAPS), made of operations that every device has. */
#ifndef HT_MODELS_TAPS_H
#define HT_MODELS_TAPS_H

#include "checkpoint/config.h"
#include "models/forward.h"

/* Filled while the forward function is traced. */
typedef struct ht_taps {
    int n, room;
    ht_array **array; /* [n] f32 [n_out, columns], in order of computation */
} ht_taps;

ht_status ht_taps_begin(ht_taps *t, const ht_config *config, ht_error *err);
void ht_taps_free(ht_taps *t);
/* Add the residual stream h [T or n_out, hidden] after a layer, or a router's choice [T or n_out, experts_used], ids
 * i32 and weights f32. False, with an error in c->s, on failure. */
bool ht_taps_add_stream(ht_ctx *c, ht_array *h);
bool ht_taps_add_route(ht_ctx *c, ht_array *ids, ht_array *weights);
/* Joins all taps -> f32 [n_out, ht_taps_width]. */
ht_array *ht_taps_join(ht_ctx *c);

/* Floats in a row. */
int64_t ht_taps_width(const ht_config *config);
/* Reads a row: norms [n_layers]; ids and weights [n_layers, experts_used], unchanged for layers without experts. */
void ht_taps_read(const ht_config *config, const float *row, float *norm, int32_t *expert, float *weight);

#endif
