#include "formats/affine.h"

#include <assert.h>

enum { FIRST = HT_W_COUNT - 54, SCALES = 3, GROUPS = 3 }; /* in the order of HT_AFFINE_TYPES */

static const uint8_t bits_of[] = {2, 3, 4, 5, 6, 8}, groups_of[GROUPS] = {32, 64, 128};
static const ht_weight_type scales_of[SCALES] = {HT_W_F16, HT_W_BF16, HT_W_F32};
static_assert((int)HT_W_MLX2_32_F16 == (int)FIRST && (int)HT_W_MLX8_128_F32 == (int)HT_W_COUNT - 1, "54 of them, last");
static_assert((int)HT_W_MLX4_64_BF16 == FIRST + (2 * GROUPS + 1) * SCALES + 1, "bits, then groups, then scales");

ht_affine ht_affine_of(ht_weight_type type) {
    int i = (int)type - FIRST;
    if (i < 0) return (ht_affine){0};
    ht_weight_type scale = scales_of[i % SCALES];
    return (ht_affine){.bits = bits_of[i / (SCALES * GROUPS)],
                       .group = groups_of[i / SCALES % GROUPS],
                       .scale = scale,
                       .scale_bytes = scale == HT_W_F32 ? 4 : 2};
}

int ht_affine_type(int64_t bits, int64_t group, ht_weight_type scale) {
    for (int t = FIRST; t < HT_W_COUNT; t++) {
        ht_affine a = ht_affine_of((ht_weight_type)t);
        if (a.bits == bits && a.group == group && a.scale == scale) return t;
    }
    return -1;
}

void ht_affine_gather(int bits, uint64_t numbers, uint8_t *bytes) {
    const uint64_t one = 0x00ff00ff00ff00ffu, two = 0x0000ffff0000ffffu, four = 0xffffffffu;
    uint64_t x = (numbers & one) | (numbers >> 8 & one) << bits;
    x = (x & two) | (x >> 16 & two) << 2 * bits;
    x = (x & four) | x >> 32 << 4 * bits;
    for (int i = 0; i < bits; i++) bytes[i] = (uint8_t)(x >> 8 * i);
}

static float value_at(const ht_affine *a, const uint8_t *p) {
    float value;
    ht_dequantize(a->scale, p, 1, &value);
    return value;
}

float ht_affine_scale(const ht_affine *a, const void *block) { return value_at(a, block); }
float ht_affine_bias(const ht_affine *a, const void *block) {
    return value_at(a, (const uint8_t *)block + a->scale_bytes);
}

void ht_affine_dequantize(const ht_affine *a, const void *block, float *out) {
    const uint8_t *numbers = (const uint8_t *)block + 2 * a->scale_bytes;
    float scale = ht_affine_scale(a, block), bias = ht_affine_bias(a, block);
    for (int i = 0; i < a->group; i += 8, numbers += a->bits) {
        uint64_t q = ht_affine_spread(a->bits, numbers);
        for (int k = 0; k < 8; k++) out[i + k] = scale * (float)(q >> 8 * k & 255) + bias;
    }
}
