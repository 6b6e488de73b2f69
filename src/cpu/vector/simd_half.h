/* Conversion of f16 and bf16 weights to 16-bit integers, on the lanes of simd.h and simd_word.h. Only where
 * HT_DOT_WORDS: a 16-bit dot product takes one instruction; elsewhere f32 products are as fast.
 *
 *   v16i_nearest(v)            from f32, to nearest even; the value must fit
 *   v16i_set2(p)               the same two words in every lane
 *   v16w_max(a, b)             maximum of unsigned words
 *   v16w_double(a)             shift left by 1
 *   v16w_max_halves(v)         lane l: maximum of the unsigned words l and l + 16 */
#ifndef HT_CPU_VECTOR_SIMD_HALF_H
#define HT_CPU_VECTOR_SIMD_HALF_H

#include "cpu/vector/simd_int.h"
#include "cpu/vector/simd_word.h"

#if defined(HT_ISA_avx512)

#define HT_DOT_WORDS 1

HT_INLINE v16i v16i_nearest(v16f v) { return _mm512_cvtps_epi32(v); }
HT_INLINE v16i v16w_max(v16i a, v16i b) { return _mm512_max_epu16(a, b); }
HT_INLINE v16i v16w_double(v16i a) { return _mm512_add_epi16(a, a); }
HT_INLINE v16i v16w_max_halves(v16i v) {
    return _mm512_cvtepu16_epi32(_mm256_max_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

#elif defined(HT_ISA_avxvnni)

#define HT_DOT_WORDS 1

HT_INLINE v16i v16i_nearest(v16f v) { return (v16i){_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)}; }
HT_INLINE v16i v16w_max(v16i a, v16i b) { return (v16i){_mm256_max_epu16(a.a, b.a), _mm256_max_epu16(a.b, b.b)}; }
HT_INLINE v16i v16w_double(v16i a) { return (v16i){_mm256_add_epi16(a.a, a.a), _mm256_add_epi16(a.b, a.b)}; }
HT_INLINE v16i v16w_max_halves(v16i v) {
    __m256i words = _mm256_max_epu16(v.a, v.b);
    return (v16i){_mm256_cvtepu16_epi32(_mm256_castsi256_si128(words)),
                  _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1))};
}

#else

#define HT_DOT_WORDS 0

#endif

HT_INLINE v16i v16i_set2(const int16_t *p) {
    int32_t two;
    memcpy(&two, p, sizeof two);
    return v16i_set1(two);
}

#endif
