/* Pooling: the hidden states of a text's tokens as one vector, and the dense layers after it. In double and in the
 * order of positions, so that batching changes no bits. */
#ifndef HT_GENERATE_POOLING_H
#define HT_GENERATE_POOLING_H

#include "checkpoint/modules.h"

#include <hearth/embed.h>

/* The pooling of a name in ht_config.pooling; HT_POOLING_MODEL: it is not supported. "" means HT_POOLING_LAST. */
ht_pooling ht_pooling_named(const char *name);

/* A text that is pooled. Zero-initialised but for the first four; one thread at a time. */
typedef struct ht_pooling_state {
    ht_pooling pooling; /* none of HT_POOLING_NONE and HT_POOLING_MODEL */
    int32_t hidden;
    int64_t n;       /* tokens */
    int64_t skipped; /* tokens at the beginning, of a prompt, that all poolings but the last leave out; fewer than n */
    double *value;   /* [hidden] so far; NULL: no state has been added, or memory ran out */
} ht_pooling_state;

/* The first position whose state counts; the later ones are added, too. */
int64_t ht_pooling_first(const ht_pooling_state *p);
/* Adds the state f32 [hidden] of a position; in order. */
void ht_pooling_add(ht_pooling_state *p, const float *state, int64_t position);
/* Call after the last one; p->value is then the vector. */
void ht_pooling_end(ht_pooling_state *p);
void ht_pooling_free(ht_pooling_state *p);

/* Width of the last layer; `hidden` without layers. */
int64_t ht_dense_width(const ht_dense_stack *s, int64_t hidden);
/* Replaces *x [n_in of the first layer], from malloc, by the output [ht_dense_width]. False when memory ran out. */
bool ht_dense_apply(const ht_dense_stack *s, double **x);

#endif
