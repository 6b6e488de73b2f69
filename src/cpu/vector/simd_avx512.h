/* simd.h for AVX-512: one register. */
#ifndef HT_CPU_VECTOR_SIMD_AVX512_H
#define HT_CPU_VECTOR_SIMD_AVX512_H

#include <immintrin.h>

typedef __m512 v16f;
typedef __m512i v16i;
typedef __mmask16 m16;

HT_INLINE m16 m16_first(int n) { return (m16)((1u << n) - 1u); }

HT_INLINE v16f v16f_set1(float x) { return _mm512_set1_ps(x); }
HT_INLINE v16f v16f_load(const float *p) { return _mm512_loadu_ps(p); }
HT_INLINE v16f v16f_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(m16_first(n), p); }
HT_INLINE void v16f_store(float *p, v16f v) { _mm512_storeu_ps(p, v); }
HT_INLINE void v16f_store_n(float *p, v16f v, int n) { _mm512_mask_storeu_ps(p, m16_first(n), v); }

HT_INLINE v16f v16f_load_quads(const float *p0, const float *p1, const float *p2, const float *p3) {
    __m512 v = _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(p0)), _mm_loadu_ps(p1), 1);
    return _mm512_insertf32x4(_mm512_insertf32x4(v, _mm_loadu_ps(p2), 2), _mm_loadu_ps(p3), 3);
}
HT_INLINE void v16f_transpose_quads(v16f v[4]) {
    __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])), b = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
    __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3])), d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
    v[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    v[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    v[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    v[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
}

HT_INLINE v16f v16f_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
HT_INLINE void v16f_store_f16(uint16_t *p, v16f v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
HT_INLINE v16f v16f_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

HT_INLINE v16f v16f_add(v16f a, v16f b) { return _mm512_add_ps(a, b); }
HT_INLINE v16f v16f_sub(v16f a, v16f b) { return _mm512_sub_ps(a, b); }
HT_INLINE v16f v16f_mul(v16f a, v16f b) { return _mm512_mul_ps(a, b); }
HT_INLINE v16f v16f_div(v16f a, v16f b) { return _mm512_div_ps(a, b); }
HT_INLINE v16f v16f_fma(v16f a, v16f b, v16f c) { return _mm512_fmadd_ps(a, b, c); }
HT_INLINE v16f v16f_fnma(v16f a, v16f b, v16f c) { return _mm512_fnmadd_ps(a, b, c); }
HT_INLINE v16f v16f_fms(v16f a, v16f b, v16f c) { return _mm512_fmsub_ps(a, b, c); }
HT_INLINE v16f v16f_sqrt(v16f a) { return _mm512_sqrt_ps(a); }
HT_INLINE v16f v16f_min(v16f a, v16f b) { return _mm512_min_ps(a, b); }
HT_INLINE v16f v16f_max(v16f a, v16f b) { return _mm512_max_ps(a, b); }
HT_INLINE v16f v16f_round(v16f a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
HT_INLINE v16f v16f_scale(v16f a, v16f n) { return _mm512_scalef_ps(a, n); }

HT_INLINE m16 v16f_lt(v16f a, v16f b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
HT_INLINE m16 v16f_gt(v16f a, v16f b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
HT_INLINE m16 v16f_eq(v16f a, v16f b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
HT_INLINE m16 v16f_is_nan(v16f a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
HT_INLINE v16f v16f_select(m16 m, v16f a, v16f b) { return _mm512_mask_blend_ps(m, b, a); }
HT_INLINE m16 v16i_eq(v16i a, v16i b) { return _mm512_cmpeq_epi32_mask(a, b); }
HT_INLINE m16 m16_and(m16 a, m16 b) { return (m16)(a & b); }
HT_INLINE m16 m16_or(m16 a, m16 b) { return (m16)(a | b); }
HT_INLINE bool m16_any(m16 m) { return m != 0; }

HT_INLINE v16i v16i_set1(int32_t x) { return _mm512_set1_epi32(x); }
HT_INLINE v16i v16i_load(const int32_t *p) { return _mm512_loadu_si512(p); }
HT_INLINE void v16i_store(int32_t *p, v16i v) { _mm512_storeu_si512(p, v); }
HT_INLINE void v16i_store_u16(uint16_t *p, v16i v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(v));
}
HT_INLINE v16i v16i_add(v16i a, v16i b) { return _mm512_add_epi32(a, b); }
HT_INLINE v16i v16i_sub(v16i a, v16i b) { return _mm512_sub_epi32(a, b); }
HT_INLINE v16i v16i_max(v16i a, v16i b) { return _mm512_max_epi32(a, b); }
HT_INLINE v16i v16i_and(v16i a, v16i b) { return _mm512_and_si512(a, b); }
HT_INLINE v16i v16i_or(v16i a, v16i b) { return _mm512_or_si512(a, b); }
HT_INLINE v16i v16i_xor(v16i a, v16i b) { return _mm512_xor_si512(a, b); }
HT_INLINE v16i v16i_shl(v16i a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
HT_INLINE v16i v16i_shr(v16i a, int n) { return _mm512_srli_epi32(a, (unsigned)n); } /* logical */
HT_INLINE v16i v16i_sra(v16i a, int n) { return _mm512_srai_epi32(a, (unsigned)n); } /* arithmetic */
HT_INLINE v16i v16i_choose(const int32_t table[8], v16i i) {
    const __m512i twice = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)table));
    return _mm512_permutexvar_epi32(i, twice);
}
HT_INLINE v16i v16i_choose_16(const int32_t table[16], v16i i) { return _mm512_permutexvar_epi32(i, v16i_load(table)); }
HT_INLINE v16i v16i_from_f(v16f a) { return _mm512_cvttps_epi32(a); }
HT_INLINE v16f v16f_from_i(v16i a) { return _mm512_cvtepi32_ps(a); }
HT_INLINE v16i v16f_bits(v16f a) { return _mm512_castps_si512(a); }
HT_INLINE v16f v16f_from_bits(v16i a) { return _mm512_castsi512_ps(a); }

HT_INLINE float v16f_sum(v16f a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
HT_INLINE float v16f_hmax(v16f a) {
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#endif
