/* Pieces that decoder-only families share when they write their forward functions. */
#ifndef HT_MODELS_DECODER_H
#define HT_MODELS_DECODER_H

#include "models/registry.h"

/* x [T, n * head_dim] -> [T, n, head_dim] */
static inline ht_array *ht_split_heads(ht_ctx *c, ht_array *x, int64_t n, int64_t head_dim) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n, head_dim}, 3);
}

/* x [T, n, head_dim] -> [T, n * head_dim] */
static inline ht_array *ht_merge_heads(ht_ctx *c, ht_array *x, int64_t n, int64_t head_dim) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n * head_dim}, 2);
}

#endif
