/* Codebook types, whose bits are laid out for a table of values rather than for arithmetic: a group of 32 weights is
 * unpacked to integers at a time, which everything else starts from. */
#ifndef HT_FORMATS_CODEBOOK_H
#define HT_FORMATS_CODEBOOK_H

#include "formats/weight_type.h"

/* Weight i is scale[halves == 2 ? i / 16 : 0] * (q[i] - bias), exactly. */
typedef struct ht_codebook_group {
    uint8_t q[32]; /* at most 2 * bias */
    float scale[2];
} ht_codebook_group;

typedef struct ht_codebook_fn {
    /* Group g of the block. */
    void (*unpack)(const void *block, int g, ht_codebook_group *out);
    int bias, halves;
} ht_codebook_fn;

/* NULL for the other types. */
const ht_codebook_fn *ht_codebook_of(ht_weight_type type);

#endif
