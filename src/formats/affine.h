/* MLX's affine groups: 32, 64 or 128 neighbouring columns share a scale and a bias, weight i is scale * q_i + bias with q_i of
 * 2, 3, 4, 5, 6 or 8 bits. In a file the numbers, the scales and the biases are three tensors; here a group is a block,
 * and row after row of them is the stored form that everything else starts from:
 *
 *   scale, bias    f16, bf16 or f32, little-endian
 *   numbers        as in the file: bit j of number i is bit `bits` * i + j of the group's bytes, so numbers of 3, 5 and 6
 *                  bits run over the ends of bytes and words; 32 of them are a whole number of words
 *
 * Layout: mlx.core.quantize. */
#ifndef HT_FORMATS_AFFINE_H
#define HT_FORMATS_AFFINE_H

#include "formats/weight_type.h"

typedef struct ht_affine {
    int bits; /* 0: the type is none of these */
    int group;
    ht_weight_type scale; /* F32, F16 or BF16; of the bias, too */
    int scale_bytes;
} ht_affine;

ht_affine ht_affine_of(ht_weight_type type);
/* The type of such groups, or -1 when Hearth does not know it. */
int ht_affine_type(int64_t bits, int64_t group, ht_weight_type scale);

/* Values of one block. */
void ht_affine_dequantize(const ht_affine *a, const void *block, float *out);
float ht_affine_scale(const ht_affine *a, const void *block);
float ht_affine_bias(const ht_affine *a, const void *block);

/* Eight numbers at `bytes` (as many bytes as a number has bits), one per byte of the result, the first one lowest. */
static inline uint64_t ht_affine_spread(int bits, const uint8_t *bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bits; i++) x |= (uint64_t)bytes[i] << 8 * i;
    /* The upper half of the numbers goes to the upper half of the word, then so within each half, and again. */
    const uint64_t four = ((uint64_t)1 << 4 * bits) - 1, two = (((uint64_t)1 << 2 * bits) - 1) * 0x0000000100000001u;
    const uint64_t one = (((uint64_t)1 << bits) - 1) * 0x0001000100010001u;
    x = (x & four) | (x >> 4 * bits & four) << 32;
    x = (x & two) | (x >> 2 * bits & two) << 16;
    return (x & one) | (x >> bits & one) << 8;
}
/* The inverse. */
void ht_affine_gather(int bits, uint64_t numbers, uint8_t *bytes);

#endif
