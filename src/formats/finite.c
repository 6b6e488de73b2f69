#include "formats/finite.h"

#include "formats/blocks.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { BLOCK_MOST = HT_BLOCK_K };

/* ---- floats ---- */

/* Adding 1 to an exponent of ones carries: a loop without branches. */
static bool floats_are_finite(const unsigned char *p, int64_t n) {
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, p + 4 * i, sizeof bits);
        any |= ((bits >> 23 & 255) + 1) & 256;
    }
    return !any;
}

/* f16 or bf16, by the bits of the exponent. */
static bool halves_are_finite(const unsigned char *p, int64_t n, int shift, uint32_t ones) {
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, p + 2 * i, sizeof bits);
        any |= (((uint32_t)bits >> shift & ones) + 1) & (ones + 1);
    }
    return !any;
}

/* ---- blocks ---- */

/* Byte offsets of a block's f16 scales and minimums. */
typedef struct scales {
    int n;
    size_t at[2];
} scales;

#define ONE(type, block)      [HT_W_##type] = {1, {offsetof(block, d)}}
#define TWO(type, block, min) [HT_W_##type] = {2, {offsetof(block, d), offsetof(block, min)}}
static const scales places[HT_W_COUNT] = {
    ONE(Q4_0, ht_block_q4_0),    TWO(Q4_1, ht_block_q4_1, m),    ONE(Q5_0, ht_block_q5_0),
    TWO(Q5_1, ht_block_q5_1, m), ONE(Q8_0, ht_block_q8_0),       TWO(Q2_K, ht_block_q2_k, dmin),
    ONE(Q3_K, ht_block_q3_k),    TWO(Q4_K, ht_block_q4_k, dmin), TWO(Q5_K, ht_block_q5_k, dmin),
    ONE(Q6_K, ht_block_q6_k),    ONE(IQ4_NL, ht_block_iq4_nl),   ONE(IQ4_XS, ht_block_iq4_xs),
    ONE(TQ2_0, ht_block_tq2_0),  ONE(TQ1_0, ht_block_tq1_0),     ONE(Q1_0, ht_block_q1_0),
    ONE(IQ1_S, ht_block_iq1_s),  ONE(IQ2_XXS, ht_block_iq2_xxs), ONE(IQ2_XS, ht_block_iq2_xs),
    ONE(IQ2_S, ht_block_iq2_s),  ONE(IQ3_XXS, ht_block_iq3_xxs), ONE(IQ3_S, ht_block_iq3_s)};
#undef ONE
#undef TWO

static bool scales_are_finite(const scales *s, const unsigned char *p, int64_t n_blocks, size_t block_bytes) {
    uint32_t any = 0;
    for (int64_t i = 0; i < n_blocks; i++, p += block_bytes)
        for (int k = 0; k < s->n; k++) {
            uint16_t bits;
            memcpy(&bits, p + s->at[k], sizeof bits);
            any |= (((uint32_t)bits >> 10 & 31) + 1) & 32;
        }
    return !any;
}

/* ---- any type ---- */

int64_t ht_first_not_finite(ht_weight_type type, const void *blocks, int64_t n, float *value) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const unsigned char *p = blocks;
    float x[BLOCK_MOST];
    const int64_t at_once = BLOCK_MOST / info->block * info->block;
    for (int64_t first = 0; first < n; first += at_once) {
        const int64_t count = n - first < at_once ? n - first : at_once;
        ht_dequantize(type, p + (size_t)(first / info->block) * info->block_bytes, count, x);
        for (int64_t i = 0; i < count; i++)
            if (!isfinite(x[i])) {
                *value = x[i];
                return first + i;
            }
    }
    return -1;
}

bool ht_is_finite(ht_weight_type type, const void *blocks, int64_t n) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    float value;
    if (type == HT_W_F32) return floats_are_finite(blocks, n);
    if (type == HT_W_F16) return halves_are_finite(blocks, n, 10, 31);
    if (type == HT_W_BF16) return halves_are_finite(blocks, n, 7, 255);
    if (places[type].n) return scales_are_finite(&places[type], blocks, n / info->block, info->block_bytes);
    return ht_first_not_finite(type, blocks, n, &value) < 0;
}
