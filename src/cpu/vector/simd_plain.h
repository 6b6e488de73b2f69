/* simd.h in plain C: the fallback without a vector unit, and the specification of the other forms. */
#ifndef HT_CPU_VECTOR_SIMD_PLAIN_H
#define HT_CPU_VECTOR_SIMD_PLAIN_H

#include "base/math.h"

typedef struct v16f {
    float x[16];
} v16f;
typedef struct v16i {
    int32_t x[16];
} v16i;
typedef struct m16 {
    bool x[16];
} m16;

#define HT_LANES(type, expression)                                                                                     \
    type r;                                                                                                            \
    for (int i = 0; i < 16; i++) r.x[i] = expression;                                                                  \
    return r

HT_INLINE m16 m16_first(int n) { HT_LANES(m16, i < n); }

HT_INLINE v16f v16f_set1(float x) { HT_LANES(v16f, x); }
HT_INLINE v16f v16f_load(const float *p) { HT_LANES(v16f, p[i]); }
HT_INLINE v16f v16f_load_n(const float *p, int n) { HT_LANES(v16f, i < n ? p[i] : 0.0f); }
HT_INLINE void v16f_store(float *p, v16f v) { memcpy(p, v.x, sizeof v.x); }
HT_INLINE void v16f_store_n(float *p, v16f v, int n) { memcpy(p, v.x, (size_t)n * sizeof *p); }

HT_INLINE v16f v16f_load_quads(const float *p0, const float *p1, const float *p2, const float *p3) {
    const float *const quad[4] = {p0, p1, p2, p3};
    HT_LANES(v16f, quad[i / 4][i % 4]);
}
HT_INLINE void v16f_transpose_quads(v16f v[4]) {
    v16f from[4];
    memcpy(from, v, sizeof from);
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 16; l++) v[i].x[l] = from[l % 4].x[l - l % 4 + i];
}

HT_INLINE v16f v16f_load_f16(const uint16_t *p) { HT_LANES(v16f, ht_f16_to_f32(p[i])); }
HT_INLINE void v16f_store_f16(uint16_t *p, v16f v) {
    for (int i = 0; i < 16; i++) p[i] = ht_f32_to_f16(v.x[i]);
}
HT_INLINE v16f v16f_load_bf16(const uint16_t *p) { HT_LANES(v16f, ht_bf16_to_f32(p[i])); }

HT_INLINE v16f v16f_add(v16f a, v16f b) { HT_LANES(v16f, a.x[i] + b.x[i]); }
HT_INLINE v16f v16f_sub(v16f a, v16f b) { HT_LANES(v16f, a.x[i] - b.x[i]); }
HT_INLINE v16f v16f_mul(v16f a, v16f b) { HT_LANES(v16f, a.x[i] * b.x[i]); }
HT_INLINE v16f v16f_div(v16f a, v16f b) { HT_LANES(v16f, a.x[i] / b.x[i]); }
HT_INLINE v16f v16f_fma(v16f a, v16f b, v16f c) { HT_LANES(v16f, fmaf(a.x[i], b.x[i], c.x[i])); }
HT_INLINE v16f v16f_fnma(v16f a, v16f b, v16f c) { HT_LANES(v16f, fmaf(-a.x[i], b.x[i], c.x[i])); }
HT_INLINE v16f v16f_sqrt(v16f a) { HT_LANES(v16f, sqrtf(a.x[i])); }
HT_INLINE v16f v16f_min(v16f a, v16f b) { HT_LANES(v16f, a.x[i] < b.x[i] ? a.x[i] : b.x[i]); }
HT_INLINE v16f v16f_max(v16f a, v16f b) { HT_LANES(v16f, a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
HT_INLINE v16f v16f_round(v16f a) { HT_LANES(v16f, rintf(a.x[i])); }
HT_INLINE v16f v16f_scale(v16f a, v16f n) { HT_LANES(v16f, ht_scale_f32(a.x[i], n.x[i])); }

HT_INLINE m16 v16f_lt(v16f a, v16f b) { HT_LANES(m16, a.x[i] < b.x[i]); }
HT_INLINE m16 v16f_gt(v16f a, v16f b) { HT_LANES(m16, a.x[i] > b.x[i]); }
HT_INLINE m16 v16f_eq(v16f a, v16f b) { HT_LANES(m16, a.x[i] == b.x[i]); }
HT_INLINE m16 v16f_is_nan(v16f a) { HT_LANES(m16, isnan(a.x[i])); }
HT_INLINE v16f v16f_select(m16 m, v16f a, v16f b) { HT_LANES(v16f, m.x[i] ? a.x[i] : b.x[i]); }
HT_INLINE m16 v16i_eq(v16i a, v16i b) { HT_LANES(m16, a.x[i] == b.x[i]); }
HT_INLINE m16 m16_and(m16 a, m16 b) { HT_LANES(m16, a.x[i] && b.x[i]); }
HT_INLINE m16 m16_or(m16 a, m16 b) { HT_LANES(m16, a.x[i] || b.x[i]); }
HT_INLINE bool m16_any(m16 m) {
    bool any = false;
    for (int i = 0; i < 16; i++) any |= m.x[i];
    return any;
}

HT_INLINE v16i v16i_set1(int32_t x) { HT_LANES(v16i, x); }
HT_INLINE v16i v16i_load(const int32_t *p) { HT_LANES(v16i, p[i]); }
HT_INLINE void v16i_store(int32_t *p, v16i v) { memcpy(p, v.x, sizeof v.x); }
HT_INLINE void v16i_store_u16(uint16_t *p, v16i v) {
    for (int i = 0; i < 16; i++) p[i] = (uint16_t)v.x[i];
}
HT_INLINE v16i v16i_choose(const int32_t table[8], v16i a) { HT_LANES(v16i, table[a.x[i] & 7]); }
HT_INLINE v16i v16i_choose_16(const int32_t table[16], v16i a) { HT_LANES(v16i, table[a.x[i] & 15]); }
HT_INLINE v16i v16i_add(v16i a, v16i b) { HT_LANES(v16i, (int32_t)((uint32_t)a.x[i] + (uint32_t)b.x[i])); }
HT_INLINE v16i v16i_sub(v16i a, v16i b) { HT_LANES(v16i, (int32_t)((uint32_t)a.x[i] - (uint32_t)b.x[i])); }
HT_INLINE v16i v16i_max(v16i a, v16i b) { HT_LANES(v16i, a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
HT_INLINE v16i v16i_and(v16i a, v16i b) { HT_LANES(v16i, a.x[i] & b.x[i]); }
HT_INLINE v16i v16i_or(v16i a, v16i b) { HT_LANES(v16i, a.x[i] | b.x[i]); }
HT_INLINE v16i v16i_xor(v16i a, v16i b) { HT_LANES(v16i, a.x[i] ^ b.x[i]); }
HT_INLINE v16i v16i_shl(v16i a, int n) { HT_LANES(v16i, (int32_t)((uint32_t)a.x[i] << n)); }
HT_INLINE v16i v16i_shr(v16i a, int n) { HT_LANES(v16i, (int32_t)((uint32_t)a.x[i] >> n)); }
HT_INLINE v16i v16i_sra(v16i a, int n) { HT_LANES(v16i, (a.x[i] - (a.x[i] & ((1 << n) - 1))) / (1 << n)); }
HT_INLINE v16i v16i_from_f(v16f a) { HT_LANES(v16i, (int32_t)a.x[i]); }
HT_INLINE v16f v16f_from_i(v16i a) { HT_LANES(v16f, (float)a.x[i]); }
HT_INLINE v16i v16f_bits(v16f a) {
    v16i r;
    memcpy(r.x, a.x, sizeof r.x);
    return r;
}
HT_INLINE v16f v16f_from_bits(v16i a) {
    v16f r;
    memcpy(r.x, a.x, sizeof r.x);
    return r;
}

HT_INLINE float v16f_sum(v16f a) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) a.x[i] += a.x[i + half];
    return a.x[0];
}
HT_INLINE float v16f_hmax(v16f a) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) a.x[i] = a.x[i] > a.x[i + half] ? a.x[i] : a.x[i + half];
    return a.x[0];
}

#undef HT_LANES

#endif
