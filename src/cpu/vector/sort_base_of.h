/* Numbers of one width without sign in registers: what they are called, and up to sixteen registers of them in order.
 * Included by sort_lanes.h for each, before sort_lanes_of.h, with WIDTH 16, 32 or 64.
 *
 * The numbers of one lane of all registers are a column. Columns are sorted side by side, and then merged by twos: what has
 * to be compared lies in two registers once both have exchanged halves of their lanes, so that no lane compares in vain. */
#define JOINED_(f, w) f##_##w
#define JOINED(f, w)  JOINED_(f, w)
#define NAMED(f)      JOINED(f, WIDTH)

#ifdef HT_ISA_avx512
#include "cpu/vector/sort_zmm_of.h"
#else
#include "cpu/vector/sort_ymm_of.h"
#endif

enum { NAMED(BASE_SORT) = 16 * LANES };

/* ---- elements as numbers ---- */

/* An element x counts as x ^ top, and if it is negative as x ^ top ^ flip; above `limit` but for its sign as the largest
 * number. */
typedef struct NAMED(form) {
    ITEM top, flip, limit;
} NAMED(form);

static const NAMED(form) NAMED(plain) = {0, 0, (ITEM)-1 >> 1}; /* numbers without sign */

typedef struct NAMED(forms) {
    REG top, flip, limit, most;
} NAMED(forms);

static inline NAMED(forms) NAMED(forms_of)(const NAMED(form) * f) {
    return (NAMED(forms)){SET1(f->top), SET1(f->flip), SET1(f->limit), SET1((ITEM)-1 >> 1)};
}

static inline REG NAMED(numbers)(const NAMED(forms) * f, REG x) {
    const REG n = XOR(FLIP_NEGATIVE(x, f->flip), f->top);
    return LARGEST_ABOVE(n, AND(x, f->most), f->limit);
}

static inline REG NAMED(elements)(const NAMED(forms) * f, REG n) { return XOR(FLIP_POSITIVE(n, f->flip), f->top); }

static inline NAMED(mask) NAMED(lanes_left)(int64_t left) {
    return (NAMED(mask))(left >= LANES ? ALL : left > 0 ? FIRST(left) : 0);
}

/* ---- one register ---- */

static inline REG NAMED(sort_lanes)(REG v) {
#if LANES == 32
    EXCHANGE(v, BESIDE_1(v), 0x66666666);
    EXCHANGE(v, BESIDE_2(v), 0x3c3c3c3c);
    EXCHANGE(v, BESIDE_1(v), 0x5a5a5a5a);
    EXCHANGE(v, BESIDE_4(v), 0x0ff00ff0);
    EXCHANGE(v, BESIDE_2(v), 0x33cc33cc);
    EXCHANGE(v, BESIDE_1(v), 0x55aa55aa);
    EXCHANGE(v, BESIDE_8(v), 0x00ffff00);
    EXCHANGE(v, BESIDE_4(v), 0x0f0ff0f0);
    EXCHANGE(v, BESIDE_2(v), 0x3333cccc);
    EXCHANGE(v, BESIDE_1(v), 0x5555aaaa);
    EXCHANGE(v, BESIDE_16(v), 0xffff0000);
    EXCHANGE(v, BESIDE_8(v), 0xff00ff00);
    EXCHANGE(v, BESIDE_4(v), 0xf0f0f0f0);
    EXCHANGE(v, BESIDE_2(v), 0xcccccccc);
    EXCHANGE(v, BESIDE_1(v), 0xaaaaaaaa);
#elif LANES == 16
    EXCHANGE(v, BESIDE_1(v), 0x6666);
    EXCHANGE(v, BESIDE_2(v), 0x3c3c);
    EXCHANGE(v, BESIDE_1(v), 0x5a5a);
    EXCHANGE(v, BESIDE_4(v), 0x0ff0);
    EXCHANGE(v, BESIDE_2(v), 0x33cc);
    EXCHANGE(v, BESIDE_1(v), 0x55aa);
    EXCHANGE(v, BESIDE_8(v), 0xff00);
    EXCHANGE(v, BESIDE_4(v), 0xf0f0);
    EXCHANGE(v, BESIDE_2(v), 0xcccc);
    EXCHANGE(v, BESIDE_1(v), 0xaaaa);
#elif LANES == 8
    EXCHANGE(v, BESIDE_1(v), 0x66);
    EXCHANGE(v, BESIDE_2(v), 0x3c);
    EXCHANGE(v, BESIDE_1(v), 0x5a);
    EXCHANGE(v, BESIDE_4(v), 0xf0);
    EXCHANGE(v, BESIDE_2(v), 0xcc);
    EXCHANGE(v, BESIDE_1(v), 0xaa);
#elif LANES == 4
    EXCHANGE(v, BESIDE_1(v), 0x6);
    EXCHANGE(v, BESIDE_2(v), 0xc);
    EXCHANGE(v, BESIDE_1(v), 0xa);
#endif
    return v;
}

/* ---- columns ---- */

static inline __attribute__((always_inline)) void NAMED(order_two)(REG *a, REG *b) {
    const REG low = MIN(*a, *b);
    *b = MAX(*a, *b);
    *a = low;
}

#define ORDER(a, b)      NAMED(order_two)(v + (a), v + (b))
#define MASK_ORDER(a, b) ORDER_BY_MASK(v + (a), v + (b))

/* Networks of the fewest comparisons that are known, for sixteen Green's. */
static inline __attribute__((always_inline)) void NAMED(sort_columns)(REG *v, int vectors) {
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

/* Compares across lanes, halves of the registers apart; `back` puts lanes back to where they were. */
static inline __attribute__((always_inline)) void NAMED(compare_lanes)(REG *v, int vectors, int bit, bool back) {
    const int half = vectors / 2;
    HT_UNROLL
    for (int r = 0; r < half; r++) {
        const REG p = v[r], q = v[r + half];
        const REG a = back ? NAMED(near_back)(p, q, bit) : NAMED(near)(p, q, bit);
        const REG b = back ? NAMED(far_back)(p, q, bit) : NAMED(far)(p, q, bit);
        LANES_ORDER(v[r], v[r + half], a, b);
    }
}

/* Columns of 2^bit lanes each, in order, merged by twos. */
static inline __attribute__((always_inline)) void NAMED(merge_columns)(REG *v, int vectors, int bit) {
    const int half = vectors / 2;
    HT_UNROLL
    for (int r = 0; r < (half + 1) / 2; r++) {
        const int s = half - 1 - r;
        const REG a = NAMED(near)(v[r], v[r + half], bit), b = NAMED(upside_down)(v[s + half], v[s], bit);
        const REG c = NAMED(near)(v[s], v[s + half], bit), d = NAMED(upside_down)(v[r + half], v[r], bit);
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
            if (i & apart) continue;
            if (WIDTH == 64 || (i & 1))
                MASK_ORDER(i, i + apart);
            else
                ORDER(i, i + apart);
        }
    }
}

/* Columns to rows. Of more registers than lanes, a row's come as many places apart as there are lanes. */
static inline __attribute__((always_inline)) void NAMED(turn)(REG *v, int vectors, int bits) {
    const int exchanged = bits < LANE_BITS ? bits : LANE_BITS;
    HT_UNROLL
    for (int b = 0; b < exchanged; b++) {
        const bool last = b == exchanged - 1 && bits <= LANE_BITS;
        const int bit = LANE_BITS - exchanged + b;
        HT_UNROLL
        for (int r = 0; r < vectors; r++) {
            if (r >> b & 1) continue;
            const REG p = v[r], q = v[r + (1 << b)];
            v[r] = last ? NAMED(near_turned)(p, q, bits) : NAMED(near)(p, q, bit);
            v[r + (1 << b)] = last ? NAMED(far_turned)(p, q, bits) : NAMED(far)(p, q, bit);
        }
    }
}

/* Numbers x[0 .. n), or elements if it says as what, more than half of so many registers, in order and as elements, at `to`. */
static inline __attribute__((always_inline)) void NAMED(sort_registers)(const ITEM *x, const NAMED(forms) * from,
                                                                        ITEM *to, int64_t n, int vectors, int bits,
                                                                        const NAMED(forms) * as) {
    const int full = vectors / 2;
    const int more = bits > LANE_BITS ? bits - LANE_BITS : 0;
    const REG none = SET1((ITEM)-1);
    REG v[16];
    HT_UNROLL
    for (int i = 0; i < vectors; i++) {
        const NAMED(mask) here = i < full ? ALL : NAMED(lanes_left)(n - i * LANES);
        v[i] = i < full ? LOAD(x + i * LANES) : LOAD_SOME(none, here, x + i * LANES);
        if (from) v[i] = i < full ? NAMED(numbers)(from, v[i]) : SET_SOME(none, here, NAMED(numbers)(from, v[i]));
    }
    HT_UNROLL
    for (int i = 0; i < vectors; i++) v[i] = COMPARED(v[i]);
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
        const REG e = NAMED(elements)(as, COMPARED(v[i >> more | (i & ((1 << more) - 1)) << LANE_BITS]));
        if (i < full)
            STORE(to + i * LANES, e);
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
