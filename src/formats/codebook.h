/* Codebook types (IQ1 to IQ3) and digit or sign types (TQ1, Q1): a group of 32 weights is unpacked to integers, the
 * common input of dequantisation and packing. */
#ifndef HT_FORMATS_CODEBOOK_H
#define HT_FORMATS_CODEBOOK_H

#include "formats/weight_type.h"

/* Weight i = scale[halves == 2 ? i / 16 : 0] * (q[i] - bias), exactly. */
typedef struct ht_codebook_group {
    uint8_t q[32]; /* 0 to 2 * bias */
    float scale[2];
} ht_codebook_group;

typedef struct ht_codebook_fn {
    /* Unpacks group g of a block. */
    void (*unpack)(const void *block, int g, ht_codebook_group *out);
    int bias, halves;
} ht_codebook_fn;

/* NULL for types without a codebook. */
const ht_codebook_fn *ht_codebook_of(ht_weight_type type);

#endif
