/* Unpacking of few-bit groups on the lanes of simd.h.
 *
 *   v16i_unpack(p, bits)     sixteen lanes of HT_NUMBERS_OF_LANE(bits) elements each, the first in the lowest bits; higher
 *                            bits are undefined. Reads up to 64 bytes
 *   v16f_low_bits(v, bits)   the lowest `bits` <= 8 bits of each lane as an unsigned number
 *   v16f_e2m1(v, i)          element i of e2m1 lanes: 1 sign bit, 2 exponent bits, 1 mantissa bit
 *   v16f_e4m3(v, i)          element i of e4m3 lanes
 *   v16f_twice(p)            p[0], p[0], p[1], p[1], ... p[7]
 *
 * `bits` and `i` must be constants after inlining. */
#ifndef HT_CPU_VECTOR_SIMD_GROUPS_H
#define HT_CPU_VECTOR_SIMD_GROUPS_H

#include "cpu/vector/simd_int.h"

#include <math.h>

/* Elements per 32-bit lane. 3, 5 and 6 bits use only 24, 20 and 24 bits of a lane, so that no element straddles
 * lanes. */
#define HT_NUMBERS_OF_LANE(bits) ((bits) == 2 ? 16 : (bits) <= 4 ? 8 : 4)

/* First byte of a lane's elements. With 5 bits, odd lanes start 4 bits into that byte. */
#define HT_LANE_BYTE(bits, lane) ((lane)*HT_NUMBERS_OF_LANE(bits) * (bits) / 8)

#if defined(HT_ISA_avx512) || defined(HT_ISA_YMM)
/* Byte shuffle from 16 bytes to four lanes. With 5 bits, odd lanes are loaded from 4 bits before their start. */
HT_INLINE __m128i ht_bytes_of_lanes(int bits) {
    return bits == 5 ? _mm_setr_epi8(0, 1, 2, 3, 2, 3, 4, 5, 5, 6, 7, 8, 7, 8, 9, 10)
                     : _mm_setr_epi8(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12);
}
#endif

#if defined(HT_ISA_avx512)

#define HT_EIGHT_WORDS(w) (w), (w) + 1, (w) + 2, (w) + 3, (w) + 4, (w) + 5, (w) + 6, (w) + 7
#define HT_QUARTERS_FROM(step)                                                                                         \
    HT_EIGHT_WORDS(0), HT_EIGHT_WORDS(step), HT_EIGHT_WORDS(2 * (step)), HT_EIGHT_WORDS(3 * (step))
HT_INLINE v16i v16i_unpack(const uint8_t *p, int bits) {
    if (bits == 2 || bits == 4 || bits == 8) return _mm512_loadu_si512(p);
    /* 16-bit permutation of every four lanes' bytes to their quarter of the register; the byte shuffle follows */
    static const uint16_t three[32] = {HT_QUARTERS_FROM(6)}, two_and_a_half[32] = {HT_QUARTERS_FROM(5)};
    const __m512i quarters = _mm512_loadu_si512(bits == 5 ? two_and_a_half : three);
    __m512i v = _mm512_maskz_loadu_epi8(bits == 5 ? (UINT64_C(1) << 40) - 1 : (UINT64_C(1) << 48) - 1, p);
    v = _mm512_shuffle_epi8(_mm512_permutexvar_epi16(quarters, v), _mm512_broadcast_i32x4(ht_bytes_of_lanes(bits)));
    return bits == 5 ? _mm512_srlv_epi32(v, _mm512_set1_epi64(INT64_C(4) << 32)) : v;
}

#else

HT_INLINE v16i v16i_unpack(const uint8_t *p, int bits) {
    if (bits == 2 || bits == 4 || bits == 8) return v16i_load_bytes(p);
#if defined(HT_ISA_YMM)
    const __m256i both = _mm256_broadcastsi128_si256(ht_bytes_of_lanes(bits));
    const int step = HT_LANE_BYTE(bits, 4);
    __m256i half[2];
    for (int i = 0; i < 2; i++) {
        __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * i * step));
        __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(p + (2 * i + 1) * step));
        half[i] = _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), both);
        if (bits == 5) half[i] = _mm256_srlv_epi32(half[i], _mm256_set1_epi64x(INT64_C(4) << 32));
    }
    return (v16i){half[0], half[1]};
#else
    int32_t lane[16];
    for (int i = 0; i < 16; i++) {
        uint32_t word;
        memcpy(&word, p + HT_LANE_BYTE(bits, i), sizeof word);
        lane[i] = (int32_t)(bits == 5 && i & 1 ? word >> 4 : word);
    }
    return v16i_load(lane);
#endif
}

#endif

/* Shifts left by n, or right by -n. */
HT_INLINE v16i ht_moved(v16i v, int n) { return n > 0 ? v16i_shl(v, n) : n < 0 ? v16i_shr(v, -n) : v; }

/* Decodes small floats without infinities. `em` has exponent and mantissa at f32's bit positions, `bias` is the
 * format's exponent bias. Decoded as normal numbers, all values are v; denormals are really 2 v - 2^(1 - bias), which
 * is below v only for them, so a minimum selects them. No intermediate is a denormal. */
HT_INLINE v16f ht_small_float(v16i em, int bias, float least_normal, v16i sign) {
    v16f v = v16f_from_bits(v16i_add(em, v16i_set1((127 - bias) << 23)));
    v = v16f_min(v16f_fma(v, v16f_set1(2.0f), v16f_set1(-least_normal)), v);
    return v16f_from_bits(v16i_or(v16f_bits(v), sign));
}
HT_INLINE v16i ht_sign_at(v16i v, int bit) { return v16i_and(ht_moved(v, 31 - bit), v16i_set1(INT32_MIN)); }

HT_INLINE v16f v16f_e4m3(v16i v, int i) {
    const v16i all = v16i_set1(0x7f << 20);
    v16i em = v16i_and(ht_moved(v, 20 - 8 * i), all);
    v16f y = ht_small_float(em, 7, 0x1p-6f, ht_sign_at(v, 8 * i + 7));
    return v16f_select(v16i_eq(em, all), v16f_set1(NAN), y);
}

#if defined(HT_ISA_avx512) /* the permutation uses only four index bits */

HT_INLINE v16f v16f_low_bits(v16i v, int bits) {
    if (bits > 4) return _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32((1 << bits) - 1)));
    const int m = (1 << bits) - 1;
#define HT_N(i) (float)((i)&m)
    const __m512 table = _mm512_setr_ps(HT_N(0), HT_N(1), HT_N(2), HT_N(3), HT_N(4), HT_N(5), HT_N(6), HT_N(7), HT_N(8),
                                        HT_N(9), HT_N(10), HT_N(11), HT_N(12), HT_N(13), HT_N(14), HT_N(15));
#undef HT_N
    return _mm512_permutexvar_ps(v, table);
}
HT_INLINE v16f v16f_e2m1(v16i v, int i) {
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f,
                                        -2.0f, -3.0f, -4.0f, -6.0f);
    return _mm512_permutexvar_ps(ht_moved(v, -4 * i), table);
}
HT_INLINE v16f v16f_twice(const float *p) {
    const __m512i from = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(from, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}

#else

HT_INLINE v16f v16f_low_bits(v16i v, int bits) { return v16f_from_i(v16i_and(v, v16i_set1((1 << bits) - 1))); }
HT_INLINE v16f v16f_e2m1(v16i v, int i) {
    v16i em = v16i_and(ht_moved(v, 22 - 4 * i), v16i_set1(7 << 22));
    return ht_small_float(em, 1, 1.0f, ht_sign_at(v, 4 * i + 3));
}
HT_INLINE v16f v16f_twice(const float *p) {
#if defined(HT_ISA_YMM)
    __m256 x = _mm256_loadu_ps(p);
    return (v16f){_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
                  _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
#else
    float each[16];
    for (int i = 0; i < 16; i++) each[i] = p[i / 2];
    return v16f_load(each);
#endif
}

#endif

#endif
