/* The on-disk blocks of the GGUF weight types, as the `gguf` package (gguf.quants) reads them. Every field is a byte array
 * or a little-endian half stored as two bytes, so a block may lie at any address. `d` is the scale, `m` or `dmin` the
 * offset; each comment gives the value of element i of the block. */
#ifndef HT_FORMATS_BLOCKS_H
#define HT_FORMATS_BLOCKS_H

#include "base/half.h"

#include <assert.h>
#include <stdint.h>

enum { HT_BLOCK_SMALL = 32, HT_BLOCK_NVFP4 = 64, HT_BLOCK_Q1 = 128, HT_BLOCK_K = 256 };

/* A half as it lies in the file; ht_half_at (base/half.h) reads it. */
typedef struct ht_half_bytes {
    uint8_t b[2];
} ht_half_bytes;

/* d * (q - 8); q of element i < 16 is the low nibble of qs[i], of element i + 16 the high nibble. */
typedef struct ht_block_q4_0 {
    ht_half_bytes d;
    uint8_t qs[16];
} ht_block_q4_0;

/* d * q + m, nibbles as in q4_0. */
typedef struct ht_block_q4_1 {
    ht_half_bytes d, m;
    uint8_t qs[16];
} ht_block_q4_1;

/* d * (q - 16); the fifth bit of element i is bit i of the 32-bit word qh. */
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

/* 16 groups of 16. d * (scales[g] & 15) * q - dmin * (scales[g] >> 4). Each half of 128 elements has 32 bytes of qs; its
 * element 32 * s + j is bits 2s, 2s + 1 of byte j. */
typedef struct ht_block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    ht_half_bytes d, dmin;
} ht_block_q2_k;

/* 16 groups of 16. d * (scale - 32) * (q - (bit ? 0 : 4)), q as in q2_k; the bit of element 32 * s + j of the whole block
 * is bit s of hmask[j]. Scales: 6 bits each, see ht_q3_k_scale. */
typedef struct ht_block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    ht_half_bytes d;
} ht_block_q3_k;

/* 8 groups of 32. d * scale * q - dmin * min; each 64 elements have 32 bytes of qs, the low nibbles first. Scales and
 * minima: 6 bits each, see ht_k_scale_min. */
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

/* 16 groups of 16. d * scales[g] * (q - 32). Each half of 128 elements has 64 bytes of ql and 32 of qh; its element
 * 32 * s + j takes the nibble (s < 2 ? low : high) of ql[32 * (s & 1) + j] and bits 2s, 2s + 1 of qh[j]. */
typedef struct ht_block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    ht_half_bytes d;
} ht_block_q6_k;

/* ---- codes: a nibble names one of 16 values ---- */

/* d * value q of HT_IQ4_VALUES, nibbles as in q4_0. */
typedef struct ht_block_iq4_nl {
    ht_half_bytes d;
    uint8_t qs[16];
} ht_block_iq4_nl;

/* 8 groups of 32, each with its nibbles as in q4_0. d * (scale - 32) * value q of HT_IQ4_VALUES; see ht_iq4_xs_scale. */
typedef struct ht_block_iq4_xs {
    ht_half_bytes d;
    uint8_t scales_h[2]; /* two bits each */
    uint8_t scales_l[4]; /* four bits each */
    uint8_t qs[128];
} ht_block_iq4_xs;

/* 2^(e - 128) * value q of HT_E2M1_VALUES, nibbles as in q4_0. */
typedef struct ht_block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} ht_block_mxfp4;

/* 4 groups of 16. ht_ue4m3_half(d[g]) * value q of HT_E2M1_VALUES; q of element i < 8 of a group is the low nibble of
 * qs[8 * g + i], of element i + 8 the high nibble. */
typedef struct ht_block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} ht_block_nvfp4;

/* ---- three values and two ---- */

/* d * (q - 1), q as in q2_k. */
typedef struct ht_block_tq2_0 {
    uint8_t qs[64];
    ht_half_bytes d;
} ht_block_tq2_0;

/* d * (digit - 1). A byte is a fraction of 256 with five digits to base 3, the first one in front: digit n is that of
 * byte * 3^n modulo 256. Element 32 * n + j is digit n of qs[j], element 160 + 16 * n + j digit n of qs[32 + j], element
 * 240 + 4 * n + j digit n of qh[j]. */
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

/* ---- grids: a number names 8 or 4 values (formats/codebook_tables.h) ---- */

/* 8 groups of 32, qs[8 * g] on: two words of 32 bits. The four bytes of the first are numbers of 8 magnitudes in
 * ht_grid_iq2_xxs; the second has 4 times 7 bits of signs (ht_signs_of), then a scale s. d * (s + 1/2) / 4 * value. */
typedef struct ht_block_iq2_xxs {
    ht_half_bytes d;
    uint8_t qs[64];
} ht_block_iq2_xxs;

/* 16 groups of 16. qs: little-endian words of 16 bits for 8 elements each, 9 bits of a number in ht_grid_iq2_xs and 7 of
 * signs. d * (s + 1/2) / 4 * value, s the nibble of group g. */
typedef struct ht_block_iq2_xs {
    ht_half_bytes d;
    uint8_t qs[64];
    uint8_t scales[8];
} ht_block_iq2_xs;

/* As iq2_xs, but numbers in ht_grid_iq2_s have 10 bits, the upper two from qh, and signs 8. */
typedef struct ht_block_iq2_s {
    ht_half_bytes d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} ht_block_iq2_s;

/* 8 groups of 32. Each byte of qs is the number of 4 magnitudes in ht_grid_iq3_xxs; the words of `scales` are as the second
 * one of iq2_xxs. d * (s + 1/2) / 2 * value. */
typedef struct ht_block_iq3_xxs {
    ht_half_bytes d;
    uint8_t qs[64];
    uint8_t scales[32];
} ht_block_iq3_xxs;

/* 8 groups of 32. Numbers in ht_grid_iq3_s of 9 bits, bit 8 of number i is bit i of qh. d * (2 s + 1) * value. */
typedef struct ht_block_iq3_s {
    ht_half_bytes d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} ht_block_iq3_s;

/* 8 groups of 32. qh: words of 16 bits per group: 3 more bits for each of 4 numbers in ht_grid_iq1, a scale s of 3 bits,
 * and the sign of an eighth. d * (2 s + 1) * (value +- 1/8). */
typedef struct ht_block_iq1_s {
    ht_half_bytes d;
    uint8_t qs[32];
    uint8_t qh[16];
} ht_block_iq1_s;

/* 16 groups of 16. Nibbles of qh: 3 more bits for a number, and the sign of an eighth for its 8 elements. scales: four words
 * of 16 bits, each with four scales of 3 bits and a nibble of the half d, lowest first. d * (2 s + 1) * (value +- 1/8). */
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

/* Scale and minimum of group g (0 to 7) of a q4_k or q5_k block: the first four have their 6 bits in one byte each, the
 * last four take 4 bits from bytes 8 to 11 and the upper two from the tops of the first eight bytes. */
static inline void ht_k_scale_min(const uint8_t scales[12], int g, uint8_t *scale, uint8_t *min) {
    if (g < 4) {
        *scale = scales[g] & 63;
        *min = scales[g + 4] & 63;
    } else {
        *scale = (uint8_t)((scales[g + 4] & 15) | ((scales[g - 4] >> 6) << 4));
        *min = (uint8_t)((scales[g + 4] >> 4) | ((scales[g] >> 6) << 4));
    }
}

/* Scale of group g (0 to 15) of a q3_k block, -32 to 31: a nibble of bytes 0 to 7, then two bits of bytes 8 to 11. */
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

/* What 16 nibbles mean. IQ4: gguf.quants.IQ4_NL.kvalues. E2M1: a sign, two bits of exponent, one of mantissa, twice the
 * value, so that all are integers (Open Compute Project, Microscaling Formats 1.0). */
#define HT_IQ4_VALUES(X)                                                                                               \
    X(-127), X(-104), X(-83), X(-65), X(-49), X(-35), X(-22), X(-10), X(1), X(13), X(25), X(38), X(53), X(69), X(89),  \
        X(113)
#define HT_E2M1_VALUES(X)                                                                                              \
    X(0), X(1), X(2), X(3), X(4), X(6), X(8), X(12), X(0), X(-1), X(-2), X(-3), X(-4), X(-6), X(-8), X(-12)

/* 2^(e - 128), a denormal float for the least two e. */
static inline float ht_mxfp4_scale(uint8_t e) {
    return ht_float_from_bits(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

/* Half the value of an e4m3 scale without sign, which makes up for the doubled codes; 127, which would be a NaN, is 0. */
static inline float ht_ue4m3_half(uint8_t x) {
    int e = x >> 3 & 15, m = x & 7;
    if (x == 127) return 0.0f;
    return e ? (float)(8 + m) * 0x1p-11f * (float)(1 << e) : (float)m * 0x1p-10f;
}

#endif
