#include "support/weights.h"

#include "base/half.h"
#include "formats/affine.h"
#include "formats/blocks.h"
#include "formats/codebook.h"

#include <string.h>

uint32_t test_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)(*state >> 33) ^ (uint32_t)(*state >> 18);
    return x * 2654435761u;
}

float test_random_float(uint64_t *state) { return (float)(int32_t)test_random(state) / 2147483648.0f; }

size_t test_row_bytes(ht_weight_type type, int64_t k) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    return (size_t)(k / info->block) * info->block_bytes;
}

static ht_half_bytes random_half(uint64_t *state, float size) {
    uint16_t bits = ht_f32_to_f16(size * test_random_float(state));
    ht_half_bytes h;
    memcpy(&h, &bits, sizeof h);
    return h;
}

static void put_float(ht_weight_type type, float value, uint8_t *to) {
    uint16_t half = type == HT_W_F16 ? ht_f32_to_f16(value) : ht_f32_to_bf16(value);
    if (type == HT_W_F32)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &half, sizeof half);
}

static void put_affine(const ht_affine *a, float scale, float bias, uint8_t *block) {
    put_float(a->scale, scale, block);
    put_float(a->scale, bias, block + a->scale_bytes);
}

static void random_scales(ht_weight_type type, uint64_t *state, void *block) {
    const ht_affine affine = ht_affine_of(type);
    if (affine.bits) {
        float scale = test_random_float(state) / (float)(1 << affine.bits);
        put_affine(&affine, scale, test_random_float(state), block);
        return;
    }
    switch (type) {
    case HT_W_Q4_0: ((ht_block_q4_0 *)block)->d = random_half(state, 0.1f); return;
    case HT_W_Q4_1:
        ((ht_block_q4_1 *)block)->d = random_half(state, 0.1f);
        ((ht_block_q4_1 *)block)->m = random_half(state, 1.0f);
        return;
    case HT_W_Q5_0: ((ht_block_q5_0 *)block)->d = random_half(state, 0.05f); return;
    case HT_W_Q5_1:
        ((ht_block_q5_1 *)block)->d = random_half(state, 0.05f);
        ((ht_block_q5_1 *)block)->m = random_half(state, 1.0f);
        return;
    case HT_W_Q8_0: ((ht_block_q8_0 *)block)->d = random_half(state, 0.01f); return;
    case HT_W_Q2_K:
        ((ht_block_q2_k *)block)->d = random_half(state, 0.02f);
        ((ht_block_q2_k *)block)->dmin = random_half(state, 0.05f);
        return;
    case HT_W_Q3_K: ((ht_block_q3_k *)block)->d = random_half(state, 0.01f); return;
    case HT_W_Q4_K:
        ((ht_block_q4_k *)block)->d = random_half(state, 0.002f);
        ((ht_block_q4_k *)block)->dmin = random_half(state, 0.02f);
        return;
    case HT_W_Q5_K:
        ((ht_block_q5_k *)block)->d = random_half(state, 0.001f);
        ((ht_block_q5_k *)block)->dmin = random_half(state, 0.02f);
        return;
    case HT_W_Q6_K: ((ht_block_q6_k *)block)->d = random_half(state, 0.0003f); return;
    case HT_W_IQ4_NL: ((ht_block_iq4_nl *)block)->d = random_half(state, 0.01f); return;
    case HT_W_IQ4_XS: ((ht_block_iq4_xs *)block)->d = random_half(state, 0.0003f); return;
    case HT_W_MXFP4: ((ht_block_mxfp4 *)block)->e = (uint8_t)(118 + test_random(state) % 9); return;
    case HT_W_NVFP4: return; /* any byte is a scale */
    case HT_W_TQ2_0: ((ht_block_tq2_0 *)block)->d = random_half(state, 1.0f); return;
    case HT_W_TQ1_0: ((ht_block_tq1_0 *)block)->d = random_half(state, 1.0f); return;
    case HT_W_Q1_0: ((ht_block_q1_0 *)block)->d = random_half(state, 1.0f); return;
    case HT_W_IQ1_S: ((ht_block_iq1_s *)block)->d = random_half(state, 0.1f); return;
    case HT_W_IQ1_M: { /* nibbles of four words */
        ht_block_iq1_m *b = block;
        ht_half_bytes d = random_half(state, 0.1f);
        for (int i = 0; i < 4; i++)
            b->scales[2 * i + 1] = (uint8_t)((b->scales[2 * i + 1] & 15) | (d.b[i / 2] >> 4 * (i & 1) & 15) << 4);
        return;
    }
    case HT_W_IQ2_XXS: ((ht_block_iq2_xxs *)block)->d = random_half(state, 0.01f); return;
    case HT_W_IQ2_XS: ((ht_block_iq2_xs *)block)->d = random_half(state, 0.01f); return;
    case HT_W_IQ2_S: ((ht_block_iq2_s *)block)->d = random_half(state, 0.01f); return;
    case HT_W_IQ3_XXS: ((ht_block_iq3_xxs *)block)->d = random_half(state, 0.002f); return;
    case HT_W_IQ3_S: ((ht_block_iq3_s *)block)->d = random_half(state, 0.002f); return;
    default: return;
    }
}

void test_random_weights(ht_weight_type type, int64_t n_rows, int64_t k, uint64_t *state, void *stored) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    uint8_t *p = stored;
    for (int64_t i = 0; i < n_rows * k / info->block; i++, p += info->block_bytes) {
        float value = test_random_float(state);
        if (ht_weight_is_f8(type)) /* a finite code of each sign */
            *p = (uint8_t)((test_random(state) >> 24) % (type == HT_W_F8_E4M3 ? 127 : 124) |
                           (ht_f32_to_bf16(value) & 0x80));
        else if (info->block == 1)
            put_float(type, value, p);
        else {
            for (size_t b = 0; b < info->block_bytes; b++) p[b] = (uint8_t)(test_random(state) >> 24);
            random_scales(type, state, p);
        }
    }
}

static ht_half_bytes half_of(float value) {
    uint16_t bits = ht_f32_to_f16(value);
    ht_half_bytes h;
    memcpy(&h, &bits, sizeof h);
    return h;
}

static float value_of(ht_half_bytes h) { return ht_half_at(h.b); }

/* The value, which becomes another one. */
static float take(ht_half_bytes *h, float left) {
    const float was = value_of(*h);
    *h = half_of(left);
    return was;
}

/* Takes scale and offset out of a block, so that it dequantises to its integers, and gives those of group g. */
static void take_scales(ht_weight_type type, void *block, int g, test_block *out) {
    const ht_affine affine = ht_affine_of(type);
    out->halves = 1;
    out->has_min = affine.bits || type == HT_W_Q4_1 || type == HT_W_Q5_1 || type == HT_W_Q2_K || type == HT_W_Q4_K ||
                   type == HT_W_Q5_K;
    if (affine.bits) {
        out->scale[0] = ht_affine_scale(&affine, block);
        out->min[0] = ht_affine_bias(&affine, block);
        put_affine(&affine, 1.0f, 0.0f, block);
        return;
    }
    switch (type) {
    case HT_W_Q4_0: out->scale[0] = take(&((ht_block_q4_0 *)block)->d, 1); return;
    case HT_W_Q5_0: out->scale[0] = take(&((ht_block_q5_0 *)block)->d, 1); return;
    case HT_W_Q8_0: out->scale[0] = take(&((ht_block_q8_0 *)block)->d, 1); return;
    case HT_W_IQ4_NL: out->scale[0] = take(&((ht_block_iq4_nl *)block)->d, 1); return;
    case HT_W_TQ2_0: out->scale[0] = take(&((ht_block_tq2_0 *)block)->d, 1); return;
    case HT_W_Q4_1:
        out->scale[0] = take(&((ht_block_q4_1 *)block)->d, 1);
        out->min[0] = take(&((ht_block_q4_1 *)block)->m, 0);
        return;
    case HT_W_Q5_1:
        out->scale[0] = take(&((ht_block_q5_1 *)block)->d, 1);
        out->min[0] = take(&((ht_block_q5_1 *)block)->m, 0);
        return;
    case HT_W_Q2_K: {
        ht_block_q2_k *b = block;
        out->halves = 2;
        for (int h = 0; h < 2; h++) {
            out->scale[h] = value_of(b->d) * (float)(b->scales[2 * g + h] & 15);
            out->min[h] = -(value_of(b->dmin) * (float)(b->scales[2 * g + h] >> 4));
        }
        b->d = half_of(1.0f);
        b->dmin = half_of(0.0f);
        memset(b->scales, 1, sizeof b->scales);
        return;
    }
    case HT_W_Q3_K: {
        ht_block_q3_k *b = block;
        out->halves = 2;
        for (int h = 0; h < 2; h++) out->scale[h] = value_of(b->d) * (float)ht_q3_k_scale(b->scales, 2 * g + h);
        b->d = half_of(1.0f);
        memset(b->scales, 0x11, 8); /* 33 - 32 = 1 everywhere */
        memset(b->scales + 8, 0xaa, 4);
        return;
    }
    case HT_W_Q4_K:
    case HT_W_Q5_K: {
        ht_block_q4_k *b = block; /* the head of q5_k is the same */
        uint8_t scale, min;
        ht_k_scale_min(b->scales, g, &scale, &min);
        out->scale[0] = value_of(b->d) * (float)scale;
        out->min[0] = -(value_of(b->dmin) * (float)min);
        b->d = half_of(1.0f);
        b->dmin = half_of(0.0f);
        memset(b->scales, 1, 12);
        return;
    }
    case HT_W_Q6_K: {
        ht_block_q6_k *b = block;
        out->halves = 2;
        for (int h = 0; h < 2; h++) out->scale[h] = value_of(b->d) * (float)b->scales[2 * g + h];
        b->d = half_of(1.0f);
        memset(b->scales, 1, sizeof b->scales);
        return;
    }
    case HT_W_IQ4_XS: {
        ht_block_iq4_xs *b = block;
        out->scale[0] = value_of(b->d) * (float)ht_iq4_xs_scale(b, g);
        b->d = half_of(1.0f);
        memset(b->scales_l, 0x11, sizeof b->scales_l); /* 33 - 32 = 1 everywhere */
        memset(b->scales_h, 0xaa, sizeof b->scales_h);
        return;
    }
    case HT_W_MXFP4: {
        ht_block_mxfp4 *b = block;
        out->scale[0] = ht_mxfp4_scale(b->e);
        b->e = 128;
        return;
    }
    case HT_W_NVFP4: {
        ht_block_nvfp4 *b = block;
        out->halves = 2;
        for (int h = 0; h < 2; h++) out->scale[h] = ht_ue4m3_half(b->d[2 * g + h]);
        memset(b->d, 0x40, sizeof b->d); /* 2, halved */
        return;
    }
    default: return;
    }
}

/* Types that are unpacked: test_dequantize.c says that they are so correctly. */
static test_block unpacked_block(const ht_codebook_fn *u, const void *block, int g) {
    ht_codebook_group w;
    u->unpack(block, g, &w);
    test_block out = {.halves = u->halves, .scale = {w.scale[0], u->halves == 2 ? w.scale[1] : 0.0f}};
    for (int i = 0; i < 32; i++) out.q[i] = w.q[i] - u->bias;
    return out;
}

test_block test_block_of(ht_weight_type type, const void *row, int64_t block) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    int per = info->block / 32, group = (int)(block % per);
    uint8_t copy[sizeof(ht_block_q6_k)];
    float integers[HT_BLOCK_K];
    memcpy(copy, (const uint8_t *)row + (size_t)(block / per) * info->block_bytes, info->block_bytes);
    test_block out = {0};
    if (ht_codebook_of(type)) return unpacked_block(ht_codebook_of(type), copy, group);
    take_scales(type, copy, group, &out);
    ht_dequantize(type, copy, info->block, integers);
    for (int i = 0; i < 32; i++) out.q[i] = (int)integers[32 * group + i];
    return out;
}
