/* Dequantisation: the values of every weight type in f32, bit for bit those of the `gguf` package, to which the order
 * of the multiplications belongs. Scalar code, for reference and cold paths. */
#include "base/half.h"
#include "formats/affine.h"
#include "formats/blocks.h"
#include "formats/codebook.h"
#include "formats/weight_type.h"

#include <math.h>
#include <string.h>

#define CODE(value) value
static const int8_t codes_iq4[16] = {HT_IQ4_VALUES(CODE)}, codes_e2m1[16] = {HT_E2M1_VALUES(CODE)};

static float half_value(ht_half_bytes h) { return ht_half_at(h.b); }

static void f32(const uint8_t *p, float *y) {
    uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    memcpy(y, &bits, sizeof bits); /* by bits: keeps a signalling NaN */
}

static void f16(const uint8_t *p, float *y) { *y = ht_half_at(p); }

static void bf16(const uint8_t *p, float *y) {
    uint32_t bits = (uint32_t)ht_u16_at(p) << 16;
    memcpy(y, &bits, sizeof bits);
}

/* The bits of an f16 with an exponent biased by 8 less; 127 is NaN, there is no infinity. */
static void f8_e4m3(const uint8_t *p, float *y) {
    int magnitude = *p & 127;
    float value = magnitude == 127 ? NAN : ht_f16_to_f32((uint16_t)(magnitude << 7)) * 256.0f;
    *y = *p >> 7 ? -value : value;
}

/* The upper byte of an f16. */
static void f8_e5m2(const uint8_t *p, float *y) { *y = ht_f16_to_f32((uint16_t)(*p << 8)); }

static void q4_0(const uint8_t *p, float *y) {
    const ht_block_q4_0 *b = (const void *)p;
    float d = half_value(b->d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((b->qs[i] & 15) - 8);
        y[i + 16] = d * (float)((b->qs[i] >> 4) - 8);
    }
}

static void q4_1(const uint8_t *p, float *y) {
    const ht_block_q4_1 *b = (const void *)p;
    float d = half_value(b->d), m = half_value(b->m);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(b->qs[i] & 15) + m;
        y[i + 16] = d * (float)(b->qs[i] >> 4) + m;
    }
}

static int fifth_bit(const uint8_t qh[4], int i) { return ((qh[i / 8] >> (i % 8)) & 1) << 4; }

static void q5_0(const uint8_t *p, float *y) {
    const ht_block_q5_0 *b = (const void *)p;
    float d = half_value(b->d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(((b->qs[i] & 15) | fifth_bit(b->qh, i)) - 16);
        y[i + 16] = d * (float)(((b->qs[i] >> 4) | fifth_bit(b->qh, i + 16)) - 16);
    }
}

static void q5_1(const uint8_t *p, float *y) {
    const ht_block_q5_1 *b = (const void *)p;
    float d = half_value(b->d), m = half_value(b->m);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((b->qs[i] & 15) | fifth_bit(b->qh, i)) + m;
        y[i + 16] = d * (float)((b->qs[i] >> 4) | fifth_bit(b->qh, i + 16)) + m;
    }
}

static void q8_0(const uint8_t *p, float *y) {
    const ht_block_q8_0 *b = (const void *)p;
    float d = half_value(b->d);
    for (int i = 0; i < 32; i++) y[i] = d * (float)b->qs[i];
}

/* The two low bits of element i of a q2_k or q3_k block. */
static int two_bits(const uint8_t qs[64], int i) { return (qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4))) & 3; }

static void q2_k(const uint8_t *p, float *y) {
    const ht_block_q2_k *b = (const void *)p;
    float d = half_value(b->d), dmin = half_value(b->dmin);
    for (int g = 0; g < 16; g++) {
        float scale = d * (float)(b->scales[g] & 15), min = dmin * (float)(b->scales[g] >> 4);
        for (int i = 16 * g; i < 16 * g + 16; i++) y[i] = scale * (float)two_bits(b->qs, i) - min;
    }
}

static void q3_k(const uint8_t *p, float *y) {
    const ht_block_q3_k *b = (const void *)p;
    float d = half_value(b->d);
    for (int g = 0; g < 16; g++) {
        float scale = d * (float)ht_q3_k_scale(b->scales, g);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            int high = (b->hmask[i % 32] >> (i / 32)) & 1;
            y[i] = scale * (float)(two_bits(b->qs, i) - (high ? 0 : 4));
        }
    }
}

/* The low nibble of element i of a q4_k or q5_k block. */
static int nibble(const uint8_t qs[128], int i) { return (qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2))) & 15; }

static void q4_k(const uint8_t *p, float *y) {
    const ht_block_q4_k *b = (const void *)p;
    float d = half_value(b->d), dmin = half_value(b->dmin);
    for (int g = 0; g < 8; g++) {
        uint8_t sc, m;
        ht_k_scale_min(b->scales, g, &sc, &m);
        float scale = d * (float)sc, min = dmin * (float)m;
        for (int i = 32 * g; i < 32 * g + 32; i++) y[i] = scale * (float)nibble(b->qs, i) - min;
    }
}

static void q5_k(const uint8_t *p, float *y) {
    const ht_block_q5_k *b = (const void *)p;
    float d = half_value(b->d), dmin = half_value(b->dmin);
    for (int g = 0; g < 8; g++) {
        uint8_t sc, m;
        ht_k_scale_min(b->scales, g, &sc, &m);
        float scale = d * (float)sc, min = dmin * (float)m;
        for (int j = 0; j < 32; j++) {
            int i = 32 * g + j;
            y[i] = scale * (float)(nibble(b->qs, i) | ((b->qh[j] >> g) & 1) << 4) - min;
        }
    }
}

static void q6_k(const uint8_t *p, float *y) {
    const ht_block_q6_k *b = (const void *)p;
    float d = half_value(b->d);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, s = i / 32 % 4, j = i % 32;
        int low = (b->ql[64 * half + 32 * (s & 1) + j] >> (s < 2 ? 0 : 4)) & 15;
        int high = (b->qh[32 * half + j] >> (2 * s)) & 3;
        float scale = d * (float)b->scales[i / 16];
        y[i] = scale * (float)((low | high << 4) - 32);
    }
}

static void iq4_nl(const uint8_t *p, float *y) {
    const ht_block_iq4_nl *b = (const void *)p;
    float d = half_value(b->d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)codes_iq4[b->qs[i] & 15];
        y[i + 16] = d * (float)codes_iq4[b->qs[i] >> 4];
    }
}

static void iq4_xs(const uint8_t *p, float *y) {
    const ht_block_iq4_xs *b = (const void *)p;
    for (int g = 0; g < 8; g++) {
        float scale = half_value(b->d) * (float)ht_iq4_xs_scale(b, g);
        for (int i = 0; i < 16; i++) {
            y[32 * g + i] = scale * (float)codes_iq4[b->qs[16 * g + i] & 15];
            y[32 * g + i + 16] = scale * (float)codes_iq4[b->qs[16 * g + i] >> 4];
        }
    }
}

static void mxfp4(const uint8_t *p, float *y) {
    const ht_block_mxfp4 *b = (const void *)p;
    float d = ht_mxfp4_scale(b->e);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)codes_e2m1[b->qs[i] & 15];
        y[i + 16] = d * (float)codes_e2m1[b->qs[i] >> 4];
    }
}

static void nvfp4(const uint8_t *p, float *y) {
    const ht_block_nvfp4 *b = (const void *)p;
    for (int g = 0; g < 4; g++) {
        float d = ht_ue4m3_half(b->d[g]);
        for (int i = 0; i < 8; i++) {
            y[16 * g + i] = d * (float)codes_e2m1[b->qs[8 * g + i] & 15];
            y[16 * g + i + 8] = d * (float)codes_e2m1[b->qs[8 * g + i] >> 4];
        }
    }
}

static void tq2_0(const uint8_t *p, float *y) {
    const ht_block_tq2_0 *b = (const void *)p;
    float d = half_value(b->d);
    for (int i = 0; i < 256; i++) y[i] = d * (float)(two_bits(b->qs, i) - 1);
}

static void unpacked_block(const ht_codebook_fn *u, const uint8_t *p, int n, float *y) {
    for (int g = 0; g < n / 32; g++) {
        ht_codebook_group w;
        u->unpack(p, g, &w);
        for (int i = 0; i < 32; i++) y[32 * g + i] = w.scale[u->halves == 2 ? i / 16 : 0] * (float)(w.q[i] - u->bias);
    }
}

/* Floats without a call for each. */
static void floats(ht_weight_type type, const uint8_t *p, int64_t n, float *y) {
    if (type == HT_W_F32)
        for (int64_t i = 0; i < n; i++) f32(p + 4 * i, y + i);
    else if (type == HT_W_F16)
        for (int64_t i = 0; i < n; i++) f16(p + 2 * i, y + i);
    else
        for (int64_t i = 0; i < n; i++) bf16(p + 2 * i, y + i);
}

void ht_dequantize(ht_weight_type type, const void *blocks, int64_t n, float *out) {
    static void (*const one_block[HT_W_COUNT])(const uint8_t *, float *) = {
        [HT_W_Q4_0] = q4_0,       [HT_W_Q4_1] = q4_1,   [HT_W_Q5_0] = q5_0,     [HT_W_Q5_1] = q5_1,
        [HT_W_Q8_0] = q8_0,       [HT_W_Q2_K] = q2_k,   [HT_W_Q3_K] = q3_k,     [HT_W_Q4_K] = q4_k,
        [HT_W_Q5_K] = q5_k,       [HT_W_Q6_K] = q6_k,   [HT_W_IQ4_NL] = iq4_nl, [HT_W_IQ4_XS] = iq4_xs,
        [HT_W_MXFP4] = mxfp4,     [HT_W_NVFP4] = nvfp4, [HT_W_TQ2_0] = tq2_0,   [HT_W_F8_E4M3] = f8_e4m3,
        [HT_W_F8_E5M2] = f8_e5m2,
    };
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const ht_codebook_fn *unpacker = ht_codebook_of(type);
    const ht_affine affine = ht_affine_of(type);
    const uint8_t *p = blocks;
    if (type <= HT_W_BF16) {
        floats(type, p, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i += info->block, p += info->block_bytes)
        if (affine.bits)
            ht_affine_dequantize(&affine, p, out + i);
        else if (unpacker)
            unpacked_block(unpacker, p, info->block, out + i);
        else
            one_block[type](p, out + i);
}
