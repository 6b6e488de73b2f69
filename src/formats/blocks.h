/* Blocks of the GGUF weight types on disk, after gguf.quants. Fields are byte arrays or little-endian f16 as two bytes,
 * so a block needs no alignment. `d` is the scale, `m` or `dmin` the offset, q the packed integer; each comment gives
 * the value of element i. */
#ifndef HT_FORMATS_BLOCKS_H
#define HT_FORMATS_BLOCKS_H

#include "base/half.h"

#include <assert.h>
#include <stdint.h>

enum { HT_BLOCK_SMALL = 32, HT_BLOCK_NVFP4 = 64, HT_BLOCK_Q1 = 128, HT_BLOCK_K = 256 };

/* An unaligned f16; ht_half_at (base/half.h) reads it. */
typedef struct ht_half_bytes {
    uint8_t b[2];
} ht_half_bytes;

/* d * (q - 8). Element i < 16: low nibble of qs[i]; element i + 16: high nibble. */
typedef struct ht_block_q4_0 {
    ht_half_bytes d;
    uint8_t qs[16];
} ht_block_q4_0;

/* d * q + m, nibbles as in q4_0. */
typedef struct ht_block_q4_1 {
    ht_half_bytes d, m;
    uint8_t qs[16];
} ht_block_q4_1;

/* d * (q - 16). Nibbles as in q4_0; the fifth bit of element i is bit i of the 32-bit word qh. */
typedef struct ht_block_q5_0 {
    ht_half_bytes d;
    uint8_t qh[4];
    uint8_t qs[16];
} ht_block_q5_0;

/* d * q + m, bits as in q5_0. */
typedef struct ht_block_q5_1 {
    ht_half_bytes d, m;
    uint8_t qh[4];
    uint8_t qs[16];
} ht_block_q5_1;

/* d * q */
typedef struct ht_block_q8_0 {
    ht_half_bytes d;
    int8_t qs[32];
} ht_block_q8_0;

/* 16 groups of 16: d * (scales[g] & 15) * q - dmin * (scales[g] >> 4). 128 elements share 32 bytes of qs: element 32 *
 * s + j is bits 2s, 2s + 1 of byte j. */
typedef struct ht_block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    ht_half_bytes d, dmin;
} ht_block_q2_k;

/* 16 groups of 16: d * scale * (q - (bit ? 0 : 4)), scale 6 bits from ht_q3_k_scale, q as in q2_k; the bit of element
 * 32 * s + j of the block is bit s of hmask[j]. */
typedef struct ht_block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    ht_half_bytes d;
} ht_block_q3_k;

/* 8 groups of 32: d * scale * q - dmin * min, 6 bits each from ht_k_scale_min; 64 elements share 32 bytes of qs, low
 * nibbles first. */
typedef struct ht_block_q4_k {
    ht_half_bytes d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} ht_block_q4_k;

/* As q4_k; the fifth bit of element 32 * g + j is bit g of qh[j]. */
typedef struct ht_block_q5_k {
    ht_half_bytes d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} ht_block_q5_k;

/* 16 groups of 16: d * scales[g] * (q - 32). 128 elements share 64 bytes of ql and 32 of qh: element 32 * s + j is the
 * nibble (s < 2 ? low : high) of ql[32 * (s & 1) + j] below bits 2s, 2s + 1 of qh[j]. */
typedef struct ht_block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    ht_half_bytes d;
} ht_block_q6_k;

/* ---- 4-bit codes of 16 values ---- */

/* d * HT_IQ4_VALUES[q], nibbles as in q4_0. */
typedef struct ht_block_iq4_nl {
    ht_half_bytes d;
    uint8_t qs[16];
} ht_block_iq4_nl;

/* 8 groups of 32: d * scale * HT_IQ4_VALUES[q], scale from ht_iq4_xs_scale, nibbles of each group as in q4_0. */
typedef struct ht_block_iq4_xs {
    ht_half_bytes d;
    uint8_t scales_h[2]; /* two high bits per group */
    uint8_t scales_l[4]; /* four low bits per group */
    uint8_t qs[128];
} ht_block_iq4_xs;

/* 2^(e - 128) * HT_E2M1_VALUES[q], nibbles as in q4_0. */
typedef struct ht_block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} ht_block_mxfp4;

/* 4 groups of 16: ht_ue4m3_half(d[g]) * HT_E2M1_VALUES[q]. Element i < 8 of a group: low nibble of qs[8 * g + i];
 * element i + 8: high nibble. */
typedef struct ht_block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} ht_block_nvfp4;

/* ---- ternary and binary ---- */

/* d * (q - 1), q as in q2_k. */
typedef struct ht_block_tq2_0 {
    uint8_t qs[64];
    ht_half_bytes d;
} ht_block_tq2_0;

/* d * (digit - 1). A byte is a base-3 fraction of five digits, times 256: digit n is the leading digit of byte * 3^n
 * mod 256. Element 32 * n + j is digit n of qs[j], element 160 + 16 * n + j digit n of qs[32 + j], element 240 + 4 * n
 * + j digit n of qh[j]. */
typedef struct ht_block_tq1_0 {
    uint8_t qs[48];
    uint8_t qh[4];
    ht_half_bytes d;
} ht_block_tq1_0;

/* d where bit i of qs is set, else -d. */
typedef struct ht_block_q1_0 {
    ht_half_bytes d;
    uint8_t qs[16];
} ht_block_q1_0;

/* ---- codebooks: an index stands for 8 or 4 values (formats/codebook_tables.h) ---- */

/* 8 groups of 32: d * (s + 1/2) / 4 * value. Group g is two 32-bit words at qs[8 * g]: four 8-bit indices into
 * ht_grid_iq2_xxs (8 magnitudes each); then four times 7 sign bits (ht_signs_of) and the 4-bit scale s. */
typedef struct ht_block_iq2_xxs {
    ht_half_bytes d;
    uint8_t qs[64];
} ht_block_iq2_xxs;

/* 16 groups of 16: d * (s + 1/2) / 4 * value, s the nibble of group g. qs: little-endian 16-bit words for 8 elements
 * each, a 9-bit index into ht_grid_iq2_xs and 7 sign bits. */
typedef struct ht_block_iq2_xs {
    ht_half_bytes d;
    uint8_t qs[64];
    uint8_t scales[8];
} ht_block_iq2_xs;

/* As iq2_xs, with 10-bit indices into ht_grid_iq2_s (the upper two bits in qh) and 8 sign bits. */
typedef struct ht_block_iq2_s {
    ht_half_bytes d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} ht_block_iq2_s;

/* 8 groups of 32: d * (s + 1/2) / 2 * value. A byte of qs is an index into ht_grid_iq3_xxs (4 magnitudes); a 32-bit
 * word of `scales` has the signs and the scale of a group, as the second word of iq2_xxs. */
typedef struct ht_block_iq3_xxs {
    ht_half_bytes d;
    uint8_t qs[64];
    uint8_t scales[32];
} ht_block_iq3_xxs;

/* 8 groups of 32: d * (2 s + 1) * value. 9-bit indices into ht_grid_iq3_s; bit 8 of index i is bit i of qh. */
typedef struct ht_block_iq3_s {
    ht_half_bytes d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} ht_block_iq3_s;

/* 8 groups of 32: d * (2 s + 1) * (value +- 1/8). qh: a 16-bit word per group: 3 high bits for each of 4 indices into
 * ht_grid_iq1, the 3-bit scale s, the sign of the eighth. */
typedef struct ht_block_iq1_s {
    ht_half_bytes d;
    uint8_t qs[32];
    uint8_t qh[16];
} ht_block_iq1_s;

/* 16 groups of 16: d * (2 s + 1) * (value +- 1/8). A nibble of qh: 3 high bits of an index into ht_grid_iq1, and the
 * sign of the eighth for its 8 elements. scales: four 16-bit words, each four 3-bit scales and a nibble of the f16 d,
 * lowest first. */
typedef struct ht_block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} ht_block_iq1_m;

static_assert(sizeof(ht_block_q4_0) == 18, "q4_0");
static_assert(sizeof(ht_block_q4_1) == 20, "q4_1");
static_assert(sizeof(ht_block_q5_0) == 22, "q5_0");
static_assert(sizeof(ht_block_q5_1) == 24, "q5_1");
static_assert(sizeof(ht_block_q8_0) == 34, "q8_0");
static_assert(sizeof(ht_block_q2_k) == 84, "q2_k");
static_assert(sizeof(ht_block_q3_k) == 110, "q3_k");
static_assert(sizeof(ht_block_q4_k) == 144, "q4_k");
static_assert(sizeof(ht_block_q5_k) == 176, "q5_k");
static_assert(sizeof(ht_block_q6_k) == 210, "q6_k");
static_assert(sizeof(ht_block_iq4_nl) == 18, "iq4_nl");
static_assert(sizeof(ht_block_iq4_xs) == 136, "iq4_xs");
static_assert(sizeof(ht_block_mxfp4) == 17, "mxfp4");
static_assert(sizeof(ht_block_nvfp4) == 36, "nvfp4");
static_assert(sizeof(ht_block_tq2_0) == 66, "tq2_0");
static_assert(sizeof(ht_block_tq1_0) == 54, "tq1_0");
static_assert(sizeof(ht_block_q1_0) == 18, "q1_0");
static_assert(sizeof(ht_block_iq2_xxs) == 66, "iq2_xxs");
static_assert(sizeof(ht_block_iq2_xs) == 74, "iq2_xs");
static_assert(sizeof(ht_block_iq2_s) == 82, "iq2_s");
static_assert(sizeof(ht_block_iq3_xxs) == 98, "iq3_xxs");
static_assert(sizeof(ht_block_iq3_s) == 110, "iq3_s");
static_assert(sizeof(ht_block_iq1_s) == 50, "iq1_s");
static_assert(sizeof(ht_block_iq1_m) == 56, "iq1_m");

/* Scale and minimum of group g (0 to 7) of a q4_k or q5_k block. Groups 0 to 3: 6 bits of one byte; groups 4 to 7: 4
 * bits from bytes 8 to 11, the upper two from the top bits of bytes 0 to 7. */
static inline void ht_k_scale_min(const uint8_t scales[12], int g, uint8_t *scale, uint8_t *min) {
    if (g < 4) {
        *scale = scales[g] & 63;
        *min = scales[g + 4] & 63;
    } else {
        *scale = (uint8_t)((scales[g + 4] & 15) | ((scales[g - 4] >> 6) << 4));
        *min = (uint8_t)((scales[g + 4] >> 4) | ((scales[g] >> 6) << 4));
    }
}

/* Scale of group g (0 to 15) of a q3_k block, -32 to 31: a nibble of bytes 0 to 7 and two bits of bytes 8 to 11. */
static inline int ht_q3_k_scale(const uint8_t scales[12], int g) {
    int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    int high = (scales[8 + (g & 3)] >> (2 * (g >> 2))) & 3;
    return (low | (high << 4)) - 32;
}

/* Scale of group g (0 to 7) of an iq4_xs block, -32 to 31. */
static inline int ht_iq4_xs_scale(const ht_block_iq4_xs *b, int g) {
    int low = b->scales_l[g / 2] >> (4 * (g & 1)) & 15, high = b->scales_h[g / 4] >> (2 * (g & 3)) & 3;
    return (low | high << 4) - 32;
}

/* Values of 4-bit codes. IQ4: gguf.quants.IQ4_NL.kvalues. E2M1 (sign, 2 exponent bits, 1 mantissa bit): doubled, to be
 * integers (Open Compute Project, Microscaling Formats 1.0). */
#define HT_IQ4_VALUES(X)                                                                                               \
    X(-127), X(-104), X(-83), X(-65), X(-49), X(-35), X(-22), X(-10), X(1), X(13), X(25), X(38), X(53), X(69), X(89),  \
        X(113)
#define HT_E2M1_VALUES(X)                                                                                              \
    X(0), X(1), X(2), X(3), X(4), X(6), X(8), X(12), X(0), X(-1), X(-2), X(-3), X(-4), X(-6), X(-8), X(-12)

/* 2^(e - 128); denormal for e < 2. */
static inline float ht_mxfp4_scale(uint8_t e) {
    return ht_float_from_bits(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

/* Half of an unsigned e4m3 scale, as HT_E2M1_VALUES are doubled; the NaN code 127 gives 0. */
static inline float ht_ue4m3_half(uint8_t x) {
    int e = x >> 3 & 15, m = x & 7;
    if (x == 127) return 0.0f;
    return e ? (float)(8 + m) * 0x1p-11f * (float)(1 << e) : (float)m * 0x1p-10f;
}

#endif
