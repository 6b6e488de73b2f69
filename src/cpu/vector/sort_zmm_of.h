/* What registers of numbers of one width without sign, and what is done to them, are called in AVX-512. Included by
 * sort_base_of.h for each width; sort_lanes_of.h takes the names back. */

#define REG         __m512i
#define LOAD(p)     _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512((p), (v))
#define AND         _mm512_and_si512
#define XOR         _mm512_xor_si512
#define COMPARED(v) (v) /* as MIN, MAX, BELOW and AT_MOST take it, and back */
#define SPARE       0   /* elements that STORE_BEFORE may overwrite beyond those it stores */
/* The first `some` lanes; of the others, as many may be overwritten as `left` says. */
#define STORE_FIRST(p, left, some, v) STORE_SOME((p), FIRST(some), (v))
/* The lanes of a mask, the last one right before `end`. */
#define STORE_BEFORE(end, mask, v)                                                                                     \
    STORE_SOME((end)-__builtin_popcount(mask), FIRST(__builtin_popcount(mask)), PACK((mask), (v)))

#if WIDTH == 16
typedef __mmask32 NAMED(mask);
#define ITEM         uint16_t
#define MIN          _mm512_min_epu16
#define MAX          _mm512_max_epu16
#define MASK_MAX     _mm512_mask_max_epu16
#define BELOW        _mm512_cmplt_epu16_mask
#define AT_MOST      _mm512_cmple_epu16_mask
#define EQUAL        _mm512_cmpeq_epi16_mask
#define SIGNS(v)     _mm512_srai_epi16((v), 15)
#define SET_SOME     _mm512_mask_mov_epi16
#define SIGNED_ABOVE _mm512_cmpgt_epi16_mask
#define PACK         pack_words
#define CHOOSE       "vpermi2w"
#define BLEND        _mm512_mask_blend_epi16
#define LOAD_SOME    _mm512_mask_loadu_epi16
#define STORE_SOME   _mm512_mask_storeu_epi16
#define LANES        32
#define LANE_BITS    5
#define FIRST(n)     ((__mmask32)((UINT64_C(1) << (n)) - 1))
#define ALL          ((__mmask32)-1)
#define SET1(x)      _mm512_set1_epi16((short)(x))
#define LOWEST(v)    ((uint16_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(v)))
#define EACH_LANE(f)                                                                                                   \
    {                                                                                                                  \
        f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15), f(16),   \
            f(17), f(18), f(19), f(20), f(21), f(22), f(23), f(24), f(25), f(26), f(27), f(28), f(29), f(30), f(31)    \
    }
#elif WIDTH == 32
typedef __mmask16 NAMED(mask);
#define ITEM         uint32_t
#define MIN          _mm512_min_epu32
#define MAX          _mm512_max_epu32
#define MASK_MAX     _mm512_mask_max_epu32
#define BELOW        _mm512_cmplt_epu32_mask
#define AT_MOST      _mm512_cmple_epu32_mask
#define EQUAL        _mm512_cmpeq_epi32_mask
#define SIGNS(v)     _mm512_srai_epi32((v), 31)
#define SET_SOME     _mm512_mask_mov_epi32
#define SIGNED_ABOVE _mm512_cmpgt_epi32_mask
#define PACK         _mm512_maskz_compress_epi32
#define CHOOSE       "vpermi2d"
#define BLEND        _mm512_mask_blend_epi32
#define LOAD_SOME    _mm512_mask_loadu_epi32
#define STORE_SOME   _mm512_mask_storeu_epi32
#define LANES        16
#define LANE_BITS    4
#define FIRST(n)     ((__mmask16)((1u << (n)) - 1))
#define ALL          ((__mmask16)0xffff)
#define SET1(x)      _mm512_set1_epi32((int)(x))
#define LOWEST(v)    ((uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(v)))
#define EACH_LANE(f)                                                                                                   \
    { f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15) }
#else
typedef __mmask8 NAMED(mask);
#define ITEM         uint64_t
#define MIN          _mm512_min_epu64
#define MAX          _mm512_max_epu64
#define MASK_MAX     _mm512_mask_max_epu64
#define BELOW        _mm512_cmplt_epu64_mask
#define AT_MOST      _mm512_cmple_epu64_mask
#define EQUAL        _mm512_cmpeq_epi64_mask
#define SIGNS(v)     _mm512_srai_epi64((v), 63)
#define SET_SOME     _mm512_mask_mov_epi64
#define SIGNED_ABOVE _mm512_cmpgt_epi64_mask
#define PACK         _mm512_maskz_compress_epi64
#define CHOOSE       "vpermi2q"
#define BLEND        _mm512_mask_blend_epi64
#define LOAD_SOME    _mm512_mask_loadu_epi64
#define STORE_SOME   _mm512_mask_storeu_epi64
#define LANES        8
#define LANE_BITS    3
#define FIRST(n)     ((__mmask8)((1u << (n)) - 1))
#define ALL          ((__mmask8)0xff)
#define SET1(x)      _mm512_set1_epi64((long long)(x))
#define LOWEST(v)    ((uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(v)))
#define EACH_LANE(f)                                                                                                   \
    { f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7) }
#endif

/* x ^ (sign & flip), and x ^ (~sign & flip). */
#define FLIP_NEGATIVE(x, flip) _mm512_ternarylogic_epi64((x), SIGNS(x), (flip), 0x78)
#define FLIP_POSITIVE(x, flip) _mm512_ternarylogic_epi64((x), SIGNS(x), (flip), 0xd2)
/* n, or the largest number where x is above the limit, both with sign. */
#define LARGEST_ABOVE(n, x, limit) SET_SOME((n), SIGNED_ABOVE((x), (limit)), SET1((ITEM)-1))

/* ---- lanes of one register ---- */

/* Lanes so many bits apart. */
#define APART_16(v)  _mm512_rol_epi32((v), 16)
#define APART_32(v)  _mm512_shuffle_epi32((v), _MM_PERM_CDAB)
#define APART_64(v)  _mm512_shuffle_epi32((v), _MM_PERM_BADC)
#define APART_128(v) _mm512_shuffle_i32x4((v), (v), 0xb1)
#define APART_256(v) _mm512_shuffle_i32x4((v), (v), 0x4e)

/* Compares lanes with those of `partner`; where bit i of `high` is set lane i takes the larger one. */
#define EXCHANGE(v, partner, high)                                                                                     \
    do {                                                                                                               \
        const __m512i other_ = (partner);                                                                              \
        (v) = MASK_MAX(MIN((v), other_), (high), (v), other_);                                                         \
    } while (0)

/* Lanes so many places apart. */
#if WIDTH == 16
#define BESIDE_1  APART_16
#define BESIDE_2  APART_32
#define BESIDE_4  APART_64
#define BESIDE_8  APART_128
#define BESIDE_16 APART_256
#elif WIDTH == 32
#define BESIDE_1 APART_32
#define BESIDE_2 APART_64
#define BESIDE_4 APART_128
#define BESIDE_8 APART_256
#else
#define BESIDE_1 APART_64
#define BESIDE_2 APART_128
#define BESIDE_4 APART_256
#endif

/* ---- lanes of two registers ---- */

/* Minimum and maximum have one unit; every other pair is compared to a mask and chosen by it, which takes more, but others. */
static inline __attribute__((always_inline)) void NAMED(mask_order_two)(REG *a, REG *b) {
    const NAMED(mask) above = BELOW(*b, *a);
    const REG low = BLEND(above, *a, *b);
    *b = BLEND(above, *b, *a);
    *a = low;
}
#define ORDER_BY_MASK NAMED(mask_order_two)

/* Which lanes of two registers make up the first and the second one of a pair. Bit `d` of the lane and the bit that tells
 * the two registers apart change places: */
#define NEAR(j, d) ((j) & (d) ? LANES + ((j) ^ (d)) : (j))
#define FAR(j, d)  ((j) & (d) ? LANES + (j) : (j) ^ (d))
/* The partners of NEAR in columns that are merged upside down: */
#define UPSIDE(j, d) ((j) & (d) ? LANES + ((j) ^ ((d)-1)) : (j) ^ (2 * (d)-1))
/* After the last of `n` exchanges of lanes: their bits are one place away from where they were. */
#define BACK_1(j, n)   (((j) & ~((1 << (n)) - 1)) | ((j) & ((1 << (n)) - 1)) >> 1 | ((j)&1) << ((n)-1))
#define NEAR_END(j, n) NEAR(BACK_1(j, n), 1 << ((n)-1))
#define FAR_END(j, n)  FAR(BACK_1(j, n), 1 << ((n)-1))
/* The last exchange of a transposition: lane bits have to move by as many as there are bits in the register's number. */
#define TURNED(j, n)    (((j) & ((1 << (n)) - 1)) << (LANE_BITS - (n)) | (j) >> (n))
#define NEAR_TURN(j, n) NEAR(TURNED(j, n), LANES / 2)
#define FAR_TURN(j, n)  FAR(TURNED(j, n), LANES / 2)

#define N1(j)  NEAR(j, 1)
#define N2(j)  NEAR(j, 2)
#define N4(j)  NEAR(j, 4)
#define N8(j)  NEAR(j, 8)
#define F1(j)  FAR(j, 1)
#define F2(j)  FAR(j, 2)
#define F4(j)  FAR(j, 4)
#define F8(j)  FAR(j, 8)
#define U1(j)  UPSIDE(j, 1)
#define U2(j)  UPSIDE(j, 2)
#define U4(j)  UPSIDE(j, 4)
#define U8(j)  UPSIDE(j, 8)
#define NE2(j) NEAR_END(j, 2)
#define NE3(j) NEAR_END(j, 3)
#define NE4(j) NEAR_END(j, 4)
#define NE5(j) NEAR_END(j, 5)
#define FE2(j) FAR_END(j, 2)
#define FE3(j) FAR_END(j, 3)
#define FE4(j) FAR_END(j, 4)
#define FE5(j) FAR_END(j, 5)
#define NT1(j) NEAR_TURN(j, 1)
#define NT2(j) NEAR_TURN(j, 2)
#define NT3(j) NEAR_TURN(j, 3)
#define NT4(j) NEAR_TURN(j, 4)
#define FT1(j) FAR_TURN(j, 1)
#define FT2(j) FAR_TURN(j, 2)
#define FT3(j) FAR_TURN(j, 3)
#define FT4(j) FAR_TURN(j, 4)

#if WIDTH != 16
static const ITEM NAMED(apart)[][2][LANES] = {
    {EACH_LANE(N1), EACH_LANE(F1)},
    {EACH_LANE(N2), EACH_LANE(F2)},
    {EACH_LANE(N4), EACH_LANE(F4)},
#if WIDTH == 32
    {EACH_LANE(N8), EACH_LANE(F8)},
#endif
};
static const ITEM NAMED(upside)[][LANES] = {
    EACH_LANE(U1),
    EACH_LANE(U2),
    EACH_LANE(U4),
#if WIDTH == 32
    EACH_LANE(U8),
#endif
};
#endif
static const ITEM NAMED(merged)[][2][LANES] = {
    {EACH_LANE(NE2), EACH_LANE(FE2)},
    {EACH_LANE(NE3), EACH_LANE(FE3)},
#if WIDTH != 64
    {EACH_LANE(NE4), EACH_LANE(FE4)},
#endif
#if WIDTH == 16
    {EACH_LANE(NE5), EACH_LANE(FE5)},
#endif
};
static const ITEM NAMED(turned)[][2][LANES] = {
    {EACH_LANE(NT1), EACH_LANE(FT1)},
    {EACH_LANE(NT2), EACH_LANE(FT2)},
    {EACH_LANE(NT3), EACH_LANE(FT3)},
#if WIDTH != 64
    {EACH_LANE(NT4), EACH_LANE(FT4)},
#endif
};

/* Lanes of a and b, both of which are needed again: the intrinsic would be compiled to the form that overwrites one of them,
 * and a copy before it, which takes a slot of the unit that everything here waits for. */
static inline __attribute__((always_inline)) __m512i NAMED(paired)(__m512i a, const ITEM *lanes, __m512i b) {
    __m512i chosen = _mm512_loadu_si512(lanes);
    __asm__(CHOOSE " %2, %1, %0" : "+v"(chosen) : "v"(a), "v"(b));
    return chosen;
}

/* What NEAR, FAR and UPSIDE choose of two registers, for d = 1 << bit. */
#if WIDTH != 16
static inline __attribute__((always_inline)) __m512i NAMED(near)(__m512i a, __m512i b, int bit) {
    return NAMED(paired)(a, NAMED(apart)[bit][0], b);
}
static inline __attribute__((always_inline)) __m512i NAMED(far)(__m512i a, __m512i b, int bit) {
    return NAMED(paired)(a, NAMED(apart)[bit][1], b);
}
static inline __attribute__((always_inline)) __m512i NAMED(upside_down)(__m512i a, __m512i b, int bit) {
    return NAMED(paired)(a, NAMED(upside)[bit], b);
}
#else /* Choosing lanes of 16 bits takes three times as long as pairs of them, so these stay together where they can. */
static inline __attribute__((always_inline)) __m512i near_16(__m512i a, __m512i b, int bit) {
    return bit ? near_32(a, b, bit - 1) : BLEND(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}
static inline __attribute__((always_inline)) __m512i far_16(__m512i a, __m512i b, int bit) {
    return bit ? far_32(a, b, bit - 1) : BLEND(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b);
}
static inline __attribute__((always_inline)) __m512i upside_down_16(__m512i a, __m512i b, int bit) {
    return bit ? APART_16(upside_down_32(a, b, bit - 1)) : far_16(a, b, 0);
}
#endif

/* near and far with lanes put back to where they were after exchanges of lanes up to this bit. */
static inline __attribute__((always_inline)) __m512i NAMED(near_back)(__m512i a, __m512i b, int bit) {
    return NAMED(paired)(a, NAMED(merged)[bit - 1][0], b);
}
static inline __attribute__((always_inline)) __m512i NAMED(far_back)(__m512i a, __m512i b, int bit) {
    return NAMED(paired)(a, NAMED(merged)[bit - 1][1], b);
}

/* near and far of the highest bit after `bits` exchanges of a transposition, with lanes where they belong. */
static inline __attribute__((always_inline)) __m512i NAMED(near_turned)(__m512i a, __m512i b, int bits) {
    return NAMED(paired)(a, NAMED(turned)[bits - 1][0], b);
}
static inline __attribute__((always_inline)) __m512i NAMED(far_turned)(__m512i a, __m512i b, int bits) {
    return NAMED(paired)(a, NAMED(turned)[bits - 1][1], b);
}

/* With a minimum and maximum that take three times as long, lanes are compared to a mask. */
#if WIDTH == 64
#define LANES_ORDER(low, high, a, b)                                                                                   \
    do {                                                                                                               \
        const NAMED(mask) above_ = BELOW(b, a);                                                                        \
        (low) = BLEND(above_, a, b), (high) = BLEND(above_, b, a);                                                     \
    } while (0)
#else
#define LANES_ORDER(low, high, a, b) ((low) = MIN(a, b), (high) = MAX(a, b))
#endif
