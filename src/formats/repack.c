#include "formats/repack.h"

#include "base/checked.h"
#include "base/half.h"
#include "formats/affine.h"
#include "formats/block_pack.h"
#include "formats/blocks.h"

#include <math.h>
#include <string.h>

enum { GROUP = HT_BLOCK_SMALL, UNIT_MOST = HT_BLOCK_LENGTH };

int ht_repack_type(ht_weight_type from, int i) {
    const ht_affine a = ht_affine_of(from);
    if (a.bits && a.bits <= 4 && i < 2) return i ? HT_W_Q4_1 : HT_W_Q4_0;
    if (a.bits == 5 && i < 2) return i ? HT_W_Q5_1 : HT_W_Q5_0;
    if (a.bits && a.bits != 5 && a.bits > 4 && !i) return HT_W_Q8_0;
    if (i) return -1;
    switch (from) {
    case HT_W_Q4_0:
    case HT_W_Q4_1: return ht_affine_type(4, GROUP, HT_W_F16);
    case HT_W_Q5_0:
    case HT_W_Q5_1: return ht_affine_type(5, GROUP, HT_W_F16);
    case HT_W_Q8_0: return ht_affine_type(8, GROUP, HT_W_F16);
    case HT_W_Q4_K: return ht_affine_type(4, GROUP, HT_W_F32);
    case HT_W_Q5_K: return ht_affine_type(5, GROUP, HT_W_F32);
    case HT_W_MXFP4: return HT_W_MXFP4;
    default: return -1;
    }
}

int64_t ht_repack_unit(ht_weight_type from, ht_weight_type to) {
    return ht_max_i64(ht_weight_type_info_of(from)->block, ht_weight_type_info_of(to)->block);
}

/* ---- reading ---- */

/* 32 weights: d * q - m. */
typedef struct group {
    float d, m;
    uint8_t q[GROUP];
} group;

static void nibbles(const uint8_t qs[16], uint8_t q[GROUP]) {
    for (int i = 0; i < 16; i++) {
        q[i] = qs[i] & 15;
        q[i + 16] = qs[i] >> 4;
    }
}

static void fifth_bits(const uint8_t qh[4], uint8_t q[GROUP]) {
    for (int i = 0; i < GROUP; i++) q[i] = (uint8_t)(q[i] | (qh[i / 8] >> i % 8 & 1) << 4);
}

static void q4_k(const uint8_t *p, int g, group *out) {
    const ht_block_q4_k *b = (const void *)p;
    uint8_t scale, min;
    ht_k_scale_min(b->scales, g, &scale, &min);
    out->d = ht_half_at(b->d.b) * (float)scale;
    out->m = ht_half_at(b->dmin.b) * (float)min;
    for (int j = 0; j < GROUP; j++) out->q[j] = b->qs[g / 2 * 32 + j] >> (g % 2 * 4) & 15;
}

static void q5_k(const uint8_t *p, int g, group *out) {
    const ht_block_q5_k *b = (const void *)p;
    uint8_t scale, min;
    ht_k_scale_min(b->scales, g, &scale, &min);
    out->d = ht_half_at(b->d.b) * (float)scale;
    out->m = ht_half_at(b->dmin.b) * (float)min;
    for (int j = 0; j < GROUP; j++)
        out->q[j] = (uint8_t)((b->qs[g / 2 * 32 + j] >> (g % 2 * 4) & 15) | (b->qh[j] >> g & 1) << 4);
}

static void small_block(ht_weight_type type, const uint8_t *p, group *out) {
    const bool has_offset = type == HT_W_Q4_1 || type == HT_W_Q5_1, has_fifth = type == HT_W_Q5_0 || type == HT_W_Q5_1;
    const float d = ht_half_at(p);
    p += 2;
    out->d = d;
    out->m = has_offset ? -ht_half_at(p) : d * (type == HT_W_Q4_0 ? 8 : type == HT_W_Q5_0 ? 16 : 128);
    if (has_offset) p += 2;
    if (type == HT_W_Q8_0) {
        for (int i = 0; i < GROUP; i++) out->q[i] = (uint8_t)(p[i] ^ 128); /* adds 128 to a signed byte */
        return;
    }
    nibbles(has_fifth ? p + 4 : p, out->q);
    if (has_fifth) fifth_bits(p, out->q);
}

static void affine_group(const ht_affine *a, const uint8_t *p, int g, group *out) {
    const uint8_t *numbers = p + 2 * a->scale_bytes + g * GROUP / 8 * a->bits;
    out->d = ht_affine_scale(a, p);
    out->m = -ht_affine_bias(a, p);
    for (int i = 0; i < GROUP; i += 8, numbers += a->bits) {
        const uint64_t q = ht_affine_spread(a->bits, numbers);
        for (int k = 0; k < 8; k++) out->q[i + k] = (uint8_t)(q >> 8 * k);
    }
}

/* Group g of a block. */
static void read_group(ht_weight_type type, const ht_affine *a, const uint8_t *p, int g, group *out) {
    if (a->bits)
        affine_group(a, p, g, out);
    else if (type == HT_W_Q4_K)
        q4_k(p, g, out);
    else if (type == HT_W_Q5_K)
        q5_k(p, g, out);
    else
        small_block(type, p, out);
}

/* ---- writing ---- */

/* The number that stands for 0 in a type without offsets; 0 for others. */
static int zero_of(ht_weight_type type) {
    return type == HT_W_Q4_0 ? 8 : type == HT_W_Q5_0 ? 16 : type == HT_W_Q8_0 ? 127 : 0;
}

/* Without offsets the values are right where m is a whole number of d, and all numbers fit. */
static void write_group(ht_weight_type type, const group *g, void *block) {
    ht_block_numbers n = {.d = g->d, .m = g->m};
    const int zero = zero_of(type);
    int shift = 0;
    if (zero && fabsf(g->m) < 256 * fabsf(g->d)) shift = zero - (int)lrintf(g->m / g->d);
    for (int i = 0; i < GROUP; i++) n.q[i] = (uint8_t)(g->q[i] + shift);
    ht_block_pack(type, &n, block);
}

static bool same_values(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(a[i] == b[i])) return false; /* not of NaN, either */
    return true;
}

/* All types that are written have blocks of 32. */
static bool repack_unit(ht_weight_type from, const uint8_t *p, int64_t n, ht_weight_type to, uint8_t *out) {
    const ht_weight_type_info *source = ht_weight_type_info_of(from), *target = ht_weight_type_info_of(to);
    const ht_affine a = ht_affine_of(from);
    float before[UNIT_MOST], after[UNIT_MOST];
    for (int64_t at = 0; at < n; at += GROUP) {
        group g;
        read_group(from, &a, p + (size_t)(at / source->block) * source->block_bytes, (int)(at % source->block / GROUP),
                   &g);
        write_group(to, &g, out + (size_t)(at / GROUP) * target->block_bytes);
    }
    ht_dequantize(from, p, n, before);
    ht_dequantize(to, out, n, after);
    return same_values(before, after, n);
}

bool ht_repack(ht_weight_type from, const void *blocks, int64_t n, ht_weight_type to, void *out) {
    const ht_weight_type_info *source = ht_weight_type_info_of(from), *target = ht_weight_type_info_of(to);
    const int64_t unit = ht_repack_unit(from, to);
    if (from == to) {
        memcpy(out, blocks, (size_t)(n / source->block) * source->block_bytes);
        return true;
    }
    const uint8_t *p = blocks;
    uint8_t *q = out;
    bool same = true;
    for (int64_t at = 0; at < n && same; at += unit) {
        same = repack_unit(from, p, unit, to, q);
        p += (size_t)(unit / source->block) * source->block_bytes;
        q += (size_t)(unit / target->block) * target->block_bytes;
    }
    return same;
}
