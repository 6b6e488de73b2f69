/* Scale units of panels by weight type, each for 16 rows (r) of one group of columns.
 *
 *   Q4_0 Q5_0 Q8_0   d[16] as halves
 *   Q4_1 Q5_1        d[16], m[16]
 *   Q2_K             d[16], dmin[16], scales[16 groups][16 r] as in the file (scale low, minimum high)
 *   Q3_K             d[16], low[8][16]: nibbles of groups g and g + 8, high[4][16]: bits 2 c, 2 c + 1 are of group
 *                    g + 4 c; together a scale plus 32
 *   Q4_K Q5_K        d[16], dmin[16], low[8][16]: nibbles of scale g (low) and minimum g (high), high[4][16]: two bits
 *                    each of scale g, minimum g, scale g + 4, minimum g + 4
 *   Q6_K             d[16], scales[16 groups][16 r]
 *   IQ4_NL TQ2_0     d[16]
 *   IQ4_XS           d[16], low[4][16]: nibbles of groups 2 g and 2 g + 1, high[2][16]: two bits each of groups 4 g to
 *                    4 g + 3; together a scale plus 32
 *   MXFP4            e[16]
 *   NVFP4            d[4 groups][16 r]
 *   MLX              scale[16], bias[16], of 16 or 32 bits */
#include "cpu/pack_types.h"

#include "formats/blocks.h"

#include <string.h>

enum { HALVES = 2 * HT_PANEL }; /* bytes of one half per row */

#define LAYOUT(type, ...) [HT_W_##type] = {__VA_ARGS__, .unpacked = false, .affine = false},
#define UNPACKED(type, width, less, halves_of, group_of)                                                               \
    [HT_W_##type] = {.bits = width, .bias = less, .halves = halves_of, .group = group_of, .unpacked = true},
#define AFFINE(type, width, columns, scale)                                                                            \
    [HT_W_##type] = {.bits = width,                                                                                    \
                     .halves = 1,                                                                                      \
                     .has_min = true,                                                                                  \
                     .group = (columns) / HT_QBLOCK,                                                                   \
                     .scale_bytes = 2 * HT_PANEL * (HT_W_##scale == HT_W_F32 ? 4 : 2),                                 \
                     .affine = true},
static const ht_panel_layout layouts[HT_W_COUNT] = {HT_QUANTISED_TYPES(LAYOUT) HT_UNPACKED_TYPES(UNPACKED)
                                                        HT_AFFINE_TYPES(AFFINE)};

const ht_panel_layout *ht_panel_layout_of(ht_weight_type type) { return &layouts[type]; }

static ht_half_bytes get_half(const uint8_t *at, int r) {
    ht_half_bytes h;
    memcpy(&h, at + 2 * r, sizeof h);
    return h;
}

/* ---- 32 columns ---- */

static void join_nibbles(const uint8_t *q, uint8_t qs[16]) {
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}
/* The fifth bits: bit i of the 32-bit word qh. */
static void join_fifth(const uint8_t *q, uint8_t qh[4]) {
    memset(qh, 0, 4);
    for (int i = 0; i < 32; i++) qh[i / 8] |= (uint8_t)(((q[i] >> 4) & 1) << (i % 8));
}

static void join_q4_0(const uint8_t *q, void *p) { join_nibbles(q, ((ht_block_q4_0 *)p)->qs); }
static void get_q4_0(const uint8_t *u, int r, void *p) { ((ht_block_q4_0 *)p)->d = get_half(u, r); }

static void join_q4_1(const uint8_t *q, void *p) { join_nibbles(q, ((ht_block_q4_1 *)p)->qs); }
static void get_q4_1(const uint8_t *u, int r, void *p) {
    ((ht_block_q4_1 *)p)->d = get_half(u, r);
    ((ht_block_q4_1 *)p)->m = get_half(u + HALVES, r);
}

static void join_q5_0(const uint8_t *q, void *p) {
    join_nibbles(q, ((ht_block_q5_0 *)p)->qs);
    join_fifth(q, ((ht_block_q5_0 *)p)->qh);
}
static void get_q5_0(const uint8_t *u, int r, void *p) { ((ht_block_q5_0 *)p)->d = get_half(u, r); }

static void join_q5_1(const uint8_t *q, void *p) {
    join_nibbles(q, ((ht_block_q5_1 *)p)->qs);
    join_fifth(q, ((ht_block_q5_1 *)p)->qh);
}
static void get_q5_1(const uint8_t *u, int r, void *p) {
    ((ht_block_q5_1 *)p)->d = get_half(u, r);
    ((ht_block_q5_1 *)p)->m = get_half(u + HALVES, r);
}

static void join_q8_0(const uint8_t *q, void *p) {
    for (int i = 0; i < 32; i++) ((ht_block_q8_0 *)p)->qs[i] = (int8_t)(q[i] ^ 0x80);
}
static void get_q8_0(const uint8_t *u, int r, void *p) { ((ht_block_q8_0 *)p)->d = get_half(u, r); }

static void join_iq4_nl(const uint8_t *q, void *p) { join_nibbles(q, ((ht_block_iq4_nl *)p)->qs); }
static void get_iq4_nl(const uint8_t *u, int r, void *p) { ((ht_block_iq4_nl *)p)->d = get_half(u, r); }

static void join_mxfp4(const uint8_t *q, void *p) { join_nibbles(q, ((ht_block_mxfp4 *)p)->qs); }
static void get_mxfp4(const uint8_t *u, int r, void *p) { ((ht_block_mxfp4 *)p)->e = u[r]; }

/* ---- 64 columns ---- */

static void join_nvfp4(const uint8_t *q, void *p) {
    ht_block_nvfp4 *b = p;
    for (int g = 0; g < 4; g++)
        for (int i = 0; i < 8; i++) b->qs[8 * g + i] = (uint8_t)((q[16 * g + i] & 15) | (q[16 * g + 8 + i] & 15) << 4);
}
static void get_nvfp4(const uint8_t *u, int r, void *p) {
    for (int g = 0; g < 4; g++) ((ht_block_nvfp4 *)p)->d[g] = u[HT_PANEL * g + r];
}

/* ---- 256 columns ---- */

/* Pairs of bits as q2_k and q3_k keep them: element 128 h + 32 s + j is bits 2 s, 2 s + 1 of qs[32 h + j]. */
static void join_pairs(const uint8_t *q, uint8_t qs[64]) {
    memset(qs, 0, 64);
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < 4; s++)
            for (int j = 0; j < 32; j++) qs[32 * h + j] |= (uint8_t)((q[128 * h + 32 * s + j] & 3) << (2 * s));
}
/* One bit: element 32 s + j is bit s of bits[j]; it goes to bit `to` of q. */
static void join_bits(const uint8_t *q, int from, uint8_t bits[32]) {
    memset(bits, 0, 32);
    for (int s = 0; s < 8; s++)
        for (int j = 0; j < 32; j++) bits[j] |= (uint8_t)(((q[32 * s + j] >> from) & 1) << s);
}
/* Nibbles as q4_k and q5_k keep them: element 64 h + 32 s + j is nibble s of qs[32 h + j]. */
static void join_k_nibbles(const uint8_t *q, uint8_t qs[128]) {
    for (int h = 0; h < 4; h++)
        for (int j = 0; j < 32; j++) qs[32 * h + j] = (uint8_t)((q[64 * h + j] & 15) | (q[64 * h + 32 + j] & 15) << 4);
}

static void join_q2_k(const uint8_t *q, void *p) { join_pairs(q, ((ht_block_q2_k *)p)->qs); }
static void get_q2_k(const uint8_t *u, int r, void *p) {
    ht_block_q2_k *b = p;
    b->d = get_half(u, r);
    b->dmin = get_half(u + HALVES, r);
    for (int g = 0; g < 16; g++) b->scales[g] = u[2 * HALVES + HT_PANEL * g + r];
}

/* The file subtracts 4 where the mask bit is clear: with the bit as the third, q - 4 says the same. */
static void join_q3_k(const uint8_t *q, void *p) {
    join_pairs(q, ((ht_block_q3_k *)p)->qs);
    join_bits(q, 2, ((ht_block_q3_k *)p)->hmask);
}
/* The file's own 12 bytes have the shape of the unit: nibbles of g and g + 8, then pairs of bits. */
static void get_q3_k(const uint8_t *u, int r, void *p) {
    ht_block_q3_k *b = p;
    b->d = get_half(u, r);
    for (int i = 0; i < 12; i++) b->scales[i] = u[HALVES + HT_PANEL * i + r];
}

/* The inverse of ht_k_scale_min. */
static void get_k_scales(const uint8_t *u, int r, uint8_t scales[12]) {
    const uint8_t *low = u + 2 * HALVES, *high = low + 8 * HT_PANEL;
    memset(scales, 0, 12);
    for (int g = 0; g < 8; g++) {
        int top = high[HT_PANEL * (g & 3) + r] >> (g < 4 ? 0 : 4), nibbles = low[HT_PANEL * g + r];
        int scale = (nibbles & 15) | (top & 3) << 4, min = nibbles >> 4 | ((top >> 2) & 3) << 4;
        if (g < 4) {
            scales[g] |= (uint8_t)scale;
            scales[g + 4] |= (uint8_t)min;
        } else {
            scales[g + 4] |= (uint8_t)((scale & 15) | (min & 15) << 4);
            scales[g - 4] |= (uint8_t)((scale >> 4) << 6);
            scales[g] |= (uint8_t)((min >> 4) << 6);
        }
    }
}

static void join_q4_k(const uint8_t *q, void *p) { join_k_nibbles(q, ((ht_block_q4_k *)p)->qs); }
static void get_q4_k(const uint8_t *u, int r, void *p) {
    ht_block_q4_k *b = p;
    b->d = get_half(u, r);
    b->dmin = get_half(u + HALVES, r);
    get_k_scales(u, r, b->scales);
}

static void join_q5_k(const uint8_t *q, void *p) {
    join_k_nibbles(q, ((ht_block_q5_k *)p)->qs);
    join_bits(q, 4, ((ht_block_q5_k *)p)->qh);
}
static void get_q5_k(const uint8_t *u, int r, void *p) {
    ht_block_q5_k *b = p;
    b->d = get_half(u, r);
    b->dmin = get_half(u + HALVES, r);
    get_k_scales(u, r, b->scales);
}

static void join_q6_k(const uint8_t *q, void *p) {
    ht_block_q6_k *b = p;
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < 4; s++)
            for (int j = 0; j < 32; j++) {
                int v = q[128 * h + 32 * s + j];
                b->ql[64 * h + 32 * (s & 1) + j] |= (uint8_t)((v & 15) << (s < 2 ? 0 : 4));
                b->qh[32 * h + j] |= (uint8_t)((v >> 4) << (2 * s));
            }
}
static void get_q6_k(const uint8_t *u, int r, void *p) {
    ht_block_q6_k *b = p;
    b->d = get_half(u, r);
    for (int g = 0; g < 16; g++) b->scales[g] = (int8_t)u[HALVES + HT_PANEL * g + r];
}

static void join_iq4_xs(const uint8_t *q, void *p) {
    for (int g = 0; g < 8; g++) join_nibbles(q + 32 * g, ((ht_block_iq4_xs *)p)->qs + 16 * g);
}
static void get_iq4_xs(const uint8_t *u, int r, void *p) {
    ht_block_iq4_xs *b = p;
    b->d = get_half(u, r);
    for (int i = 0; i < 4; i++) b->scales_l[i] = u[HALVES + HT_PANEL * i + r];
    for (int i = 0; i < 2; i++) b->scales_h[i] = u[HALVES + HT_PANEL * (4 + i) + r];
}

static void join_tq2_0(const uint8_t *q, void *p) { join_pairs(q, ((ht_block_tq2_0 *)p)->qs); }
static void get_tq2_0(const uint8_t *u, int r, void *p) { ((ht_block_tq2_0 *)p)->d = get_half(u, r); }

static const ht_block_codec codecs[HT_W_COUNT] = {
    [HT_W_Q4_0] = {join_q4_0, get_q4_0},       [HT_W_Q4_1] = {join_q4_1, get_q4_1},
    [HT_W_Q5_0] = {join_q5_0, get_q5_0},       [HT_W_Q5_1] = {join_q5_1, get_q5_1},
    [HT_W_Q8_0] = {join_q8_0, get_q8_0},       [HT_W_Q2_K] = {join_q2_k, get_q2_k},
    [HT_W_Q3_K] = {join_q3_k, get_q3_k},       [HT_W_Q4_K] = {join_q4_k, get_q4_k},
    [HT_W_Q5_K] = {join_q5_k, get_q5_k},       [HT_W_Q6_K] = {join_q6_k, get_q6_k},
    [HT_W_IQ4_NL] = {join_iq4_nl, get_iq4_nl}, [HT_W_IQ4_XS] = {join_iq4_xs, get_iq4_xs},
    [HT_W_MXFP4] = {join_mxfp4, get_mxfp4},    [HT_W_NVFP4] = {join_nvfp4, get_nvfp4},
    [HT_W_TQ2_0] = {join_tq2_0, get_tq2_0},
};

const ht_block_codec *ht_block_codec_of(ht_weight_type type) { return codecs[type].join ? &codecs[type] : NULL; }

/* ---- MLX's groups ---- */

void ht_join_affine(const ht_affine *a, const uint8_t *q, void *block) {
    uint8_t *to = (uint8_t *)block + 2 * a->scale_bytes;
    for (int i = 0; i < a->group; i += 8, to += a->bits) {
        uint64_t numbers = 0;
        for (int k = 0; k < 8; k++) numbers |= (uint64_t)q[i + k] << 8 * k;
        ht_affine_gather(a->bits, numbers, to);
    }
}

void ht_get_affine(const ht_affine *a, const uint8_t *unit, int r, void *block) {
    size_t n = (size_t)a->scale_bytes;
    memcpy(block, unit + n * (size_t)r, n);
    memcpy((uint8_t *)block + n, unit + n * (size_t)(HT_PANEL + r), n);
}
