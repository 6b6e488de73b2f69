/* Eight lanes of f64: the vocabulary of simd.h for v8d (f64), v8l (i64) and m8 (truth values), in the registers of a v16f.
 * Every form gives the same bits, as there. What differs:
 *
 *   scaling    v8d_scale(v, n) = v * 2^n for integral n in [-1100, 1100], rounded once for a v from 1/2 to 4
 *   shifts     v8l_shl, v8l_shr: zeros come in
 *   tables     v8d_pick(table, i): element i % 16 of a table of sixteen */
#ifndef HT_CPU_VECTOR_SIMD_DOUBLE_H
#define HT_CPU_VECTOR_SIMD_DOUBLE_H

#include "cpu/vector/simd.h"

#if defined(HT_ISA_avx512)

typedef __m512d v8d;
typedef __m512i v8l;
typedef __mmask8 m8;

HT_INLINE m8 m8_first(int n) { return (m8)((1u << n) - 1u); }
HT_INLINE m8 m8_and(m8 a, m8 b) { return (m8)(a & b); }
HT_INLINE m8 m8_or(m8 a, m8 b) { return (m8)(a | b); }
HT_INLINE bool m8_any(m8 m) { return m != 0; }

HT_INLINE v8d v8d_set1(double x) { return _mm512_set1_pd(x); }
HT_INLINE v8d v8d_load(const double *p) { return _mm512_loadu_pd(p); }
HT_INLINE v8d v8d_load_n(const double *p, int n) { return _mm512_maskz_loadu_pd(m8_first(n), p); }
HT_INLINE void v8d_store(double *p, v8d v) { _mm512_storeu_pd(p, v); }
HT_INLINE void v8d_store_n(double *p, v8d v, int n) { _mm512_mask_storeu_pd(p, m8_first(n), v); }
HT_INLINE v8d v8d_add(v8d a, v8d b) { return _mm512_add_pd(a, b); }
HT_INLINE v8d v8d_sub(v8d a, v8d b) { return _mm512_sub_pd(a, b); }
HT_INLINE v8d v8d_mul(v8d a, v8d b) { return _mm512_mul_pd(a, b); }
HT_INLINE v8d v8d_div(v8d a, v8d b) { return _mm512_div_pd(a, b); }
HT_INLINE v8d v8d_fma(v8d a, v8d b, v8d c) { return _mm512_fmadd_pd(a, b, c); }
HT_INLINE v8d v8d_fms(v8d a, v8d b, v8d c) { return _mm512_fmsub_pd(a, b, c); }
HT_INLINE v8d v8d_fnma(v8d a, v8d b, v8d c) { return _mm512_fnmadd_pd(a, b, c); }
HT_INLINE v8d v8d_sqrt(v8d a) { return _mm512_sqrt_pd(a); }
HT_INLINE v8d v8d_min(v8d a, v8d b) { return _mm512_min_pd(a, b); }
HT_INLINE v8d v8d_max(v8d a, v8d b) { return _mm512_max_pd(a, b); }
HT_INLINE v8d v8d_scale(v8d a, v8d n) { return _mm512_scalef_pd(a, n); }
HT_INLINE m8 v8d_lt(v8d a, v8d b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
HT_INLINE m8 v8d_gt(v8d a, v8d b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
HT_INLINE m8 v8d_eq(v8d a, v8d b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
HT_INLINE m8 v8d_is_nan(v8d a) { return _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q); }
HT_INLINE v8d v8d_select(m8 m, v8d a, v8d b) { return _mm512_mask_blend_pd(m, b, a); }
HT_INLINE v8l v8d_bits(v8d a) { return _mm512_castpd_si512(a); }
HT_INLINE v8d v8d_from_bits(v8l a) { return _mm512_castsi512_pd(a); }
HT_INLINE v8l v8l_set1(int64_t x) { return _mm512_set1_epi64(x); }
HT_INLINE v8l v8l_add(v8l a, v8l b) { return _mm512_add_epi64(a, b); }
HT_INLINE v8l v8l_sub(v8l a, v8l b) { return _mm512_sub_epi64(a, b); }
HT_INLINE v8l v8l_and(v8l a, v8l b) { return _mm512_and_si512(a, b); }
HT_INLINE v8l v8l_or(v8l a, v8l b) { return _mm512_or_si512(a, b); }
HT_INLINE v8l v8l_xor(v8l a, v8l b) { return _mm512_xor_si512(a, b); }
HT_INLINE m8 v8l_eq(v8l a, v8l b) { return _mm512_cmpeq_epi64_mask(a, b); }
HT_INLINE m8 v8l_gt(v8l a, v8l b) { return _mm512_cmpgt_epi64_mask(a, b); }
HT_INLINE v8l v8l_shl(v8l a, int n) { return _mm512_slli_epi64(a, (unsigned)n); }
HT_INLINE v8l v8l_shr(v8l a, int n) { return _mm512_srli_epi64(a, (unsigned)n); }
HT_INLINE v8d v8d_pick(const double table[16], v8l index) {
    return _mm512_permutex2var_pd(_mm512_loadu_pd(table), index, _mm512_loadu_pd(table + 8));
}

#elif defined(HT_ISA_YMM)

typedef struct v8d {
    __m256d a, b;
} v8d;
typedef struct v8l {
    __m256i a, b;
} v8l;
typedef struct m8 {
    __m256d a, b;
} m8;

#define HT_UNARY(name, in, out, op, ...)                                                                               \
    HT_INLINE out name(in x) { return (out){op(x.a __VA_ARGS__), op(x.b __VA_ARGS__)}; }
#define HT_BINARY(name, in, out, op)                                                                                   \
    HT_INLINE out name(in x, in y) { return (out){op(x.a, y.a), op(x.b, y.b)}; }
#define HT_TERNARY(name, op)                                                                                           \
    HT_INLINE v8d name(v8d x, v8d y, v8d z) { return (v8d){op(x.a, y.a, z.a), op(x.b, y.b, z.b)}; }

HT_INLINE m8 m8_first(int n) {
    __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    return (m8){_mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_set1_epi64x(n), lane)),
                _mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_set1_epi64x(n - 4), lane))};
}
HT_BINARY(m8_and, m8, m8, _mm256_and_pd)
HT_BINARY(m8_or, m8, m8, _mm256_or_pd)
HT_INLINE bool m8_any(m8 m) { return _mm256_movemask_pd(_mm256_or_pd(m.a, m.b)) != 0; }

HT_INLINE v8d v8d_set1(double x) { return (v8d){_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
HT_INLINE v8d v8d_load(const double *p) { return (v8d){_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
HT_INLINE v8d v8d_load_n(const double *p, int n) {
    m8 m = m8_first(n);
    return (v8d){_mm256_maskload_pd(p, _mm256_castpd_si256(m.a)), _mm256_maskload_pd(p + 4, _mm256_castpd_si256(m.b))};
}
HT_INLINE void v8d_store(double *p, v8d v) {
    _mm256_storeu_pd(p, v.a);
    _mm256_storeu_pd(p + 4, v.b);
}
HT_INLINE void v8d_store_n(double *p, v8d v, int n) {
    m8 m = m8_first(n);
    _mm256_maskstore_pd(p, _mm256_castpd_si256(m.a), v.a);
    _mm256_maskstore_pd(p + 4, _mm256_castpd_si256(m.b), v.b);
}
HT_BINARY(v8d_add, v8d, v8d, _mm256_add_pd)
HT_BINARY(v8d_sub, v8d, v8d, _mm256_sub_pd)
HT_BINARY(v8d_mul, v8d, v8d, _mm256_mul_pd)
HT_BINARY(v8d_div, v8d, v8d, _mm256_div_pd)
HT_TERNARY(v8d_fma, _mm256_fmadd_pd)
HT_TERNARY(v8d_fms, _mm256_fmsub_pd)
HT_TERNARY(v8d_fnma, _mm256_fnmadd_pd)
HT_UNARY(v8d_sqrt, v8d, v8d, _mm256_sqrt_pd)
HT_BINARY(v8d_min, v8d, v8d, _mm256_min_pd)
HT_BINARY(v8d_max, v8d, v8d, _mm256_max_pd)
HT_INLINE m8 v8d_lt(v8d x, v8d y) {
    return (m8){_mm256_cmp_pd(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_pd(x.b, y.b, _CMP_LT_OQ)};
}
HT_INLINE m8 v8d_gt(v8d x, v8d y) { return v8d_lt(y, x); }
HT_INLINE m8 v8d_eq(v8d x, v8d y) {
    return (m8){_mm256_cmp_pd(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_pd(x.b, y.b, _CMP_EQ_OQ)};
}
HT_INLINE m8 v8d_is_nan(v8d x) {
    return (m8){_mm256_cmp_pd(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_pd(x.b, x.b, _CMP_UNORD_Q)};
}
HT_INLINE v8d v8d_select(m8 m, v8d x, v8d y) {
    return (v8d){_mm256_blendv_pd(y.a, x.a, m.a), _mm256_blendv_pd(y.b, x.b, m.b)};
}
HT_UNARY(v8d_bits, v8d, v8l, _mm256_castpd_si256)
HT_UNARY(v8d_from_bits, v8l, v8d, _mm256_castsi256_pd)
HT_INLINE v8l v8l_set1(int64_t x) { return (v8l){_mm256_set1_epi64x(x), _mm256_set1_epi64x(x)}; }
HT_BINARY(v8l_add, v8l, v8l, _mm256_add_epi64)
HT_BINARY(v8l_sub, v8l, v8l, _mm256_sub_epi64)
HT_BINARY(v8l_and, v8l, v8l, _mm256_and_si256)
HT_BINARY(v8l_or, v8l, v8l, _mm256_or_si256)
HT_BINARY(v8l_xor, v8l, v8l, _mm256_xor_si256)
HT_INLINE m8 v8l_eq(v8l x, v8l y) {
    return (m8){_mm256_castsi256_pd(_mm256_cmpeq_epi64(x.a, y.a)), _mm256_castsi256_pd(_mm256_cmpeq_epi64(x.b, y.b))};
}
HT_INLINE m8 v8l_gt(v8l x, v8l y) {
    return (m8){_mm256_castsi256_pd(_mm256_cmpgt_epi64(x.a, y.a)), _mm256_castsi256_pd(_mm256_cmpgt_epi64(x.b, y.b))};
}
HT_INLINE v8l v8l_shl(v8l x, int n) { return (v8l){_mm256_slli_epi64(x.a, n), _mm256_slli_epi64(x.b, n)}; }
HT_INLINE v8l v8l_shr(v8l x, int n) { return (v8l){_mm256_srli_epi64(x.a, n), _mm256_srli_epi64(x.b, n)}; }
HT_INLINE v8d v8d_pick(const double table[16], v8l index) {
    const __m256i low = _mm256_set1_epi64x(15);
    return (v8d){_mm256_i64gather_pd(table, _mm256_and_si256(index.a, low), 8),
                 _mm256_i64gather_pd(table, _mm256_and_si256(index.b, low), 8)};
}

#undef HT_UNARY
#undef HT_BINARY
#undef HT_TERNARY

#elif defined(HT_ISA_ARM)

typedef struct v8d {
    float64x2_t a, b, c, d;
} v8d;
typedef struct v8l {
    int64x2_t a, b, c, d;
} v8l;
typedef struct m8 {
    uint64x2_t a, b, c, d;
} m8;

#define HT_UNARY(name, in, out, op)                                                                                    \
    HT_INLINE out name(in x) { return (out){op(x.a), op(x.b), op(x.c), op(x.d)}; }
#define HT_BINARY(name, in, out, op)                                                                                   \
    HT_INLINE out name(in x, in y) { return (out){op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)}; }

HT_BINARY(m8_and, m8, m8, vandq_u64)
HT_BINARY(m8_or, m8, m8, vorrq_u64)
HT_INLINE bool m8_any(m8 m) {
    uint64x2_t all = vorrq_u64(vorrq_u64(m.a, m.b), vorrq_u64(m.c, m.d));
    return (vgetq_lane_u64(all, 0) | vgetq_lane_u64(all, 1)) != 0;
}

HT_INLINE v8d v8d_set1(double x) {
    float64x2_t v = vdupq_n_f64(x);
    return (v8d){v, v, v, v};
}
HT_INLINE v8d v8d_load(const double *p) {
    return (v8d){vld1q_f64(p), vld1q_f64(p + 2), vld1q_f64(p + 4), vld1q_f64(p + 6)};
}
HT_INLINE v8d v8d_load_n(const double *p, int n) {
    double room[8] = {0.0};
    memcpy(room, p, (size_t)n * sizeof *p);
    return v8d_load(room);
}
HT_INLINE void v8d_store(double *p, v8d v) {
    vst1q_f64(p, v.a);
    vst1q_f64(p + 2, v.b);
    vst1q_f64(p + 4, v.c);
    vst1q_f64(p + 6, v.d);
}
HT_INLINE void v8d_store_n(double *p, v8d v, int n) {
    double room[8];
    v8d_store(room, v);
    memcpy(p, room, (size_t)n * sizeof *p);
}
HT_BINARY(v8d_add, v8d, v8d, vaddq_f64)
HT_BINARY(v8d_sub, v8d, v8d, vsubq_f64)
HT_BINARY(v8d_mul, v8d, v8d, vmulq_f64)
HT_BINARY(v8d_div, v8d, v8d, vdivq_f64)
HT_INLINE v8d v8d_fma(v8d x, v8d y, v8d z) {
    return (v8d){vfmaq_f64(z.a, x.a, y.a), vfmaq_f64(z.b, x.b, y.b), vfmaq_f64(z.c, x.c, y.c),
                 vfmaq_f64(z.d, x.d, y.d)};
}
HT_INLINE v8d v8d_fnma(v8d x, v8d y, v8d z) {
    return (v8d){vfmsq_f64(z.a, x.a, y.a), vfmsq_f64(z.b, x.b, y.b), vfmsq_f64(z.c, x.c, y.c),
                 vfmsq_f64(z.d, x.d, y.d)};
}
HT_UNARY(v8d_negative, v8d, v8d, vnegq_f64)
HT_INLINE v8d v8d_fms(v8d x, v8d y, v8d z) { return v8d_fma(x, y, v8d_negative(z)); }
HT_UNARY(v8d_sqrt, v8d, v8d, vsqrtq_f64)
HT_INLINE float64x2_t ht_min2(float64x2_t x, float64x2_t y) { return vbslq_f64(vcltq_f64(x, y), x, y); }
HT_INLINE float64x2_t ht_max2(float64x2_t x, float64x2_t y) { return vbslq_f64(vcgtq_f64(x, y), x, y); }
HT_BINARY(v8d_min, v8d, v8d, ht_min2)
HT_BINARY(v8d_max, v8d, v8d, ht_max2)
HT_BINARY(v8d_lt, v8d, m8, vcltq_f64)
HT_BINARY(v8d_gt, v8d, m8, vcgtq_f64)
HT_BINARY(v8d_eq, v8d, m8, vceqq_f64)
HT_INLINE uint64x2_t ht_nan2(float64x2_t x) { return veorq_u64(vceqq_f64(x, x), vdupq_n_u64(UINT64_MAX)); }
HT_UNARY(v8d_is_nan, v8d, m8, ht_nan2)
HT_INLINE v8d v8d_select(m8 m, v8d x, v8d y) {
    return (v8d){vbslq_f64(m.a, x.a, y.a), vbslq_f64(m.b, x.b, y.b), vbslq_f64(m.c, x.c, y.c),
                 vbslq_f64(m.d, x.d, y.d)};
}
HT_UNARY(v8d_bits, v8d, v8l, vreinterpretq_s64_f64)
HT_UNARY(v8d_from_bits, v8l, v8d, vreinterpretq_f64_s64)
HT_INLINE v8l v8l_set1(int64_t x) {
    int64x2_t v = vdupq_n_s64(x);
    return (v8l){v, v, v, v};
}
HT_BINARY(v8l_add, v8l, v8l, vaddq_s64)
HT_BINARY(v8l_sub, v8l, v8l, vsubq_s64)
HT_BINARY(v8l_and, v8l, v8l, vandq_s64)
HT_BINARY(v8l_or, v8l, v8l, vorrq_s64)
HT_BINARY(v8l_xor, v8l, v8l, veorq_s64)
HT_BINARY(v8l_eq, v8l, m8, vceqq_s64)
HT_BINARY(v8l_gt, v8l, m8, vcgtq_s64)
HT_INLINE v8l v8l_shl(v8l x, int n) {
    int64x2_t s = vdupq_n_s64(n);
    return (v8l){vshlq_s64(x.a, s), vshlq_s64(x.b, s), vshlq_s64(x.c, s), vshlq_s64(x.d, s)};
}
HT_INLINE int64x2_t ht_shr2(int64x2_t x, int64x2_t minus_n) {
    return vreinterpretq_s64_u64(vshlq_u64(vreinterpretq_u64_s64(x), minus_n));
}
HT_INLINE v8l v8l_shr(v8l x, int n) {
    int64x2_t s = vdupq_n_s64(-n);
    return (v8l){ht_shr2(x.a, s), ht_shr2(x.b, s), ht_shr2(x.c, s), ht_shr2(x.d, s)};
}
HT_INLINE float64x2_t ht_pick2(const double *table, int64x2_t i) {
    float64x2_t v = vdupq_n_f64(table[vgetq_lane_s64(i, 0) & 15]);
    return vsetq_lane_f64(table[vgetq_lane_s64(i, 1) & 15], v, 1);
}
HT_INLINE v8d v8d_pick(const double table[16], v8l i) {
    return (v8d){ht_pick2(table, i.a), ht_pick2(table, i.b), ht_pick2(table, i.c), ht_pick2(table, i.d)};
}

#undef HT_UNARY
#undef HT_BINARY

#endif

/* What is built from the above, alike for all. */

HT_INLINE v8d v8d_zero(void) { return v8d_set1(0.0); }
HT_INLINE v8d v8d_neg(v8d a) { return v8d_from_bits(v8l_xor(v8d_bits(a), v8l_set1(INT64_MIN))); }
HT_INLINE v8d v8d_abs(v8d a) { return v8d_from_bits(v8l_and(v8d_bits(a), v8l_set1(INT64_MAX))); }
/* magnitude of a, sign of b; a must not be negative */
HT_INLINE v8d v8d_with_sign(v8d a, v8d b) {
    return v8d_from_bits(v8l_or(v8d_bits(a), v8l_and(v8d_bits(b), v8l_set1(INT64_MIN))));
}

#if !defined(HT_ISA_avx512)
/* 2^n is built in two halves, so that neither leaves the range of normal numbers. */
HT_INLINE v8d v8d_scale(v8d v, v8d n) {
    const v8l one = v8l_set1(1), sum = v8d_bits(v8d_add(n, v8d_set1(0x1p+52 + 2048.0)));
    const v8l biased = v8l_and(sum, v8l_set1(0x1fff)), half = v8l_shr(biased, 1);
    const v8d first = v8d_from_bits(v8l_shl(v8l_sub(half, one), 52));
    return v8d_mul(v8d_mul(v, first), v8d_from_bits(v8l_shl(v8l_sub(v8l_sub(biased, half), one), 52)));
}
#endif

#endif
