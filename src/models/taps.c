#include "models/taps.h"

#include "array/array.h"
#include "array/symbol.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

enum { OF_LAYER = 3 }; /* arrays at most */

ht_status ht_taps_begin(ht_taps *t, const ht_config *config, ht_error *err) {
    const size_t room = (size_t)config->n_layers * OF_LAYER;
    *t = (ht_taps){.array = calloc(room, sizeof(ht_array *)), .room = (int)room};
    return t->array ? HT_OK : ht_fail_memory(err, room * sizeof *t->array, "the taps of a plan");
}

void ht_taps_free(ht_taps *t) {
    free(t->array);
    *t = (ht_taps){0};
}

/* The output rows of x. After the last layer with keys, x holds only output rows. */
static ht_array *output_rows(ht_ctx *c, ht_array *x) {
    return !x || ht_array_dim(x, 0) == HT_SYM_OUT ? x : ht_take(c->s, x, ht_batch_out_rows(c), 0);
}

static bool add(ht_ctx *c, ht_array *x) {
    ht_taps *t = c->taps;
    if (x && t->n == t->room)
        x = ht_scope_fail(c->s, HT_ERR_INTERNAL, "a forward function with more layers than it has");
    if (x) t->array[t->n++] = x;
    return x != NULL;
}

bool ht_taps_add_stream(ht_ctx *c, ht_array *h) {
    h = output_rows(c, h);
    return add(c, ht_sum(c->s, ht_multiply(c->s, h, h), (int[]){-1}, 1, true));
}

bool ht_taps_add_route(ht_ctx *c, ht_array *ids, ht_array *weights) {
    return add(c, ht_astype(c->s, output_rows(c, ids), HT_F32)) && add(c, output_rows(c, weights));
}

/* The last layer's taps come first: an operation's inputs are computed from the last one on
 * (array/topological_order.h), and results of the first layers must not wait for the others. */
ht_array *ht_taps_join(ht_ctx *c) {
    ht_taps *t = c->taps;
    for (int i = 0, j = t->n - 1; i < j; i++, j--) {
        ht_array *first = t->array[i];
        t->array[i] = t->array[j];
        t->array[j] = first;
    }
    return ht_concatenate(c->s, t->array, t->n, 1);
}

int64_t ht_taps_width(const ht_config *config) {
    int64_t width = 0;
    for (int64_t l = 0; l < config->n_layers; l++)
        width += 1 + (config->layer[l].has_experts ? 2 * config->experts_used : 0);
    return width;
}

void ht_taps_read(const ht_config *config, const float *row, float *norm, int32_t *expert, float *weight) {
    const int64_t m = config->experts_used;
    const float *at = row + ht_taps_width(config);
    for (int64_t l = 0; l < config->n_layers; l++) {
        if (config->layer[l].has_experts) {
            at -= m;
            for (int64_t k = 0; k < m; k++) expert[l * m + k] = (int32_t)at[k];
            at -= m;
            for (int64_t k = 0; k < m; k++) weight[l * m + k] = at[k];
        }
        norm[l] = sqrtf(*--at);
    }
}
