/* Codebook types, whose bits are laid out for a table of values rather than for arithmetic: a group of 32 weights is
 * unpacked to integers at a time, which everything else starts from. */
#ifndef HT_FORMATS_UNPACK_H
#define HT_FORMATS_UNPACK_H

#include "formats/weight_type.h"

/* Weight i is scale[halves == 2 ? i / 16 : 0] * (q[i] - bias), exactly. */
typedef struct ht_unpacked {
    uint8_t q[32]; /* at most 2 * bias */
    float scale[2];
} ht_unpacked;

typedef struct ht_unpacker {
    /* Group g of the block. */
    void (*unpack)(const void *block, int g, ht_unpacked *out);
    int bias, halves;
} ht_unpacker;

/* NULL for the other types. */
const ht_unpacker *ht_unpacker_of(ht_weight_type type);

#endif
