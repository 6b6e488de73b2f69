/* The on-disk blocks of the GGUF weight types, as the `gguf` package (gguf.quants) reads them. Every field is a byte array
 * or a little-endian half stored as two bytes, so a block may lie at any address. `d` is the scale, `m` or `dmin` the
 * offset; each comment gives the value of element i of the block. */
#ifndef HT_FORMATS_BLOCKS_H
#define HT_FORMATS_BLOCKS_H

#include <assert.h>
#include <stdint.h>

enum { HT_BLOCK_SMALL = 32, HT_BLOCK_K = 256 };

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

#endif
