/* Numbers of one width without sign in registers: what they are called, and up to sixteen registers of them in order.
 * Included by sort_lanes.h for each, before sort_lanes_of.h, with WIDTH 16, 32 or 64.
 *
 * The numbers of one lane of all registers are a column. Columns are sorted side by side, and then merged by twos: what has
 * to be compared lies in two registers once both have exchanged halves of their lanes, so that no lane compares in vain. */
#include "cpu/vector/sort_names_of.h"

enum { NAMED(BASE_SORT) = 16 * LANES };

/* ---- elements as numbers ---- */

/* An element x counts as x ^ top, and if it is negative as x ^ top ^ flip; above `limit` but for its sign as the largest
 * number. */
typedef struct NAMED(form) {
    ITEM top, flip, limit;
} NAMED(form);

static const NAMED(form) NAMED(plain) = {0, 0, (ITEM)-1 >> 1}; /* numbers without sign */

typedef struct NAMED(forms) {
    __m512i top, flip, limit, most;
} NAMED(forms);

static inline NAMED(forms) NAMED(forms_of)(const NAMED(form) * f) {
    return (NAMED(forms)){SET1(f->top), SET1(f->flip), SET1(f->limit), SET1((ITEM)-1 >> 1)};
}

static inline __m512i NAMED(numbers)(const NAMED(forms) * f, __m512i x) {
    const NAMED(mask) odd = ABOVE(_mm512_and_si512(x, f->most), f->limit);
    const __m512i n = _mm512_xor_si512(LOGIC(x, SIGNS(x), f->flip, 0x78), f->top); /* x ^ (sign & flip) */
    return SET_SOME(n, odd, SET1((ITEM)-1));
}

static inline __m512i NAMED(elements)(const NAMED(forms) * f, __m512i n) {
    return _mm512_xor_si512(LOGIC(n, SIGNS(n), f->flip, 0xd2), f->top); /* n ^ (~sign & flip) */
}

static inline NAMED(mask) NAMED(lanes_left)(int64_t left) { return left >= LANES ? ALL : left > 0 ? FIRST(left) : 0; }

/* ---- one register ---- */

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

static inline __m512i NAMED(sort_lanes)(__m512i v) {
#if WIDTH == 16
    EXCHANGE(v, APART_16(v), 0x66666666);
    EXCHANGE(v, APART_32(v), 0x3c3c3c3c);
    EXCHANGE(v, APART_16(v), 0x5a5a5a5a);
    EXCHANGE(v, APART_64(v), 0x0ff00ff0);
    EXCHANGE(v, APART_32(v), 0x33cc33cc);
    EXCHANGE(v, APART_16(v), 0x55aa55aa);
    EXCHANGE(v, APART_128(v), 0x00ffff00);
    EXCHANGE(v, APART_64(v), 0x0f0ff0f0);
    EXCHANGE(v, APART_32(v), 0x3333cccc);
    EXCHANGE(v, APART_16(v), 0x5555aaaa);
    EXCHANGE(v, APART_256(v), 0xffff0000);
    EXCHANGE(v, APART_128(v), 0xff00ff00);
    EXCHANGE(v, APART_64(v), 0xf0f0f0f0);
    EXCHANGE(v, APART_32(v), 0xcccccccc);
    EXCHANGE(v, APART_16(v), 0xaaaaaaaa);
#elif WIDTH == 32
    EXCHANGE(v, APART_32(v), 0x6666);
    EXCHANGE(v, APART_64(v), 0x3c3c);
    EXCHANGE(v, APART_32(v), 0x5a5a);
    EXCHANGE(v, APART_128(v), 0x0ff0);
    EXCHANGE(v, APART_64(v), 0x33cc);
    EXCHANGE(v, APART_32(v), 0x55aa);
    EXCHANGE(v, APART_256(v), 0xff00);
    EXCHANGE(v, APART_128(v), 0xf0f0);
    EXCHANGE(v, APART_64(v), 0xcccc);
    EXCHANGE(v, APART_32(v), 0xaaaa);
#else
    EXCHANGE(v, APART_64(v), 0x66);
    EXCHANGE(v, APART_128(v), 0x3c);
    EXCHANGE(v, APART_64(v), 0x5a);
    EXCHANGE(v, APART_256(v), 0xf0);
    EXCHANGE(v, APART_128(v), 0xcc);
    EXCHANGE(v, APART_64(v), 0xaa);
#endif
    return v;
}

/* ---- columns ---- */

/* Minimum and maximum have one unit; every other pair is compared to a mask and chosen by it, which takes more, but others. */
#define ORDER(a, b) low = MIN(v[a], v[b]), v[b] = MAX(v[a], v[b]), v[a] = low
#define MASK_ORDER(a, b)                                                                                               \
    above = BELOW(v[b], v[a]), low = BLEND(above, v[a], v[b]), v[b] = BLEND(above, v[b], v[a]), v[a] = low

/* Networks of the fewest comparisons that are known, for sixteen Green's. */
static inline __attribute__((always_inline)) void NAMED(sort_columns)(__m512i *v, int vectors) {
    __m512i low;
    NAMED(mask) above;
    if (vectors == 2) ORDER(0, 1);
    if (vectors == 4) ORDER(0, 1), ORDER(2, 3), ORDER(0, 2), ORDER(1, 3), ORDER(1, 2);
    if (vectors == 8) {
        ORDER(0, 2), ORDER(1, 3), ORDER(4, 6), ORDER(5, 7);
        ORDER(0, 4), ORDER(1, 5), ORDER(2, 6), ORDER(3, 7);
        ORDER(0, 1), ORDER(2, 3), ORDER(4, 5), ORDER(6, 7);
        ORDER(2, 4), ORDER(3, 5), ORDER(1, 4), ORDER(3, 6);
        ORDER(1, 2), ORDER(3, 4), ORDER(5, 6);
    }
    if (vectors == 16) {
        ORDER(0, 1), MASK_ORDER(2, 3), ORDER(4, 5), MASK_ORDER(6, 7);
        ORDER(8, 9), MASK_ORDER(10, 11), ORDER(12, 13), MASK_ORDER(14, 15);
        ORDER(0, 2), MASK_ORDER(1, 3), ORDER(4, 6), MASK_ORDER(5, 7);
        ORDER(8, 10), MASK_ORDER(9, 11), ORDER(12, 14), MASK_ORDER(13, 15);
        ORDER(0, 4), MASK_ORDER(1, 5), ORDER(2, 6), MASK_ORDER(3, 7);
        ORDER(8, 12), MASK_ORDER(9, 13), ORDER(10, 14), MASK_ORDER(11, 15);
        ORDER(0, 8), MASK_ORDER(1, 9), ORDER(2, 10), MASK_ORDER(3, 11);
        ORDER(4, 12), MASK_ORDER(5, 13), ORDER(6, 14), MASK_ORDER(7, 15);
        ORDER(5, 10), MASK_ORDER(6, 9), ORDER(3, 12), MASK_ORDER(13, 14);
        ORDER(4, 8), MASK_ORDER(7, 11), ORDER(1, 2), MASK_ORDER(1, 4);
        ORDER(7, 13), MASK_ORDER(2, 8), ORDER(11, 14), MASK_ORDER(2, 4);
        ORDER(5, 6), MASK_ORDER(9, 10), ORDER(11, 13), MASK_ORDER(3, 8);
        ORDER(7, 12), MASK_ORDER(6, 8), ORDER(10, 12), MASK_ORDER(3, 5);
        ORDER(7, 9), MASK_ORDER(3, 4), ORDER(5, 6), MASK_ORDER(7, 8);
        ORDER(9, 10), MASK_ORDER(11, 12), ORDER(6, 7), MASK_ORDER(8, 9);
    }
}

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

/* Compares across lanes, halves of the registers apart; `back` puts lanes back to where they were. */
static inline __attribute__((always_inline)) void NAMED(compare_lanes)(__m512i *v, int vectors, int bit, bool back) {
    const int half = vectors / 2;
    HT_UNROLL
    for (int r = 0; r < half; r++) {
        const __m512i p = v[r], q = v[r + half];
        const __m512i a = back ? NAMED(paired)(p, NAMED(merged)[bit - 1][0], q) : NAMED(near)(p, q, bit);
        const __m512i b = back ? NAMED(paired)(p, NAMED(merged)[bit - 1][1], q) : NAMED(far)(p, q, bit);
#if WIDTH != 64
        v[r] = MIN(a, b);
        v[r + half] = MAX(a, b);
#else /* where both wait three times as long */
        const NAMED(mask) above = BELOW(b, a);
        v[r] = BLEND(above, a, b);
        v[r + half] = BLEND(above, b, a);
#endif
    }
}

/* Columns of 2^bit lanes each, in order, merged by twos. */
static inline __attribute__((always_inline)) void NAMED(merge_columns)(__m512i *v, int vectors, int bit) {
    const int half = vectors / 2;
    HT_UNROLL
    for (int r = 0; r < (half + 1) / 2; r++) {
        const int s = half - 1 - r;
        const __m512i a = NAMED(near)(v[r], v[r + half], bit), b = NAMED(upside_down)(v[s + half], v[s], bit);
        const __m512i c = NAMED(near)(v[s], v[s + half], bit), d = NAMED(upside_down)(v[r + half], v[r], bit);
        v[r] = MIN(a, b);
        v[r + half] = MAX(a, b);
        if (r == s) continue;
        v[s] = MIN(c, d);
        v[s + half] = MAX(c, d);
    }
    HT_UNROLL
    for (int lower = bit - 1; lower >= 0; lower--) NAMED(compare_lanes)(v, vectors, lower, false);
    NAMED(compare_lanes)(v, vectors, bit, bit > 0);
    HT_UNROLL
    for (int apart = half / 2; apart >= 1; apart /= 2) {
        HT_UNROLL
        for (int i = 0; i < vectors; i++) {
            __m512i low;
            NAMED(mask) above;
            if (i & apart) continue;
            if (WIDTH == 64 || (i & 1))
                MASK_ORDER(i, i + apart);
            else
                ORDER(i, i + apart);
        }
    }
}

/* Columns to rows. Of more registers than lanes, those with the higher half of the lanes of a row come in the second half. */
static inline __attribute__((always_inline)) void NAMED(turn)(__m512i *v, int vectors, int bits) {
    const int exchanged = bits < LANE_BITS ? bits : LANE_BITS;
    HT_UNROLL
    for (int b = 0; b < exchanged; b++) {
        const bool last = b == exchanged - 1 && bits <= LANE_BITS;
        const int bit = LANE_BITS - exchanged + b;
        HT_UNROLL
        for (int r = 0; r < vectors; r++) {
            if (r >> b & 1) continue;
            const __m512i p = v[r], q = v[r + (1 << b)];
            v[r] = last ? NAMED(paired)(p, NAMED(turned)[bits - 1][0], q) : NAMED(near)(p, q, bit);
            v[r + (1 << b)] = last ? NAMED(paired)(p, NAMED(turned)[bits - 1][1], q) : NAMED(far)(p, q, bit);
        }
    }
}

/* Numbers x[0 .. n), or elements if it says as what, more than half of so many registers, in order and as elements, at `to`. */
static inline __attribute__((always_inline)) void NAMED(sort_registers)(const ITEM *x, const NAMED(forms) * from,
                                                                        ITEM *to, int64_t n, int vectors, int bits,
                                                                        const NAMED(forms) * as) {
    const int full = vectors / 2;
    const __m512i none = _mm512_set1_epi32(-1);
    __m512i v[16];
    HT_UNROLL
    for (int i = 0; i < vectors; i++) {
        const NAMED(mask) here = i < full ? ALL : NAMED(lanes_left)(n - i * LANES);
        v[i] = i < full ? _mm512_loadu_si512(x + i * LANES) : LOAD_SOME(none, here, x + i * LANES);
        if (from) v[i] = i < full ? NAMED(numbers)(from, v[i]) : SET_SOME(none, here, NAMED(numbers)(from, v[i]));
    }
    if (vectors == 1)
        v[0] = NAMED(sort_lanes)(v[0]);
    else {
        NAMED(sort_columns)(v, vectors);
        HT_UNROLL
        for (int bit = 0; bit < LANE_BITS; bit++) NAMED(merge_columns)(v, vectors, bit);
        NAMED(turn)(v, vectors, bits);
    }
    HT_UNROLL
    for (int i = 0; i < vectors; i++) {
        const __m512i e = NAMED(elements)(as, v[bits > LANE_BITS ? i / 2 | (i & 1) << (bits - 1) : i]);
        if (i < full)
            _mm512_storeu_si512(to + i * LANES, e);
        else
            STORE_SOME(to + i * LANES, NAMED(lanes_left)(n - i * LANES), e);
    }
}

static inline __attribute__((always_inline)) void NAMED(sort_some)(const ITEM *x, const NAMED(forms) * from, ITEM *to,
                                                                   int64_t n, const NAMED(forms) * as) {
    if (n > 8 * LANES)
        NAMED(sort_registers)(x, from, to, n, 16, 4, as);
    else if (n > 4 * LANES)
        NAMED(sort_registers)(x, from, to, n, 8, 3, as);
    else if (n > 2 * LANES)
        NAMED(sort_registers)(x, from, to, n, 4, 2, as);
    else if (n > LANES)
        NAMED(sort_registers)(x, from, to, n, 2, 1, as);
    else
        NAMED(sort_registers)(x, from, to, n, 1, 0, as);
}

/* Numbers x[0 .. n) in order, as elements, at `to`. */
static void NAMED(sort_base)(const ITEM *x, ITEM *to, int64_t n, const NAMED(form) * form) {
    const NAMED(forms) as = NAMED(forms_of)(form);
    NAMED(sort_some)(x, NULL, to, n, &as);
}

/* Elements x[0 .. n) in order, at `to`. */
static void NAMED(sort_few)(const ITEM *x, const NAMED(form) * from, ITEM *to, int64_t n, const NAMED(form) * form) {
    const NAMED(forms) was = NAMED(forms_of)(from), as = NAMED(forms_of)(form);
    NAMED(sort_some)(x, &was, to, n, &as);
}
