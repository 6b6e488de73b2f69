/* MLX's affine groups: 32, 64 or 128 neighbouring columns share a scale and a bias; weight i = scale * q_i + bias, q_i
 * of 2, 3, 4, 5, 6 or 8 bits. A file has q, scales and biases as three tensors; tensor_read joins them into one block
 * per group, row after row:
 *
 *   scale, bias    f16, bf16 or f32, little-endian
 *   q              as in the file: bit j of q_i is bit `bits` * i + j of the group's bytes; q_i of 3, 5 and 6 bits cross
 *                  byte and word boundaries; 32 of them fill whole words
 *
 * Layout: mlx.core.quantize. */
#ifndef HT_FORMATS_AFFINE_H
#define HT_FORMATS_AFFINE_H

#include "formats/weight_type.h"

typedef struct ht_affine {
    int bits; /* 0: no affine type */
    int group;
    ht_weight_type scale; /* dtype of scale and bias: F32, F16 or BF16 */
    int scale_bytes;
} ht_affine;

ht_affine ht_affine_of(ht_weight_type type);
/* ht_weight_type, or -1 for an unsupported combination. */
int ht_affine_type(int64_t bits, int64_t group, ht_weight_type scale);

/* Dequantises one block: a->group values. */
void ht_affine_dequantize(const ht_affine *a, const void *block, float *out);
float ht_affine_scale(const ht_affine *a, const void *block);
float ht_affine_bias(const ht_affine *a, const void *block);

/* Unpacks eight q of `bits` bits (`bits` bytes) to one per byte, the first lowest. */
static inline uint64_t ht_affine_spread(int bits, const uint8_t *bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bits; i++) x |= (uint64_t)bytes[i] << 8 * i;
    /* Divide and conquer: 4 q to the upper half of the word, then 2 to the upper half of each half, then 1. */
    const uint64_t four = ((uint64_t)1 << 4 * bits) - 1, two = (((uint64_t)1 << 2 * bits) - 1) * 0x0000000100000001u;
    const uint64_t one = (((uint64_t)1 << bits) - 1) * 0x0001000100010001u;
    x = (x & four) | (x >> 4 * bits & four) << 32;
    x = (x & two) | (x >> 2 * bits & two) << 16;
    return (x & one) | (x >> bits & one) << 8;
}
/* Inverse of ht_affine_spread: packs eight q to `bits` bytes. */
void ht_affine_gather(int bits, uint64_t numbers, uint8_t *bytes);

#endif
