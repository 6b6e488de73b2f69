/* The values of packed weights, equal to those of formats/dequantize.c: eight adjacent columns of a row of any form. */
#ifndef HT_CUDA_MATRIX_VALUES_CUH
#define HT_CUDA_MATRIX_VALUES_CUH

#include "cuda/matrix.h"
#include "cuda/tensor.cuh"

/* The blocks, codebooks and bits of formats/, compiled for the GPU. */
#ifdef __CUDACC__
#define static static __device__
#endif
#include "formats/affine.h"
#include "formats/blocks.h"
#ifdef __CUDACC__
#define const __device__ const
#else
#include "formats/codebook_tables.h"
#define const extern __attribute__((weak)) const /* more than one module has them */
#endif
#include "formats/codebook_tables.c"
#undef const
#ifdef __CUDACC__
#undef static
#endif

/* ---- experts ---- */

static __device__ __forceinline__ ht_cuda_expert ht_expert_of(const ht_cuda_expert_list &experts, int64_t e) {
    return experts.table ? experts.table[e] : experts.entry[e];
}

static __device__ __forceinline__ int64_t ht_id_of(const ht_cuda_pair_ids &ids, int64_t pair) {
    return ids.id[pair / ids.per_row * ids.stride[0] + pair % ids.per_row * ids.stride[1]];
}

#define HT_CUDA_CODE(value) value
static __device__ const int8_t ht_codes_iq4[16] = {HT_IQ4_VALUES(HT_CUDA_CODE)};
static __device__ const int8_t ht_codes_e2m1[16] = {HT_E2M1_VALUES(HT_CUDA_CODE)};

/* ---- numbers ---- */

static __device__ __forceinline__ float ht_half_of(ht_half_bytes h) { return ht_half_value(ht_u16_at(h.b)); }

/* Bytes become floats by bit insertion, as conversions are slow: 128 + x for byte k of a word, x below 128; and 32768 +
 * x, x below 256. */
#define HT_SEVEN_BITS 128.0f
#define HT_EIGHT_BITS 32768.0f
static __device__ __forceinline__ float ht_seven_of(uint32_t word, int k) {
    return __uint_as_float(__byte_perm(word, 0x43000000u, 0x7044u | (uint32_t)k << 8));
}
static __device__ __forceinline__ float ht_eight_of(uint32_t word, int k) {
    return __uint_as_float(__byte_perm(word, 0x47000000u, 0x7404u | (uint32_t)k << 4));
}

/* ---- eight columns, as stored: columns 8 g to 8 g + 7 of a row ---- */

/* Nibble k of the g-th eight of 32: low nibbles of 16 bytes, then high ones. */
static __device__ __forceinline__ int ht_nibble_of(const uint8_t *qs, int g, int k) {
    return qs[8 * (g & 1) + k] >> 4 * (g >> 1) & 15;
}
static __device__ __forceinline__ int ht_fifth_of(const uint8_t *qh, int g, int k) { return (qh[g] >> k & 1) << 4; }

/* Digit n of base-3 fractions. */
static __device__ __forceinline__ int ht_digit_of(uint8_t fraction, int n) {
    uint8_t shifted = fraction;
    for (int i = 0; i < n; i++) shifted = (uint8_t)(shifted * 3);
    return shifted * 3 >> 8;
}

static __device__ void ht_stored_tq1(const uint8_t *row, int64_t part, float *w) {
    const ht_block_tq1_0 *b = (const ht_block_tq1_0 *)row + (part >> 5);
    const int first = 8 * (int)(part & 31);
    const float d = ht_half_of(b->d);
    for (int k = 0; k < 8; k++) {
        const int i = first + k;
        const int digit = i < 160   ? ht_digit_of(b->qs[i % 32], i / 32)
                          : i < 240 ? ht_digit_of(b->qs[32 + (i - 160) % 16], (i - 160) / 16)
                                    : ht_digit_of(b->qh[(i - 240) % 4], (i - 240) / 4);
        w[k] = d * (float)(digit - 1);
    }
}

static __device__ void ht_stored_nvfp4(const uint8_t *row, int64_t part, float *w) {
    const ht_block_nvfp4 *b = (const ht_block_nvfp4 *)row + (part >> 3);
    const int g = (int)(part & 7);
    const float d = ht_ue4m3_half(b->d[g >> 1]);
    for (int k = 0; k < 8; k++) w[k] = d * (float)ht_codes_e2m1[b->qs[8 * (g >> 1) + k] >> 4 * (g & 1) & 15];
}

static __device__ void ht_stored_q1(const uint8_t *row, int64_t part, float *w) {
    const ht_block_q1_0 *b = (const ht_block_q1_0 *)row + (part >> 4);
    const int signs = b->qs[part & 15];
    const float d = ht_half_of(b->d);
    for (int k = 0; k < 8; k++) w[k] = signs >> k & 1 ? d : -d;
}

/* w[k] = scale * (magnitude k, minus where bit k of `signs` is set), magnitudes in the bytes of a word. */
static __device__ __forceinline__ void ht_signed_values(float scale, uint64_t magnitudes, uint32_t signs, float *w) {
    for (int k = 0; k < 8; k++) {
        const int value = (int)(magnitudes >> 8 * k & 255);
        w[k] = scale * (float)(signs >> k & 1 ? -value : value);
    }
}

static __device__ __forceinline__ uint32_t ht_word_at(const uint8_t *p) {
    return ht_u16_at(p) | (uint32_t)ht_u16_at(p + 2) << 16;
}
static __device__ __forceinline__ int ht_nibble_at(const uint8_t *p, int i) { return p[i / 2] >> 4 * (i & 1) & 15; }
static __device__ __forceinline__ float ht_iq2_scale(float d, int s) { return d * (0.5f + (float)s) * 0.25f; }

/* Codebooks: the i-th entry of group j of 32 columns. */
static __device__ void ht_stored_grid(int type, const uint8_t *row, int64_t part, float *w) {
    const int g = (int)(part & 31), j = g >> 2, i = g & 3;
    const int64_t block = part >> 5;
    switch (type) {
    case HT_W_IQ2_XXS: {
        const ht_block_iq2_xxs *b = (const ht_block_iq2_xxs *)row + block;
        const uint32_t rest = ht_word_at(b->qs + 8 * j + 4);
        ht_signed_values(ht_iq2_scale(ht_half_of(b->d), (int)(rest >> 28)),
                         ht_grid_iq2_values(ht_grid_iq2_xxs[b->qs[8 * j + i]]), ht_signs_of(rest >> 7 * i & 127), w);
        break;
    }
    case HT_W_IQ2_XS: {
        const ht_block_iq2_xs *b = (const ht_block_iq2_xs *)row + block;
        const uint32_t both = ht_u16_at(b->qs + 8 * j + 2 * i);
        ht_signed_values(ht_iq2_scale(ht_half_of(b->d), ht_nibble_at(b->scales, 2 * j + i / 2)),
                         ht_grid_iq2_values(ht_grid_iq2_xs[both & 511]), ht_signs_of(both >> 9), w);
        break;
    }
    case HT_W_IQ2_S: {
        const ht_block_iq2_s *b = (const ht_block_iq2_s *)row + block;
        const int number = b->qs[4 * j + i] | (b->qh[j] >> 2 * i & 3) << 8;
        ht_signed_values(ht_iq2_scale(ht_half_of(b->d), ht_nibble_at(b->scales, 2 * j + i / 2)),
                         ht_grid_iq2_values(ht_grid_iq2_s[number]), b->signs[4 * j + i], w);
        break;
    }
    case HT_W_IQ3_XXS: {
        const ht_block_iq3_xxs *b = (const ht_block_iq3_xxs *)row + block;
        const uint32_t rest = ht_word_at(b->scales + 4 * j);
        const uint8_t *number = b->qs + 8 * j + 2 * i;
        const uint64_t values = ht_grid_iq3_xxs_values(ht_grid_iq3_xxs[number[0]]) |
                                (uint64_t)ht_grid_iq3_xxs_values(ht_grid_iq3_xxs[number[1]]) << 32;
        ht_signed_values(ht_half_of(b->d) * (0.5f + (float)(rest >> 28)) * 0.5f, values,
                         ht_signs_of(rest >> 7 * i & 127), w);
        break;
    }
    case HT_W_IQ3_S: {
        const ht_block_iq3_s *b = (const ht_block_iq3_s *)row + block;
        const uint8_t *low = b->qs + 8 * j + 2 * i;
        const int first = low[0] | (b->qh[j] >> 2 * i & 1) << 8, second = low[1] | (b->qh[j] >> (2 * i + 1) & 1) << 8;
        const uint64_t values =
            ht_grid_iq3_s_values(ht_grid_iq3_s[first]) | (uint64_t)ht_grid_iq3_s_values(ht_grid_iq3_s[second]) << 32;
        ht_signed_values(ht_half_of(b->d) * (float)(1 + 2 * ht_nibble_at(b->scales, j)), values, b->signs[4 * j + i],
                         w);
        break;
    }
    case HT_W_IQ1_S: {
        const ht_block_iq1_s *b = (const ht_block_iq1_s *)row + block;
        const int high = ht_u16_at(b->qh + 2 * j), number = b->qs[4 * j + i] | (high >> 3 * i & 7) << 8;
        const float scale = ht_half_of(b->d) * (float)(2 * (high >> 12 & 7) + 1) * 0.125f;
        const uint64_t codes = ht_grid_pairs(ht_grid_iq1[number]);
        for (int k = 0; k < 8; k++) w[k] = scale * (float)((int)(codes >> 8 * k & 3) * 8 - (high >> 15 ? 9 : 7));
        break;
    }
    case HT_W_IQ1_M: {
        const ht_block_iq1_m *b = (const ht_block_iq1_m *)row + block;
        uint32_t d = 0;
        for (int n = 0; n < 4; n++) d |= (uint32_t)(b->scales[2 * n + 1] >> 4) << 4 * n;
        const int n = 2 * j + i / 2, s = ht_u16_at(b->scales + n / 4 * 2) >> 3 * (n % 4) & 7;
        const int high = ht_nibble_at(b->qh, 4 * j + i), number = b->qs[4 * j + i] | (high & 7) << 8;
        const float scale = ht_half_value(d) * (float)(2 * s + 1) * 0.125f;
        const uint64_t codes = ht_grid_pairs(ht_grid_iq1[number]);
        for (int k = 0; k < 8; k++) w[k] = scale * (float)((int)(codes >> 8 * k & 3) * 8 - (high >> 3 ? 9 : 7));
        break;
    }
    case HT_W_TQ1_0: ht_stored_tq1(row, part, w); break;
    case HT_W_NVFP4: ht_stored_nvfp4(row, part, w); break;
    default: ht_stored_q1(row, part, w);
    }
}

/* Blocks of 256, whose g-th eight it is. */
static __device__ void ht_stored_k(int type, const uint8_t *row, int64_t part, float *w) {
    const int g = (int)(part & 31), in32 = 8 * (g & 3), group = g >> 2;
    const int64_t block = part >> 5;
    switch (type) {
    case HT_W_Q2_K: {
        const ht_block_q2_k *b = (const ht_block_q2_k *)row + block;
        const int s = b->scales[g >> 1];
        const float scale = ht_half_of(b->d) * (float)(s & 15), min = ht_half_of(b->dmin) * (float)(s >> 4);
        for (int k = 0; k < 8; k++)
            w[k] = scale * (float)(b->qs[32 * (g >> 4) + in32 + k] >> 2 * (group & 3) & 3) - min;
        break;
    }
    case HT_W_Q3_K: {
        const ht_block_q3_k *b = (const ht_block_q3_k *)row + block;
        const float scale = ht_half_of(b->d) * (float)ht_q3_k_scale(b->scales, g >> 1);
        for (int k = 0; k < 8; k++) {
            const int high = b->hmask[in32 + k] >> group & 1,
                      q = b->qs[32 * (g >> 4) + in32 + k] >> 2 * (group & 3) & 3;
            w[k] = scale * (float)(q - (high ? 0 : 4));
        }
        break;
    }
    case HT_W_Q4_K:
    case HT_W_Q5_K: {
        const bool five = type == HT_W_Q5_K;
        const ht_block_q4_k *b4 = (const ht_block_q4_k *)row + block;
        const ht_block_q5_k *b5 = (const ht_block_q5_k *)row + block;
        const uint8_t *qs = five ? b5->qs : b4->qs;
        uint8_t sc, m;
        ht_k_scale_min(five ? b5->scales : b4->scales, group, &sc, &m);
        const float scale = ht_half_of(five ? b5->d : b4->d) * (float)sc;
        const float min = ht_half_of(five ? b5->dmin : b4->dmin) * (float)m;
        for (int k = 0; k < 8; k++) {
            const int high = five ? (b5->qh[in32 + k] >> group & 1) << 4 : 0;
            w[k] = scale * (float)((qs[32 * (g >> 3) + in32 + k] >> 4 * (group & 1) & 15) | high) - min;
        }
        break;
    }
    case HT_W_Q6_K: {
        const ht_block_q6_k *b = (const ht_block_q6_k *)row + block;
        const int half = g >> 4, s = group & 3;
        const float scale = ht_half_of(b->d) * (float)b->scales[g >> 1];
        for (int k = 0; k < 8; k++) {
            const int low = b->ql[64 * half + 32 * (s & 1) + in32 + k] >> (s < 2 ? 0 : 4) & 15;
            const int high = b->qh[32 * half + in32 + k] >> 2 * s & 3;
            w[k] = scale * (float)((low | high << 4) - 32);
        }
        break;
    }
    case HT_W_IQ4_XS: {
        const ht_block_iq4_xs *b = (const ht_block_iq4_xs *)row + block;
        const float scale = ht_half_of(b->d) * (float)ht_iq4_xs_scale(b, group);
        for (int k = 0; k < 8; k++) w[k] = scale * (float)ht_codes_iq4[ht_nibble_of(b->qs + 16 * group, g & 3, k)];
        break;
    }
    case HT_W_TQ2_0: {
        const ht_block_tq2_0 *b = (const ht_block_tq2_0 *)row + block;
        const float d = ht_half_of(b->d);
        for (int k = 0; k < 8; k++) w[k] = d * (float)((b->qs[32 * (g >> 4) + in32 + k] >> 2 * (group & 3) & 3) - 1);
        break;
    }
    default: ht_stored_grid(type, row, part, w);
    }
}

/* Blocks of 32; the others are blocks of 256, or rare. */
static __device__ void ht_stored_small(int type, const uint8_t *row, int64_t part, float *w) {
    const int g = (int)(part & 3);
    const int64_t block = part >> 2;
    switch (type) {
    case HT_W_Q4_0: {
        const ht_block_q4_0 *b = (const ht_block_q4_0 *)row + block;
        const float d = ht_half_of(b->d);
        for (int k = 0; k < 8; k++) w[k] = d * (float)(ht_nibble_of(b->qs, g, k) - 8);
        break;
    }
    case HT_W_Q4_1: {
        const ht_block_q4_1 *b = (const ht_block_q4_1 *)row + block;
        const float d = ht_half_of(b->d), m = ht_half_of(b->m);
        for (int k = 0; k < 8; k++) w[k] = d * (float)ht_nibble_of(b->qs, g, k) + m;
        break;
    }
    case HT_W_Q5_0: {
        const ht_block_q5_0 *b = (const ht_block_q5_0 *)row + block;
        const float d = ht_half_of(b->d);
        for (int k = 0; k < 8; k++) w[k] = d * (float)((ht_nibble_of(b->qs, g, k) | ht_fifth_of(b->qh, g, k)) - 16);
        break;
    }
    case HT_W_Q5_1: {
        const ht_block_q5_1 *b = (const ht_block_q5_1 *)row + block;
        const float d = ht_half_of(b->d), m = ht_half_of(b->m);
        for (int k = 0; k < 8; k++) w[k] = d * (float)(ht_nibble_of(b->qs, g, k) | ht_fifth_of(b->qh, g, k)) + m;
        break;
    }
    case HT_W_Q8_0: {
        const ht_block_q8_0 *b = (const ht_block_q8_0 *)row + block;
        const float d = ht_half_of(b->d);
        for (int k = 0; k < 8; k++) w[k] = d * (float)b->qs[8 * g + k];
        break;
    }
    case HT_W_IQ4_NL: {
        const ht_block_iq4_nl *b = (const ht_block_iq4_nl *)row + block;
        const float d = ht_half_of(b->d);
        for (int k = 0; k < 8; k++) w[k] = d * (float)ht_codes_iq4[ht_nibble_of(b->qs, g, k)];
        break;
    }
    case HT_W_MXFP4: {
        const ht_block_mxfp4 *b = (const ht_block_mxfp4 *)row + block;
        const float d = ht_mxfp4_scale(b->e);
        for (int k = 0; k < 8; k++) w[k] = d * (float)ht_codes_e2m1[ht_nibble_of(b->qs, g, k)];
        break;
    }
    default: ht_stored_k(type, row, part, w);
    }
}

static __device__ float ht_scale_at(int type, const uint8_t *p) {
    if (type == HT_W_F16) return ht_half_value(ht_u16_at(p));
    if (type == HT_W_BF16) return ht_bf16_to_f32(ht_u16_at(p));
    return __uint_as_float(ht_word_at(p));
}

static __device__ void ht_stored_affine(const ht_cuda_weights &m, const uint8_t *row, int64_t part, float *w) {
    const int scale_bytes = m.scale_type == HT_W_F32 ? 4 : 2;
    const int64_t block = part * 8 / m.group, bytes = 2 * scale_bytes + m.group * m.bits / 8;
    const uint8_t *b = row + block * bytes;
    const uint8_t *numbers = b + 2 * scale_bytes + (part * 8 - block * m.group) / 8 * m.bits;
    const float scale = ht_scale_at(m.scale_type, b), bias = ht_scale_at(m.scale_type, b + scale_bytes);
    uint64_t q = 0;
    for (int i = 0; i < m.bits; i++) q |= (uint64_t)numbers[i] << 8 * i;
    for (int k = 0; k < 8; k++) w[k] = scale * (float)(q >> m.bits * k & ((1u << m.bits) - 1)) + bias;
}

static __device__ __forceinline__ float ht_f8_value(bool e5m2, uint8_t x) {
    if (e5m2) return ht_half_value((uint32_t)x << 8);
    const int magnitude = x & 127;
    const float value = magnitude == 127 ? NAN : ht_half_value((uint32_t)magnitude << 7) * 256.0f;
    return x >> 7 ? -value : value;
}

/* The scales of row `index` of 8-bit floats; NULL: none. */
static __device__ __forceinline__ const float *ht_scales_of(const ht_cuda_weights &m, int64_t index) {
    if (!m.scales) return NULL;
    return m.scales + (m.first_row + index) / m.scale_rows * ((m.k + m.scale_columns - 1) / m.scale_columns);
}

/* ---- forms: columns 8 g to 8 g + 7 of a row, wherever they are ---- */

static __device__ __forceinline__ uint32_t ht_component(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* w = scale (q - zero) of eight nibbles. With few bits in the scale, sums of such products are exact. */
static __device__ __forceinline__ void ht_scaled_nibbles(uint32_t v, float zero, float scale, float *w) {
    const uint32_t even = v & 0x0F0F0F0Fu, odd = v >> 4 & 0x0F0F0F0Fu;
    const float add = -(HT_SEVEN_BITS + zero) * scale;
    for (int k = 0; k < 4; k++) {
        w[2 * k] = fmaf(ht_seven_of(even, k), scale, add);
        w[2 * k + 1] = fmaf(ht_seven_of(odd, k), scale, add);
    }
}

/* w = scale q + add, rounded once. */
static __device__ __forceinline__ void ht_affine_nibbles(uint32_t v, float scale, float add, float *w) {
    const uint32_t even = v & 0x0F0F0F0Fu, odd = v >> 4 & 0x0F0F0F0Fu;
    for (int k = 0; k < 4; k++) {
        w[2 * k] = fmaf(ht_seven_of(even, k) - HT_SEVEN_BITS, scale, add);
        w[2 * k + 1] = fmaf(ht_seven_of(odd, k) - HT_SEVEN_BITS, scale, add);
    }
}

template <typename T> static __device__ __forceinline__ T ht_load(const uint8_t *p) { return __ldg((const T *)p); }

static __device__ __forceinline__ void ht_part_STORED(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                      float *w) {
    if (m.bits)
        ht_stored_affine(m, row, g, w);
    else
        ht_stored_small(m.type, row, g, w);
}

static __device__ __forceinline__ void ht_part_F32(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                   float *w) {
    for (int k = 0; k < 8; k++) w[k] = 8 * g + k < m.k ? ((const float *)row)[8 * g + k] : 0.0f;
}

/* 16-bit floats. */
template <bool HALF>
static __device__ __forceinline__ void ht_part_16(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                  float *w) {
    const uint16_t *p = (const uint16_t *)row + 8 * g;
    for (int k = 0; k < 8; k++) {
        const uint16_t bits = 8 * g + k < m.k ? p[k] : 0;
        w[k] = HALF ? ht_half_value(bits) : ht_bf16_to_f32(bits);
    }
}
#define ht_part_F16  ht_part_16<true>
#define ht_part_BF16 ht_part_16<false>

/* 8-bit floats as stored. */
static __device__ __forceinline__ void ht_part_F8(const ht_cuda_weights &m, const uint8_t *row, int64_t index,
                                                  int64_t g, float *w) {
    const float *scales = ht_scales_of(m, index);
    for (int k = 0; k < 8; k++) {
        const int64_t column = 8 * g + k;
        w[k] = column < m.k ? ht_f8_value(m.type == HT_W_F8_E5M2, row[column]) : 0.0f;
        if (scales && column < m.k) w[k] *= scales[column / m.scale_columns];
    }
}

/* Words of 8 nibbles; then f16 scales of 32 columns. */
static __device__ __forceinline__ void ht_part_Q4_0(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                    float *w) {
    enum { CYCLES = 4 };
    const int64_t place = ht_place_of(g, CYCLES, m.whole / 8);
    const int64_t scale = ht_scale_place_of(g / 4, CYCLES, m.whole / 32);
    ht_scaled_nibbles(((const uint32_t *)row)[place], 8, ht_half_value(((const uint16_t *)(row + m.k / 2))[scale]), w);
}

/* Eight bytes a part; then f16 scales of 32 columns. */
static __device__ __forceinline__ void ht_part_Q8_0(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                    float *w) {
    enum { CYCLES = 2 };
    const uint32_t *q = (const uint32_t *)row + 2 * ht_place_of(g, CYCLES, m.whole / 8);
    const uint32_t low = q[0] ^ 0x80808080u, high = q[1] ^ 0x80808080u; /* q + 128 */
    const float d = ht_half_value(((const uint16_t *)(row + m.k))[ht_scale_place_of(g / 4, CYCLES, m.whole / 32)]);
    const float add = -(HT_EIGHT_BITS + 128) * d; /* exact, as the sums are */
    for (int k = 0; k < 4; k++) {
        w[k] = fmaf(ht_eight_of(low, k), d, add);
        w[4 + k] = fmaf(ht_eight_of(high, k), d, add);
    }
}

/* Words of 8 nibbles; then d, dmin and scales of every block, as stored. */
static __device__ __forceinline__ void ht_part_Q4_K(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                    float *w) {
    enum { CYCLES = 4 };
    const uint8_t *head = row + m.k / 2 + g / 32 * 16;
    uint8_t sc, min;
    ht_k_scale_min(head + 4, (int)(g % 32 / 4), &sc, &min);
    ht_affine_nibbles(((const uint32_t *)row)[ht_place_of(g, CYCLES, m.k / 8)],
                      ht_half_value(ht_u16_at(head)) * (float)sc, -(ht_half_value(ht_u16_at(head + 2)) * (float)min),
                      w);
}

/* Words of 8 low nibbles; then words of the high bits of two cycles, in byte b bits 2 f of part numbers 2 b (f = 0, 2) and 2 b + 1 of the
 * first cycle, then of the second; then scales, those of a lane's cycles neighbours; then d. */
static __device__ __forceinline__ void ht_part_Q6_K(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                    float *w) {
    const uint8_t *highs = row + m.k / 2, *scales = highs + m.k / 4, *d = scales + m.k / 16;
    const int64_t block = g / 32;
    const int lane = (int)(g % 8), c = (int)(g / 8 % 4);
    const uint32_t low = ((const uint32_t *)row)[block * 32 + lane * 4 + c];
    const uint32_t high = ((const uint32_t *)highs)[block * 16 + lane * 2 + c / 2] >> 4 * (c & 1);
    const uint32_t even = (low & 0x0F0F0F0Fu) | (high << 4 & 0x30303030u);
    const uint32_t odd = (low >> 4 & 0x0F0F0F0Fu) | (high << 2 & 0x30303030u);
    const float scale =
        ht_half_value(((const uint16_t *)d)[block]) * (float)(int8_t)scales[block * 16 + (lane >> 1) * 4 + c];
    const float add = -(HT_SEVEN_BITS + 32) * scale; /* exact, as the sums are */
    for (int k = 0; k < 4; k++) {
        w[2 * k] = fmaf(ht_seven_of(even, k), scale, add);
        w[2 * k + 1] = fmaf(ht_seven_of(odd, k), scale, add);
    }
}

static __device__ __forceinline__ void ht_pair_values(const ht_cuda_weights &m, uint32_t pair, float *scale,
                                                      float *bias) {
    const bool half = m.scale_type == HT_W_F16;
    *scale = half ? ht_half_value(pair & 0xFFFFu) : __uint_as_float(pair << 16);
    *bias = half ? ht_half_value(pair >> 16) : __uint_as_float(pair & 0xFFFF0000u);
}

/* Words of 8 nibbles; then scale and bias of every group. */
static __device__ __forceinline__ void ht_part_MLX4(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                    float *w) {
    enum { CYCLES = 4 };
    float scale, bias;
    ht_pair_values(m, ((const uint32_t *)(row + m.k / 2))[g * 8 >> m.group_shift], &scale, &bias);
    ht_affine_nibbles(((const uint32_t *)row)[ht_place_of(g, CYCLES, m.whole / 8)], scale, bias, w);
}

/* Eight bytes a part; then scale and bias of every group. */
static __device__ __forceinline__ void ht_part_MLX8(const ht_cuda_weights &m, const uint8_t *row, int64_t, int64_t g,
                                                    float *w) {
    enum { CYCLES = 2 };
    const uint32_t *q = (const uint32_t *)row + 2 * ht_place_of(g, CYCLES, m.whole / 8);
    float scale, bias;
    ht_pair_values(m, ((const uint32_t *)(row + m.k))[g * 8 >> m.group_shift], &scale, &bias);
    for (int k = 0; k < 4; k++) {
        w[k] = fmaf(ht_eight_of(q[0], k) - HT_EIGHT_BITS, scale, bias);
        w[4 + k] = fmaf(ht_eight_of(q[1], k) - HT_EIGHT_BITS, scale, bias);
    }
}

/* Part g of a row of any form: columns 8 g to 8 g + 7, 0 past the end. */
static __device__ void ht_part_of(const ht_cuda_weights &m, const uint8_t *row, int64_t index, int64_t g, float *w) {
    switch (m.form) {
#define X(form)                                                                                                        \
    case HT_CUDA_##form: ht_part_##form(m, row, index, g, w); break;
        HT_CUDA_EACH_FORM(X)
#undef X
    default: break;
    }
}

#endif
