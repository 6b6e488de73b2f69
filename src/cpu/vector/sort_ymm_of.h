/* What registers of numbers of one width without sign, and what is done to them, are called in AVX2. Included by
 * sort_base_of.h for 32 and 64 bits; sort_lanes_of.h takes the names back. A mask has a bit for each lane. */

typedef uint8_t NAMED(mask);
#define REG         __m256i
#define LOAD(p)     _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), (v))
#define AND         _mm256_and_si256
#define XOR         _mm256_xor_si256

#if WIDTH == 32
#define ITEM                  uint32_t
#define LANES                 8
#define LANE_BITS             3
#define SET1(x)               _mm256_set1_epi32((int)(x))
#define LOWEST(v)             ((uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(v)))
#define SIGNED_ABOVE          _mm256_cmpgt_epi32
#define MIN                   _mm256_min_epi32
#define MAX                   _mm256_max_epi32
#define EQUAL(a, b)           ONES(_mm256_cmpeq_epi32((a), (b)))
#define ONES(v)               ((mask_32)_mm256_movemask_ps(_mm256_castsi256_ps(v)))
#define SIGNS(v)              _mm256_srai_epi32((v), 31)
#define IOTA                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
#define LOAD_MASKED(p, m)     _mm256_maskload_epi32((const int *)(const void *)(p), (m))
#define STORE_MASKED(p, m, v) _mm256_maskstore_epi32((int *)(void *)(p), (m), (v))
#define MOVED(which)          packing_32[which]
#define CHOSEN(a, b, high)    _mm256_blend_epi32((a), (b), (high))
#else
#define ITEM                  uint64_t
#define LANES                 4
#define LANE_BITS             2
#define SET1(x)               _mm256_set1_epi64x((long long)(x))
#define LOWEST(v)             ((uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128(v)))
#define SIGNED_ABOVE          _mm256_cmpgt_epi64
#define MIN(a, b)             _mm256_blendv_epi8((a), (b), _mm256_cmpgt_epi64((a), (b)))
#define MAX(a, b)             _mm256_blendv_epi8((b), (a), _mm256_cmpgt_epi64((a), (b)))
#define EQUAL(a, b)           ONES(_mm256_cmpeq_epi64((a), (b)))
#define ONES(v)               ((mask_64)_mm256_movemask_pd(_mm256_castsi256_pd(v)))
#define SIGNS(v)              _mm256_cmpgt_epi64(_mm256_setzero_si256(), (v))
#define IOTA                  _mm256_setr_epi64x(0, 1, 2, 3)
#define LOAD_MASKED(p, m)     _mm256_maskload_epi64((const long long *)(const void *)(p), (m))
#define STORE_MASKED(p, m, v) _mm256_maskstore_epi64((long long *)(void *)(p), (m), (v))
#define MOVED(which)          packing_64[(which)&ALL]
#define CHOSEN(a, b, high)    _mm256_castpd_si256(_mm256_blend_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b), (high)))
#endif

#define ALL      ((NAMED(mask))((1 << LANES) - 1))
#define FIRST(n) ((NAMED(mask))((1u << (n)) - 1))

/* There are comparisons and, of 32 bits, minimum and maximum of numbers with sign: numbers as these take them, and back. */
#define COMPARED(v)   XOR((v), SET1((ITEM)1 << (WIDTH - 1)))
#define BELOW(a, b)   ONES(SIGNED_ABOVE((b), (a)))
#define AT_MOST(a, b) ((NAMED(mask))(BELOW((b), (a)) ^ ALL))

#define FLIP_NEGATIVE(x, flip)     XOR((x), AND(SIGNS(x), (flip)))
#define FLIP_POSITIVE(x, flip)     XOR((x), _mm256_andnot_si256(SIGNS(x), (flip)))
#define LARGEST_ABOVE(n, x, limit) _mm256_or_si256((n), SIGNED_ABOVE((x), (limit)))

/* Lanes of the mask side by side, and the others behind them. */
#define PACK(which, v) _mm256_permutevar8x32_epi32((v), lanes_of_bytes(MOVED(which)))

/* The lanes of a mask, the last one right before `end`; LANES elements before it are overwritten. */
#define SPARE                       LANES
#define STORE_BEFORE(end, which, v) STORE((end)-LANES, PACK((NAMED(mask))((which) ^ ALL), (v)))

/* Masks of the first lanes alone. A masked store takes AMD's cores longer than all else together, so it is for few. */
static inline REG NAMED(first_lanes)(NAMED(mask) m) { return SIGNED_ABOVE(SET1(__builtin_popcount(m)), IOTA); }
static inline REG NAMED(set_some)(REG v, NAMED(mask) m, REG x) {
    return _mm256_blendv_epi8(v, x, NAMED(first_lanes)(m));
}
static inline REG NAMED(load_some)(REG v, NAMED(mask) m, const ITEM *p) {
    return m == ALL ? LOAD(p) : NAMED(set_some)(v, m, LOAD_MASKED(p, NAMED(first_lanes)(m)));
}
static inline void NAMED(store_some)(ITEM *p, NAMED(mask) m, REG v) {
    if (m == ALL)
        STORE(p, v);
    else
        STORE_MASKED(p, NAMED(first_lanes)(m), v);
}
/* The first `some` lanes; of what is behind them, as much may be overwritten as is `left` from p on. */
static inline void NAMED(store_first)(ITEM *p, int64_t left, int some, REG v) {
    if (left >= LANES)
        STORE(p, v);
    else
        NAMED(store_some)(p, FIRST(some), v);
}
#define SET_SOME    NAMED(set_some)
#define LOAD_SOME   NAMED(load_some)
#define STORE_SOME  NAMED(store_some)
#define STORE_FIRST NAMED(store_first)

/* ---- lanes of one register ---- */

/* Compares lanes with those of `partner`; where bit i of `high` is set lane i takes the larger one. */
#define EXCHANGE(v, partner, high)                                                                                     \
    do {                                                                                                               \
        const REG other_ = (partner);                                                                                  \
        (v) = CHOSEN(MIN((v), other_), MAX((v), other_), (high));                                                      \
    } while (0)

/* Lanes so many places apart. */
#if WIDTH == 32
#define BESIDE_1(v) _mm256_shuffle_epi32((v), 0xb1)
#define BESIDE_2(v) _mm256_shuffle_epi32((v), 0x4e)
#define BESIDE_4(v) _mm256_permute2x128_si256((v), (v), 1)
#else
#define BESIDE_1(v) _mm256_shuffle_epi32((v), 0x4e)
#define BESIDE_2(v) _mm256_permute2x128_si256((v), (v), 1)
#endif

/* ---- lanes of two registers ---- */

/* Which lanes of two registers make up the first and the second one of a pair: bit `bit` of the lane and the bit that tells the
 * two registers apart change places. */
HT_INLINE REG NAMED(near)(REG a, REG b, int bit) {
#if WIDTH == 32
    if (bit == 0) return _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xaa);
#endif
    return bit < LANE_BITS - 1 ? _mm256_unpacklo_epi64(a, b) : _mm256_permute2x128_si256(a, b, 0x20);
}
HT_INLINE REG NAMED(far)(REG a, REG b, int bit) {
#if WIDTH == 32
    if (bit == 0) return _mm256_blend_epi32(_mm256_srli_epi64(a, 32), b, 0xaa);
#endif
    return bit < LANE_BITS - 1 ? _mm256_unpackhi_epi64(a, b) : _mm256_permute2x128_si256(a, b, 0x31);
}

/* The partners of `near` in columns that are merged upside down. */
HT_INLINE REG NAMED(upside_down)(REG a, REG b, int bit) {
    const REG v = NAMED(far)(a, b, bit);
    if (bit == 0) return v;
#if WIDTH == 32
    return bit == 1 ? _mm256_shuffle_epi32(v, 0xb1) : _mm256_shuffle_epi32(v, 0x1b);
#else
    return _mm256_shuffle_epi32(v, 0x4e);
#endif
}

/* near and far with lanes put back to where they were after exchanges of lanes up to this bit, which is not the lowest. */
#if WIDTH == 32
HT_INLINE REG near_back_32(REG a, REG b, int bit) {
    const REG low = _mm256_unpacklo_epi32(a, b);
    return bit == 1 ? low : _mm256_permute2x128_si256(low, _mm256_unpackhi_epi32(a, b), 0x20);
}
HT_INLINE REG far_back_32(REG a, REG b, int bit) {
    const REG high = _mm256_unpackhi_epi32(a, b);
    return bit == 1 ? high : _mm256_permute2x128_si256(_mm256_unpacklo_epi32(a, b), high, 0x31);
}
#else
HT_INLINE REG near_back_64(REG a, REG b, int bit) {
    (void)bit;
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), 0x20);
}
HT_INLINE REG far_back_64(REG a, REG b, int bit) {
    (void)bit;
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), 0x31);
}
#endif

/* near and far of the highest bit after `bits` exchanges of a transposition, with lanes where they belong. */
HT_INLINE REG NAMED(in_turn)(REG v, int bits) {
#if WIDTH == 32
    if (bits == 1) return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if (bits == 2) return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    return v;
#else
    return bits == 1 ? _mm256_permute4x64_epi64(v, 0xd8) : v;
#endif
}
HT_INLINE REG NAMED(near_turned)(REG a, REG b, int bits) {
    return NAMED(in_turn)(NAMED(near)(a, b, LANE_BITS - 1), bits);
}
HT_INLINE REG NAMED(far_turned)(REG a, REG b, int bits) {
    return NAMED(in_turn)(NAMED(far)(a, b, LANE_BITS - 1), bits);
}

#define LANES_ORDER(low, high, a, b) ((low) = MIN((a), (b)), (high) = MAX((a), (b)))
#define ORDER_BY_MASK                NAMED(order_two)
