/* What registers of numbers of one width without sign, and what is done to them, are called. Included by sort_base_of.h
 * for each width; sort_lanes_of.h takes the names back. */

#define JOINED_(f, w) f##_##w
#define JOINED(f, w)  JOINED_(f, w)
#define NAMED(f)      JOINED(f, WIDTH)

#if WIDTH == 16
typedef __mmask32 NAMED(mask);
#define ITEM       uint16_t
#define MIN        _mm512_min_epu16
#define MAX        _mm512_max_epu16
#define MASK_MAX   _mm512_mask_max_epu16
#define BELOW      _mm512_cmplt_epu16_mask
#define AT_MOST    _mm512_cmple_epu16_mask
#define EQUAL      _mm512_cmpeq_epi16_mask
#define ABOVE      _mm512_cmpgt_epi16_mask /* with sign */
#define SET_SOME   _mm512_mask_mov_epi16
#define SIGNS(v)   _mm512_srai_epi16((v), 15)
#define LOGIC      _mm512_ternarylogic_epi32
#define PACK       pack_words
#define PERMUTED   _mm512_permutexvar_epi16
#define CHOOSE     "vpermi2w"
#define BLEND      _mm512_mask_blend_epi16
#define LOAD_SOME  _mm512_mask_loadu_epi16
#define STORE_SOME _mm512_mask_storeu_epi16
#define LANES      32
#define LANE_BITS  5
#define FIRST(n)   ((__mmask32)((UINT64_C(1) << (n)) - 1))
#define ALL        ((__mmask32)-1)
#define SET1(x)    _mm512_set1_epi16((short)(x))
#define LOWEST(v)  ((uint16_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(v)))
#define EACH_LANE(f)                                                                                                   \
    {                                                                                                                  \
        f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15), f(16),   \
            f(17), f(18), f(19), f(20), f(21), f(22), f(23), f(24), f(25), f(26), f(27), f(28), f(29), f(30), f(31)    \
    }
#elif WIDTH == 32
typedef __mmask16 NAMED(mask);
#define ITEM       uint32_t
#define MIN        _mm512_min_epu32
#define MAX        _mm512_max_epu32
#define MASK_MAX   _mm512_mask_max_epu32
#define BELOW      _mm512_cmplt_epu32_mask
#define AT_MOST    _mm512_cmple_epu32_mask
#define EQUAL      _mm512_cmpeq_epi32_mask
#define ABOVE      _mm512_cmpgt_epi32_mask /* with sign */
#define SET_SOME   _mm512_mask_mov_epi32
#define SIGNS(v)   _mm512_srai_epi32((v), 31)
#define LOGIC      _mm512_ternarylogic_epi32
#define PACK       _mm512_maskz_compress_epi32
#define PERMUTED   _mm512_permutexvar_epi32
#define CHOOSE     "vpermi2d"
#define BLEND      _mm512_mask_blend_epi32
#define LOAD_SOME  _mm512_mask_loadu_epi32
#define STORE_SOME _mm512_mask_storeu_epi32
#define LANES      16
#define LANE_BITS  4
#define FIRST(n)   ((__mmask16)((1u << (n)) - 1))
#define ALL        ((__mmask16)0xffff)
#define SET1(x)    _mm512_set1_epi32((int)(x))
#define LOWEST(v)  ((uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(v)))
#define EACH_LANE(f)                                                                                                   \
    { f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15) }
#else
typedef __mmask8 NAMED(mask);
#define ITEM       uint64_t
#define MIN        _mm512_min_epu64
#define MAX        _mm512_max_epu64
#define MASK_MAX   _mm512_mask_max_epu64
#define BELOW      _mm512_cmplt_epu64_mask
#define AT_MOST    _mm512_cmple_epu64_mask
#define EQUAL      _mm512_cmpeq_epi64_mask
#define ABOVE      _mm512_cmpgt_epi64_mask
#define SET_SOME   _mm512_mask_mov_epi64
#define SIGNS(v)   _mm512_srai_epi64((v), 63)
#define LOGIC      _mm512_ternarylogic_epi64
#define PACK       _mm512_maskz_compress_epi64
#define PERMUTED   _mm512_permutexvar_epi64
#define CHOOSE     "vpermi2q"
#define BLEND      _mm512_mask_blend_epi64
#define LOAD_SOME  _mm512_mask_loadu_epi64
#define STORE_SOME _mm512_mask_storeu_epi64
#define LANES      8
#define LANE_BITS  3
#define FIRST(n)   ((__mmask8)((1u << (n)) - 1))
#define ALL        ((__mmask8)0xff)
#define SET1(x)    _mm512_set1_epi64((long long)(x))
#define LOWEST(v)  ((uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(v)))
#define EACH_LANE(f)                                                                                                   \
    { f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7) }
#endif
