/* simd.h for AVX2 with FMA and F16C: two registers. */
#ifndef HT_CPU_VECTOR_SIMD_AVX2_H
#define HT_CPU_VECTOR_SIMD_AVX2_H

#include <immintrin.h>

typedef struct v16f {
    __m256 a, b;
} v16f;
typedef struct v16i {
    __m256i a, b;
} v16i;
typedef struct m16 {
    __m256 a, b;
} m16;

#define HT_BINARY(name, type, out, op)                                                                                 \
    HT_INLINE out name(type x, type y) { return (out){op(x.a, y.a), op(x.b, y.b)}; }
#define HT_TERNARY(name, op)                                                                                           \
    HT_INLINE v16f name(v16f x, v16f y, v16f z) { return (v16f){op(x.a, y.a, z.a), op(x.b, y.b, z.b)}; }
#define HT_COMPARISON(name, predicate)                                                                                 \
    HT_INLINE m16 name(v16f x, v16f y) {                                                                               \
        return (m16){_mm256_cmp_ps(x.a, y.a, predicate), _mm256_cmp_ps(x.b, y.b, predicate)};                          \
    }

HT_INLINE m16 m16_first(int n) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i a = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
    __m256i b = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane);
    return (m16){_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)};
}

HT_INLINE v16f v16f_set1(float x) { return (v16f){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
HT_INLINE v16f v16f_load(const float *p) { return (v16f){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
/* n = 16 avoids the masked move, which is slow even with a full mask: a masked store takes 20 times as long on Zen. */
HT_INLINE v16f v16f_load_n(const float *p, int n) {
    if (n == 16) return v16f_load(p);
    m16 m = m16_first(n);
    return (v16f){_mm256_maskload_ps(p, _mm256_castps_si256(m.a)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
HT_INLINE void v16f_store(float *p, v16f v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
HT_INLINE void v16f_store_n(float *p, v16f v, int n) {
    if (n == 16) {
        v16f_store(p, v);
        return;
    }
    m16 m = m16_first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), v.a);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), v.b);
}

HT_INLINE __m256 ht_load_2x4(const float *low, const float *high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}
HT_INLINE v16f v16f_load_quads(const float *p0, const float *p1, const float *p2, const float *p3) {
    return (v16f){ht_load_2x4(p0, p1), ht_load_2x4(p2, p3)};
}
HT_INLINE void ht_transpose_2x4(__m256 *v0, __m256 *v1, __m256 *v2, __m256 *v3) {
    __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(*v0, *v1)), b = _mm256_castps_pd(_mm256_unpackhi_ps(*v0, *v1));
    __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(*v2, *v3)), d = _mm256_castps_pd(_mm256_unpackhi_ps(*v2, *v3));
    *v0 = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    *v1 = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    *v2 = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
    *v3 = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
}
HT_INLINE void v16f_transpose_quads(v16f v[4]) {
    ht_transpose_2x4(&v[0].a, &v[1].a, &v[2].a, &v[3].a);
    ht_transpose_2x4(&v[0].b, &v[1].b, &v[2].b, &v[3].b);
}

HT_INLINE __m128i ht_load_8x16(const uint16_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
HT_INLINE void ht_store_8x16(uint16_t *p, __m128i v) { _mm_storeu_si128((__m128i *)(void *)p, v); }

HT_INLINE v16f v16f_load_f16(const uint16_t *p) {
    return (v16f){_mm256_cvtph_ps(ht_load_8x16(p)), _mm256_cvtph_ps(ht_load_8x16(p + 8))};
}
HT_INLINE void v16f_store_f16(uint16_t *p, v16f v) {
    ht_store_8x16(p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    ht_store_8x16(p + 8, _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
HT_INLINE v16f v16f_load_bf16(const uint16_t *p) {
    __m256i a = _mm256_slli_epi32(_mm256_cvtepu16_epi32(ht_load_8x16(p)), 16);
    __m256i b = _mm256_slli_epi32(_mm256_cvtepu16_epi32(ht_load_8x16(p + 8)), 16);
    return (v16f){_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)};
}

HT_BINARY(v16f_add, v16f, v16f, _mm256_add_ps)
HT_BINARY(v16f_sub, v16f, v16f, _mm256_sub_ps)
HT_BINARY(v16f_mul, v16f, v16f, _mm256_mul_ps)
HT_BINARY(v16f_div, v16f, v16f, _mm256_div_ps)
HT_TERNARY(v16f_fma, _mm256_fmadd_ps)
HT_TERNARY(v16f_fnma, _mm256_fnmadd_ps)
HT_TERNARY(v16f_fms, _mm256_fmsub_ps)
HT_INLINE v16f v16f_sqrt(v16f x) { return (v16f){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
HT_BINARY(v16f_min, v16f, v16f, _mm256_min_ps)
HT_BINARY(v16f_max, v16f, v16f, _mm256_max_ps)
HT_INLINE v16f v16f_round(v16f x) {
    return (v16f){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

HT_COMPARISON(v16f_lt, _CMP_LT_OQ)
HT_INLINE m16 v16f_gt(v16f x, v16f y) { return v16f_lt(y, x); }
HT_COMPARISON(v16f_eq, _CMP_EQ_OQ)
/* x > y, or either is NaN. */
HT_COMPARISON(v16f_not_at_most, _CMP_NLE_UQ)
HT_COMPARISON(v16f_unordered, _CMP_UNORD_Q)
HT_INLINE m16 v16f_is_nan(v16f x) { return v16f_unordered(x, x); }
HT_INLINE v16f v16f_select(m16 m, v16f x, v16f y) {
    return (v16f){_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}
HT_INLINE m16 v16i_eq(v16i x, v16i y) {
    return (m16){_mm256_castsi256_ps(_mm256_cmpeq_epi32(x.a, y.a)), _mm256_castsi256_ps(_mm256_cmpeq_epi32(x.b, y.b))};
}
HT_BINARY(m16_and, m16, m16, _mm256_and_ps)
HT_BINARY(m16_or, m16, m16, _mm256_or_ps)
HT_INLINE bool m16_any(m16 m) { return _mm256_movemask_ps(_mm256_or_ps(m.a, m.b)) != 0; }

HT_INLINE v16i v16i_set1(int32_t x) { return (v16i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
HT_INLINE v16i v16i_load(const int32_t *p) {
    return (v16i){_mm256_loadu_si256((const __m256i *)(const void *)p),
                  _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}
HT_INLINE void v16i_store(int32_t *p, v16i v) {
    _mm256_storeu_si256((__m256i *)(void *)p, v.a);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), v.b);
}
/* Low 16 bits of each lane, masked first because the pack instruction saturates. */
HT_INLINE void v16i_store_u16(uint16_t *p, v16i v) {
    __m256i low = _mm256_set1_epi32(0xffff);
    __m256i both = _mm256_packus_epi32(_mm256_and_si256(v.a, low), _mm256_and_si256(v.b, low));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(both, 0xd8));
}
HT_INLINE v16i v16i_choose(const int32_t table[8], v16i i) {
    const __m256i t = _mm256_loadu_si256((const __m256i *)(const void *)table);
    return (v16i){_mm256_permutevar8x32_epi32(t, i.a), _mm256_permutevar8x32_epi32(t, i.b)};
}
/* Bit 3 of the index, shifted to the sign bit, selects the upper half. */
HT_INLINE __m256i ht_choose_16(__m256 low, __m256 high, __m256i i) {
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(i, 28));
    const __m256 from_low = _mm256_permutevar8x32_ps(low, i), from_high = _mm256_permutevar8x32_ps(high, i);
    return _mm256_castps_si256(_mm256_blendv_ps(from_low, from_high, upper));
}
HT_INLINE v16i v16i_choose_16(const int32_t table[16], v16i i) {
    const __m256 low = _mm256_loadu_ps((const float *)(const void *)table);
    const __m256 high = _mm256_loadu_ps((const float *)(const void *)(table + 8));
    return (v16i){ht_choose_16(low, high, i.a), ht_choose_16(low, high, i.b)};
}
HT_BINARY(v16i_add, v16i, v16i, _mm256_add_epi32)
HT_BINARY(v16i_sub, v16i, v16i, _mm256_sub_epi32)
HT_BINARY(v16i_max, v16i, v16i, _mm256_max_epi32)
HT_BINARY(v16i_and, v16i, v16i, _mm256_and_si256)
HT_BINARY(v16i_or, v16i, v16i, _mm256_or_si256)
HT_BINARY(v16i_xor, v16i, v16i, _mm256_xor_si256)
HT_INLINE v16i v16i_shl(v16i x, int n) { return (v16i){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
HT_INLINE v16i v16i_shr(v16i x, int n) { return (v16i){_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)}; }
HT_INLINE v16i v16i_sra(v16i x, int n) { return (v16i){_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)}; }
HT_INLINE v16i v16i_from_f(v16f x) { return (v16i){_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b)}; }
HT_INLINE v16f v16f_from_i(v16i x) { return (v16f){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
HT_INLINE v16i v16f_bits(v16f x) { return (v16i){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
HT_INLINE v16f v16f_from_bits(v16i x) { return (v16f){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

/* 2^n is applied in two factors, so that neither leaves the range of normal numbers. */
HT_INLINE v16f v16f_scale(v16f v, v16f n) {
    v16i whole = v16i_from_f((v16f){_mm256_floor_ps(n.a), _mm256_floor_ps(n.b)});
    v16i half = v16i_sra(whole, 1);
    v16i bias = v16i_set1(127);
    v16f first = v16f_from_bits(v16i_shl(v16i_add(half, bias), 23));
    v16f second = v16f_from_bits(v16i_shl(v16i_add(v16i_sub(whole, half), bias), 23));
    return v16f_mul(v16f_mul(v, first), second);
}

HT_INLINE float v16f_sum(v16f x) {
    __m256 b = _mm256_add_ps(x.a, x.b);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
HT_INLINE float v16f_hmax(v16f x) {
    __m256 b = _mm256_max_ps(x.a, x.b);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#undef HT_BINARY
#undef HT_TERNARY
#undef HT_COMPARISON

#endif
