#include "formats/block_pack.h"

#include "base/half.h"
#include "formats/affine.h"
#include "formats/blocks.h"

#include <math.h>
#include <string.h>

static ht_half_bytes half_bytes(float x) {
    const uint16_t bits = ht_f32_to_f16(x);
    return (ht_half_bytes){{(uint8_t)bits, (uint8_t)(bits >> 8)}};
}

/* ---- bits ---- */

/* Packs n elements into the low nibbles and the next n into the high nibbles. */
static void put_nibbles(const uint8_t *q, int n, uint8_t *to) {
    for (int i = 0; i < n; i++) to[i] = (uint8_t)((q[i] & 15) | q[i + n] << 4);
}

static void put_fifth_bits(const uint8_t *q, uint8_t qh[4]) {
    memset(qh, 0, 4);
    for (int i = 0; i < HT_BLOCK_SMALL; i++) qh[i / 8] = (uint8_t)(qh[i / 8] | (q[i] >> 4 & 1) << i % 8);
}

/* Packs bits 0 and 1 of 128 elements into 32 bytes, twice. */
static void put_pairs(const uint8_t *q, uint8_t qs[64]) {
    for (int h = 0; h < 2; h++, q += 128, qs += 32)
        for (int j = 0; j < 32; j++)
            qs[j] = (uint8_t)((q[j] & 3) | (q[32 + j] & 3) << 2 | (q[64 + j] & 3) << 4 | (q[96 + j] & 3) << 6);
}

/* Inverse of ht_k_scale_min. */
static void put_scales_and_mins(const ht_block_numbers *n, uint8_t to[12]) {
    for (int g = 0; g < 4; g++) {
        const uint8_t scale = (uint8_t)n->scale[g + 4], min = n->min[g + 4];
        to[g] = (uint8_t)((n->scale[g] & 63) | scale >> 4 << 6);
        to[g + 4] = (uint8_t)((n->min[g] & 63) | min >> 4 << 6);
        to[g + 8] = (uint8_t)((scale & 15) | (min & 15) << 4);
    }
}

/* ---- blocks of 32 ---- */

static void q4_0(const ht_block_numbers *n, ht_block_q4_0 *b) {
    b->d = half_bytes(n->d);
    put_nibbles(n->q, 16, b->qs);
}

static void q4_1(const ht_block_numbers *n, ht_block_q4_1 *b) {
    b->d = half_bytes(n->d);
    b->m = half_bytes(-n->m);
    put_nibbles(n->q, 16, b->qs);
}

static void q5_0(const ht_block_numbers *n, ht_block_q5_0 *b) {
    b->d = half_bytes(n->d);
    put_fifth_bits(n->q, b->qh);
    put_nibbles(n->q, 16, b->qs);
}

static void q5_1(const ht_block_numbers *n, ht_block_q5_1 *b) {
    b->d = half_bytes(n->d);
    b->m = half_bytes(-n->m);
    put_fifth_bits(n->q, b->qh);
    put_nibbles(n->q, 16, b->qs);
}

static void q8_0(const ht_block_numbers *n, ht_block_q8_0 *b) {
    b->d = half_bytes(n->d);
    for (int i = 0; i < HT_BLOCK_SMALL; i++) b->qs[i] = (int8_t)(n->q[i] - 127);
}

static void iq4_nl(const ht_block_numbers *n, ht_block_iq4_nl *b) {
    b->d = half_bytes(n->d);
    put_nibbles(n->q, 16, b->qs);
}

static void mxfp4(const ht_block_numbers *n, ht_block_mxfp4 *b) {
    int e = 0;
    if (n->d > 0) frexpf(n->d, &e);
    b->e = (uint8_t)(n->d > 0 ? e - 1 + 128 : 0);
    put_nibbles(n->q, 16, b->qs);
}

/* ---- blocks of 256 ---- */

static void q2_k(const ht_block_numbers *n, ht_block_q2_k *b) {
    b->d = half_bytes(n->d);
    b->dmin = half_bytes(n->m);
    for (int g = 0; g < 16; g++) b->scales[g] = (uint8_t)((n->scale[g] & 15) | n->min[g] << 4);
    put_pairs(n->q, b->qs);
}

static void q3_k(const ht_block_numbers *n, ht_block_q3_k *b) {
    b->d = half_bytes(n->d);
    put_pairs(n->q, b->qs);
    memset(b->hmask, 0, sizeof b->hmask);
    for (int i = 0; i < HT_BLOCK_K; i++) b->hmask[i % 32] = (uint8_t)(b->hmask[i % 32] | (n->q[i] >> 2 & 1) << i / 32);
    memset(b->scales, 0, sizeof b->scales);
    for (int g = 0; g < 16; g++) {
        const int scale = n->scale[g] + 32, high = 8 + (g & 3);
        b->scales[g & 7] = (uint8_t)(b->scales[g & 7] | (scale & 15) << (g < 8 ? 0 : 4));
        b->scales[high] = (uint8_t)(b->scales[high] | scale >> 4 << 2 * (g >> 2));
    }
}

static void q4_k(const ht_block_numbers *n, ht_block_q4_k *b) {
    b->d = half_bytes(n->d);
    b->dmin = half_bytes(n->m);
    put_scales_and_mins(n, b->scales);
    for (int p = 0; p < 4; p++) put_nibbles(n->q + 64 * p, 32, b->qs + 32 * p);
}

static void q5_k(const ht_block_numbers *n, ht_block_q5_k *b) {
    b->d = half_bytes(n->d);
    b->dmin = half_bytes(n->m);
    put_scales_and_mins(n, b->scales);
    for (int p = 0; p < 4; p++) put_nibbles(n->q + 64 * p, 32, b->qs + 32 * p);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < HT_BLOCK_K; i++) b->qh[i % 32] = (uint8_t)(b->qh[i % 32] | (n->q[i] >> 4 & 1) << i / 32);
}

static void q6_k(const ht_block_numbers *n, ht_block_q6_k *b) {
    b->d = half_bytes(n->d);
    memcpy(b->scales, n->scale, sizeof b->scales);
    for (int h = 0; h < 2; h++) {
        const uint8_t *q = n->q + 128 * h;
        uint8_t *ql = b->ql + 64 * h, *qh = b->qh + 32 * h;
        put_nibbles(q, 64, ql);
        for (int j = 0; j < 32; j++)
            qh[j] = (uint8_t)(q[j] >> 4 | q[32 + j] >> 4 << 2 | q[64 + j] >> 4 << 4 | q[96 + j] >> 4 << 6);
    }
}

static void iq4_xs(const ht_block_numbers *n, ht_block_iq4_xs *b) {
    b->d = half_bytes(n->d);
    memset(b->scales_h, 0, sizeof b->scales_h);
    memset(b->scales_l, 0, sizeof b->scales_l);
    for (int g = 0; g < 8; g++) {
        const int scale = n->scale[g] + 32;
        b->scales_l[g / 2] = (uint8_t)(b->scales_l[g / 2] | (scale & 15) << 4 * (g & 1));
        b->scales_h[g / 4] = (uint8_t)(b->scales_h[g / 4] | scale >> 4 << 2 * (g & 3));
        put_nibbles(n->q + 32 * g, 16, b->qs + 16 * g);
    }
}

/* ---- MLX's groups ---- */

static void put_float(ht_weight_type type, float x, uint8_t *to) {
    const uint32_t bits = type == HT_W_F32 ? ht_float_bits(x) : type == HT_W_F16 ? ht_f32_to_f16(x) : ht_f32_to_bf16(x);
    for (int i = 0; i < (type == HT_W_F32 ? 4 : 2); i++) to[i] = (uint8_t)(bits >> 8 * i);
}

static void affine(ht_weight_type type, const ht_block_numbers *n, uint8_t *to) {
    const ht_affine a = ht_affine_of(type);
    put_float(a.scale, n->d, to);
    put_float(a.scale, -n->m, to + a.scale_bytes);
    to += 2 * a.scale_bytes;
    for (int i = 0; i < a.group; i += 8, to += a.bits) {
        uint64_t eight = 0;
        for (int k = 0; k < 8; k++) eight |= (uint64_t)n->q[i + k] << 8 * k;
        ht_affine_gather(a.bits, eight, to);
    }
}

bool ht_block_is_packed(ht_weight_type type) {
    return (type >= HT_W_Q4_0 && type <= HT_W_MXFP4) || ht_affine_of(type).bits;
}

void ht_block_pack(ht_weight_type type, const ht_block_numbers *n, void *block) {
    switch (type) {
    case HT_W_Q4_0: q4_0(n, block); break;
    case HT_W_Q4_1: q4_1(n, block); break;
    case HT_W_Q5_0: q5_0(n, block); break;
    case HT_W_Q5_1: q5_1(n, block); break;
    case HT_W_Q8_0: q8_0(n, block); break;
    case HT_W_Q2_K: q2_k(n, block); break;
    case HT_W_Q3_K: q3_k(n, block); break;
    case HT_W_Q4_K: q4_k(n, block); break;
    case HT_W_Q5_K: q5_k(n, block); break;
    case HT_W_Q6_K: q6_k(n, block); break;
    case HT_W_IQ4_NL: iq4_nl(n, block); break;
    case HT_W_IQ4_XS: iq4_xs(n, block); break;
    case HT_W_MXFP4: mxfp4(n, block); break;
    default: affine(type, n, block); break;
    }
}
