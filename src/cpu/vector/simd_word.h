/* Words of 16 bits: a v16i of simd.h as 32 of them, two to a lane, and their conversion to bytes of activations.
 *
 *   v16w_join(low, high)     the low words of each lane of both
 *   v16w_shl(a, n), v16w_sra(a, n): zeros come in, or the sign
 *   v16w_mul(a, b)           the low word of each product
 *   v16w_scale(a, b)         (a b + 2^14) >> 15; not for two of -2^15
 *   v16w_dot(sum, a, b)      sum + the two products of each lane
 *   v16i_transpose_quads(v)  as v16f_transpose_quads
 *   v16i_store_quads(p0, p1, p2, p3, v): four lanes to each */
#ifndef HT_CPU_VECTOR_SIMD_WORD_H
#define HT_CPU_VECTOR_SIMD_WORD_H

#include "cpu/vector/simd.h"

HT_INLINE void v16i_transpose_quads(v16i v[4]) {
    v16f f[4];
    for (int i = 0; i < 4; i++) f[i] = v16f_from_bits(v[i]);
    v16f_transpose_quads(f);
    for (int i = 0; i < 4; i++) v[i] = v16f_bits(f[i]);
}

#if defined(HT_ISA_avx512)

HT_INLINE void v16i_store_quads(void *p0, void *p1, void *p2, void *p3, v16i v) {
    _mm_storeu_si128((__m128i *)p0, _mm512_castsi512_si128(v));
    _mm_storeu_si128((__m128i *)p1, _mm512_extracti32x4_epi32(v, 1));
    _mm_storeu_si128((__m128i *)p2, _mm512_extracti32x4_epi32(v, 2));
    _mm_storeu_si128((__m128i *)p3, _mm512_extracti32x4_epi32(v, 3));
}
HT_INLINE v16i v16w_join(v16i low, v16i high) {
    const __m512i to_high = _mm512_broadcast_i32x4(_mm_setr_epi32(0x01000000, 0x05040000, 0x09080000, 0x0d0c0000));
    return _mm512_mask_shuffle_epi8(low, UINT64_C(0xcccccccccccccccc), high, to_high);
}
HT_INLINE v16i v16w_shl(v16i x, int n) { return _mm512_slli_epi16(x, (uint8_t)n); }
HT_INLINE v16i v16w_sra(v16i x, int n) { return _mm512_srai_epi16(x, (uint8_t)n); }
HT_INLINE v16i v16w_mul(v16i x, v16i y) { return _mm512_mullo_epi16(x, y); }
HT_INLINE v16i v16w_scale(v16i x, v16i y) { return _mm512_mulhrs_epi16(x, y); }
HT_INLINE v16i v16w_dot(v16i sum, v16i x, v16i y) { return _mm512_dpwssd_epi32(sum, x, y); }

#elif defined(HT_ISA_YMM)

HT_INLINE void v16i_store_quads(void *p0, void *p1, void *p2, void *p3, v16i v) {
    _mm_storeu_si128((__m128i *)p0, _mm256_castsi256_si128(v.a));
    _mm_storeu_si128((__m128i *)p1, _mm256_extracti128_si256(v.a, 1));
    _mm_storeu_si128((__m128i *)p2, _mm256_castsi256_si128(v.b));
    _mm_storeu_si128((__m128i *)p3, _mm256_extracti128_si256(v.b, 1));
}
HT_INLINE __m256i ht_join_words(__m256i low, __m256i high) {
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}
HT_INLINE v16i v16w_join(v16i low, v16i high) {
    return (v16i){ht_join_words(low.a, high.a), ht_join_words(low.b, high.b)};
}
HT_INLINE v16i v16w_shl(v16i x, int n) { return (v16i){_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)}; }
HT_INLINE v16i v16w_sra(v16i x, int n) { return (v16i){_mm256_srai_epi16(x.a, n), _mm256_srai_epi16(x.b, n)}; }
HT_INLINE v16i v16w_mul(v16i x, v16i y) { return (v16i){_mm256_mullo_epi16(x.a, y.a), _mm256_mullo_epi16(x.b, y.b)}; }
HT_INLINE v16i v16w_scale(v16i x, v16i y) {
    return (v16i){_mm256_mulhrs_epi16(x.a, y.a), _mm256_mulhrs_epi16(x.b, y.b)};
}
#if defined(HT_ISA_avxvnni)
HT_INLINE v16i v16w_dot(v16i sum, v16i x, v16i y) {
    return (v16i){_mm256_dpwssd_avx_epi32(sum.a, x.a, y.a), _mm256_dpwssd_avx_epi32(sum.b, x.b, y.b)};
}
#else
HT_INLINE v16i v16w_dot(v16i sum, v16i x, v16i y) {
    return v16i_add(sum, (v16i){_mm256_madd_epi16(x.a, y.a), _mm256_madd_epi16(x.b, y.b)});
}
#endif

#elif defined(HT_ISA_ARM)

HT_INLINE void v16i_store_quads(void *p0, void *p1, void *p2, void *p3, v16i v) {
    vst1q_s32(p0, v.a);
    vst1q_s32(p1, v.b);
    vst1q_s32(p2, v.c);
    vst1q_s32(p3, v.d);
}
#define HT_WORDS(name, op)                                                                                             \
    HT_INLINE int32x4_t ht_##name(int32x4_t x, int32x4_t y) {                                                          \
        return vreinterpretq_s32_s16(op(vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(y)));                          \
    }                                                                                                                  \
    HT_INLINE v16i name(v16i x, v16i y) {                                                                              \
        return (v16i){ht_##name(x.a, y.a), ht_##name(x.b, y.b), ht_##name(x.c, y.c), ht_##name(x.d, y.d)};             \
    }
HT_WORDS(v16w_join, vtrn1q_s16)
HT_WORDS(v16w_mul, vmulq_s16)
HT_WORDS(v16w_scale, vqrdmulhq_s16)
HT_WORDS(v16w_shift, vshlq_s16) /* a negative count shifts right, the sign coming in */
#undef HT_WORDS
HT_INLINE v16i v16w_shl(v16i x, int n) { return v16w_shift(x, v16i_set1(n * 0x10001)); }
HT_INLINE v16i v16w_sra(v16i x, int n) {
    return v16w_shift(x, v16i_set1((int32_t)((0x10000u - (unsigned)n) * 0x10001u)));
}
HT_INLINE int32x4_t ht_dot2(int32x4_t sum, int32x4_t x, int32x4_t y) {
    int16x8_t a = vreinterpretq_s16_s32(x), b = vreinterpretq_s16_s32(y);
    return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
}
HT_INLINE v16i v16w_dot(v16i sum, v16i x, v16i y) {
    return (v16i){ht_dot2(sum.a, x.a, y.a), ht_dot2(sum.b, x.b, y.b), ht_dot2(sum.c, x.c, y.c),
                  ht_dot2(sum.d, x.d, y.d)};
}

#else

HT_INLINE void v16i_store_quads(void *p0, void *p1, void *p2, void *p3, v16i v) {
    memcpy(p0, v.x, 16);
    memcpy(p1, v.x + 4, 16);
    memcpy(p2, v.x + 8, 16);
    memcpy(p3, v.x + 12, 16);
}
/* Word i of the result from words a and b of x and y. */
#define HT_WORDS(expression)                                                                                           \
    int16_t xs[32], ys[32];                                                                                            \
    memcpy(xs, x.x, sizeof xs);                                                                                        \
    memcpy(ys, y.x, sizeof ys);                                                                                        \
    for (int i = 0; i < 32; i++) {                                                                                     \
        int a = xs[i], b = ys[i];                                                                                      \
        xs[i] = (int16_t)(expression);                                                                                 \
    }                                                                                                                  \
    memcpy(x.x, xs, sizeof xs);                                                                                        \
    return x
HT_INLINE v16i v16w_mul(v16i x, v16i y) { HT_WORDS(a * b); }
HT_INLINE v16i v16w_scale(v16i x, v16i y) { HT_WORDS((a * b + 0x4000) >> 15); }
#undef HT_WORDS
HT_INLINE v16i v16w_join(v16i low, v16i high) { return v16i_or(v16i_and(low, v16i_set1(0xffff)), v16i_shl(high, 16)); }
HT_INLINE v16i v16w_shl(v16i x, int n) {
    return v16i_and(v16i_shl(x, n), v16i_set1((int32_t)((0xffffu << n & 0xffffu) * 0x10001u)));
}
HT_INLINE v16i v16w_sra(v16i x, int n) { return v16w_join(v16i_sra(v16i_shl(x, 16), 16 + n), v16i_sra(x, 16 + n)); }
HT_INLINE v16i v16w_dot(v16i sum, v16i x, v16i y) {
    for (int i = 0; i < 16; i++) {
        int16_t a[2], b[2];
        memcpy(a, &x.x[i], sizeof a);
        memcpy(b, &y.x[i], sizeof b);
        sum.x[i] += a[0] * b[0] + a[1] * b[1];
    }
    return sum;
}

#endif

#endif
