/* Sorting by lanes of numbers of one width without sign. Included by sort_lanes.h for each, behind sort_base_of.h.
 *
 * Parts are split by a pivot until they fit into sixteen registers. Both sides of a split are packed to the front of a
 * buffer, one of them in place, and the parts of a row in one buffer are sorted into the other one. */

/* ---- splitting ---- */

/* Registers that are loaded before the first of them is stored. A load that comes behind a store to a place that is not known
 * yet waits for it, or is done again: on Zen 5 a split takes 4 cycles a register of 512 bits so, 10 one by one. */
#if defined(HT_ISA_avx512)
enum { NAMED(AT_ONCE) = 8 };
#else
enum { NAMED(AT_ONCE) = 4 };
#endif

/* So many registers of x as numbers. */
static inline __attribute__((always_inline)) void NAMED(load_numbers)(const ITEM *x, int count, const NAMED(forms) * as,
                                                                      REG *v) {
    HT_UNROLL
    for (int k = 0; k < count; k++) {
        v[k] = LOAD(x + k * LANES);
        if (as) v[k] = NAMED(numbers)(as, v[k]);
    }
}

/* So many registers of numbers x[i ..): those below the middle to `low` behind `front` others, the others to `high`. Gives
 * `front` with them. */
static inline __attribute__((always_inline)) int64_t NAMED(split_registers)(const ITEM *x, int64_t i, int count,
                                                                            REG middle, const NAMED(forms) * as,
                                                                            ITEM *low, ITEM *high, int64_t front,
                                                                            REG *most) {
    REG v[NAMED(AT_ONCE)];
    NAMED(load_numbers)(x + i, count, as, v);
    HT_UNROLL
    for (int k = 0; k < count; k++) {
        const NAMED(mask) below = BELOW(COMPARED(v[k]), middle);
        *most = MAX(*most, COMPARED(v[k]));
        STORE(low + front, PACK(below, v[k]));
        STORE(high + i + k * LANES - front, PACK((NAMED(mask)) ~below, v[k]));
        front += __builtin_popcount(below);
    }
    return front;
}

/* Of numbers x[0 .. n) as elements those below the pivot go to `low`, the others to `high`, where either may be x. Gives how
 * many are below; `alike` says whether all the others equal the pivot. */
static inline __attribute__((always_inline)) int64_t NAMED(split_as)(const ITEM *x, ITEM *low, ITEM *high, int64_t n,
                                                                     ITEM pivot, const NAMED(forms) * as, bool *alike) {
    const REG middle = COMPARED(SET1(pivot));
    REG most = middle;
    int64_t front = 0, i = 0;
    for (; i + NAMED(AT_ONCE) * LANES <= n; i += NAMED(AT_ONCE) * LANES)
        front = NAMED(split_registers)(x, i, NAMED(AT_ONCE), middle, as, low, high, front, &most);
    for (; i + LANES <= n; i += LANES) front = NAMED(split_registers)(x, i, 1, middle, as, low, high, front, &most);
    if (i < n) {
        const NAMED(mask) here = FIRST(n - i);
        REG v = LOAD_SOME(SET1(pivot), here, x + i);
        if (as) v = NAMED(numbers)(as, v);
        const NAMED(mask) below = BELOW(COMPARED(v), middle) & here, others = (NAMED(mask))(here & ~below);
        const int some = __builtin_popcount(below);
        most = SET_SOME(most, here, MAX(most, COMPARED(v)));
        STORE_FIRST(low + front, n - front, some, PACK(below, v));
        STORE_FIRST(high + i - front, n - i + front, (int)(n - i) - some, PACK(others, v));
        front += some;
    }
    *alike = BELOW(middle, most) == 0;
    return front;
}

static int64_t NAMED(split)(const ITEM *x, ITEM *low, ITEM *high, int64_t n, ITEM pivot, bool *alike) {
    return NAMED(split_as)(x, low, high, n, pivot, NULL, alike);
}

/* What two pivots, as COMPARED, make of numbers, and how many have gone to each of the three. */
typedef struct NAMED(three) {
    REG first, second;
    ITEM *low, *middle, *end;
    const NAMED(forms) * made;
    int64_t lows, others, highs;
} NAMED(three);

static inline __attribute__((always_inline)) void
NAMED(split_registers_in_three)(const ITEM *x, int count, const NAMED(forms) * as, NAMED(three) * t) {
    REG v[NAMED(AT_ONCE)];
    NAMED(load_numbers)(x, count, as, v);
    HT_UNROLL
    for (int k = 0; k < count; k++) {
        const NAMED(mask) below = BELOW(COMPARED(v[k]), t->first), under = BELOW(COMPARED(v[k]), t->second);
        const NAMED(mask) between = under & (NAMED(mask)) ~below, above = (NAMED(mask)) ~under & ALL;
        const REG e = t->made ? NAMED(elements)(t->made, v[k]) : v[k];
        STORE(t->low + t->lows, PACK(below, e));
        STORE(t->middle + t->others, PACK(between, v[k]));
        STORE_BEFORE(t->end - t->highs, above, e);
        const int lows = __builtin_popcount(below), unders = __builtin_popcount(under);
        t->lows += lows;
        t->others += unders - lows;
        t->highs += LANES - unders;
    }
}

/* The same by two pivots: what is below the first one goes to the front of `low`, which may be x, what is below the second one
 * to the front of `middle`, which may be x, and the others end before `end`. What is not in the middle is `made` elements. */
static inline __attribute__((always_inline)) void NAMED(split_in_three)(const ITEM *x, ITEM *low, ITEM *middle,
                                                                        ITEM *end, int64_t n, const ITEM pivot[2],
                                                                        const NAMED(forms) * as,
                                                                        const NAMED(forms) * made, int64_t count[3]) {
    NAMED(three) t = {COMPARED(SET1(pivot[0])), COMPARED(SET1(pivot[1])), low, middle, end, made, 0, 0, 0};
    int64_t i = 0;
    for (; i + NAMED(AT_ONCE) * LANES + SPARE <= n; i += NAMED(AT_ONCE) * LANES)
        NAMED(split_registers_in_three)(x + i, NAMED(AT_ONCE), as, &t);
    for (; i + LANES + SPARE <= n; i += LANES) NAMED(split_registers_in_three)(x + i, 1, as, &t);
    for (; i < n; i++) {
        const ITEM v = as ? LOWEST(NAMED(numbers)(as, SET1(x[i]))) : x[i];
        const ITEM e = made ? LOWEST(NAMED(elements)(made, SET1(v))) : v;
        if (v < pivot[0])
            low[t.lows++] = e;
        else if (v < pivot[1])
            middle[t.others++] = v;
        else
            end[-++t.highs] = e;
    }
    count[0] = t.lows, count[1] = t.others, count[2] = t.highs;
}

/* Of so many registers the numbers above the middle, to `to` behind `kept` others. Gives `kept` with them. */
static inline __attribute__((always_inline)) int64_t NAMED(keep_registers)(const ITEM *x, int count, REG middle,
                                                                           ITEM *to, int64_t kept) {
    REG v[NAMED(AT_ONCE)];
    NAMED(load_numbers)(x, count, NULL, v);
    HT_UNROLL
    for (int k = 0; k < count; k++) {
        const NAMED(mask) above = BELOW(middle, COMPARED(v[k]));
        STORE(to + kept, PACK(above, v[k]));
        kept += __builtin_popcount(above);
    }
    return kept;
}

/* Those of x[0 .. n) above the number go to `to`, which may be x. Gives how many they are. */
static int64_t NAMED(keep_above)(const ITEM *x, ITEM *to, int64_t n, ITEM number) {
    const REG middle = COMPARED(SET1(number));
    int64_t kept = 0, i = 0;
    for (; i + NAMED(AT_ONCE) * LANES <= n; i += NAMED(AT_ONCE) * LANES)
        kept = NAMED(keep_registers)(x + i, NAMED(AT_ONCE), middle, to, kept);
    for (; i + LANES <= n; i += LANES) kept = NAMED(keep_registers)(x + i, 1, middle, to, kept);
    if (i < n) {
        const REG v = LOAD_SOME(SET1(number), FIRST(n - i), x + i);
        const NAMED(mask) above = BELOW(middle, COMPARED(v));
        const int some = __builtin_popcount(above);
        STORE_FIRST(to + kept, n - kept, some, PACK(above, v));
        kept += some;
    }
    return kept;
}

static void NAMED(fill)(ITEM *to, int64_t n, ITEM number, const NAMED(form) * form) {
    const NAMED(forms) as = NAMED(forms_of)(form);
    const ITEM element = LOWEST(NAMED(elements)(&as, SET1(number)));
    for (int64_t i = 0; i < n; i++) to[i] = element;
}

/* ---- pivots ---- */

static inline REG NAMED(middle_of)(REG a, REG b, REG c) {
    const REG low = MIN(a, b), high = MAX(a, b);
    return MAX(low, MIN(high, c));
}

/* The middle lane of the middle ones of three registers, of many numbers of the middle ones of those of nine. */
static inline ITEM NAMED(pivot_of)(const ITEM *x, int64_t n, const NAMED(forms) * as) {
    const int count = n < 16 * NAMED(BASE_SORT) ? 3 : 9;
    const int64_t step = (n - LANES) / count;
    REG some[9];
    for (int i = 0; i < count; i++) {
        some[i] = LOAD(x + step / 2 + i * step);
        if (as) some[i] = NAMED(numbers)(as, some[i]);
        some[i] = COMPARED(some[i]);
    }
    REG middle = NAMED(middle_of)(some[0], some[1], some[2]);
    if (count == 9)
        middle = NAMED(middle_of)(middle, NAMED(middle_of)(some[3], some[4], some[5]),
                                  NAMED(middle_of)(some[6], some[7], some[8]));
    ITEM lanes[LANES];
    STORE(lanes, COMPARED(NAMED(sort_lanes)(middle)));
    return lanes[LANES / 2];
}

/* Registers of the numbers, in order: gives how many numbers. */
enum { NAMED(MOST_SAMPLED) = 4 * NAMED(BASE_SORT) };
static int NAMED(sample_of)(const ITEM *x, const NAMED(forms) * as, int64_t n, ITEM *sample) {
    const int runs = n < 1024 * NAMED(BASE_SORT) ? 1 : 4;
    const int count = n < 8 * NAMED(BASE_SORT) ? 4 : runs * 16;
    ITEM some[NAMED(MOST_SAMPLED)];
    const int64_t step = (n - LANES) / count;
    for (int i = 0; i < count; i++) {
        const REG v = LOAD(x + step / 2 + i * step);
        STORE(some + i * LANES, as ? NAMED(numbers)(as, v) : v);
    }
    const int run = count / runs * LANES;
    for (int i = 0; i < runs; i++) NAMED(sort_base)(some + i * run, sample + i * run, run, &NAMED(plain));
    for (int merged = run; merged < count * LANES; merged *= 2) {
        memcpy(some, sample, sizeof some);
        for (int i = 0; i < count * LANES; i += 2 * merged) {
            const ITEM *a = some + i, *b = a + merged, *const end_a = b, *const end_b = b + merged;
            for (ITEM *to = sample + i; to < sample + i + 2 * merged; to++) {
                const bool first = b == end_b || (a < end_a && *a <= *b);
                *to = first ? *a : *b;
                a += first;
                b += !first;
            }
        }
    }
    return count * LANES;
}

/* What is below a number, and what equals it. */
typedef struct NAMED(placed) {
    ITEM number;
    int64_t below, equal;
} NAMED(placed);

#include "cpu/vector/sort_values_of.h"

/* ---- sorting ---- */

typedef struct NAMED(sorting) {
    const NAMED(form) * form; /* of what is made */
    uint32_t *count;
} NAMED(sorting);

/* For parts whose pivots were bad too often: numbers x[0 .. n) by digits. */
static void NAMED(sort_by_digits)(ITEM *x, ITEM *room, int64_t n, const NAMED(sorting) * s) {
    const NAMED(forms) as = NAMED(forms_of)(s->form);
    NAMED(sort)(x, room, n, 0, WIDTH, s->count);
    for (int64_t i = 0; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        STORE_SOME(x + i, here, NAMED(elements)(&as, LOAD_SOME(as.top, here, x + i)));
    }
}

static void NAMED(sort_into)(ITEM *from, ITEM *to, int64_t n, ITEM least, int depth, const NAMED(sorting) * s);
static void NAMED(sort_within)(ITEM *x, ITEM *room, int64_t n, ITEM least, int depth, const NAMED(sorting) * s);

/* Two pivots for what is too much for the nearer caches, where passes cost more than comparisons. */
enum { NAMED(FAR_SORT) = 1 << 20 >> (WIDTH / 32 + 4) };
static bool NAMED(two_pivots)(const ITEM *x, int64_t n, const NAMED(forms) * as, ITEM pivot[2]) {
    if (n <= NAMED(FAR_SORT)) return false;
    ITEM sample[NAMED(MOST_SAMPLED)];
    const int of = NAMED(sample_of)(x, as, n, sample);
    pivot[0] = sample[of / 3];
    pivot[1] = sample[of * 2 / 3];
    return pivot[0] < pivot[1];
}

/* Elements x[0 .. n) by two pivots into `to`, with room that may be x. */
static void NAMED(sort_in_three)(const ITEM *x, const NAMED(forms) * as, ITEM *to, ITEM *room, int64_t n,
                                 const ITEM pivot[2], ITEM least, int depth, const NAMED(sorting) * s) {
    int64_t count[3];
    if (as)
        NAMED(split_in_three)(x, to, room, to + n, n, pivot, as, NULL, count);
    else
        NAMED(split_in_three)(x, to, room, to + n, n, pivot, NULL, NULL, count);
    NAMED(sort_into)(room, to + count[0], count[1], pivot[0], depth, s);
    NAMED(sort_within)(to + n - count[2], room, count[2], pivot[1], depth, s);
    NAMED(sort_within)(to, room, count[0], least, depth, s);
}

/* Sorts x[0 .. n), none of them below `least`, with room for as many. */
static void NAMED(sort_within)(ITEM *x, ITEM *room, int64_t n, ITEM least, int depth, const NAMED(sorting) * s) {
    while (n > NAMED(BASE_SORT)) {
        if (depth-- == 0) {
            NAMED(sort_by_digits)(x, room, n, s);
            return;
        }
        ITEM two[2];
        if (NAMED(two_pivots)(x, n, NULL, two)) {
            int64_t count[3];
            NAMED(split_in_three)(x, x, room, room + n, n, two, NULL, NULL, count);
            const int64_t high = n - count[2];
            NAMED(sort_into)(room, x + count[0], count[1], two[0], depth, s);
            NAMED(sort_into)(room + high, x + high, count[2], two[1], depth, s);
            n = count[0];
            continue;
        }
        const ITEM pivot = NAMED(pivot_of)(x, n, NULL);
        bool alike = false;
        if (pivot == least) { /* the equal ones are in order */
            const int64_t rest = NAMED(keep_above)(x, room, n, pivot);
            NAMED(fill)(x, n - rest, pivot, s->form);
            NAMED(sort_into)(room, x + n - rest, rest, (ITEM)(pivot + 1), depth, s);
            return;
        }
        const int64_t front = NAMED(split)(x, x, room, n, pivot, &alike);
        if (alike)
            NAMED(fill)(x + front, n - front, pivot, s->form);
        else
            NAMED(sort_into)(room, x + front, n - front, pivot, depth, s);
        n = front;
    }
    NAMED(sort_base)(x, x, n, s->form);
}

/* The same of what is in from[0 .. n), into `to`. */
static void NAMED(sort_into)(ITEM *from, ITEM *to, int64_t n, ITEM least, int depth, const NAMED(sorting) * s) {
    while (n > NAMED(BASE_SORT)) {
        if (depth-- == 0) {
            memcpy(to, from, (size_t)n * sizeof *to);
            NAMED(sort_by_digits)(to, from, n, s);
            return;
        }
        ITEM two[2];
        if (NAMED(two_pivots)(from, n, NULL, two)) {
            NAMED(sort_in_three)(from, NULL, to, from, n, two, least, depth, s);
            return;
        }
        const ITEM pivot = NAMED(pivot_of)(from, n, NULL);
        bool alike = false;
        int64_t front;
        if (pivot == least) {
            front = n - NAMED(keep_above)(from, from, n, pivot);
            NAMED(fill)(to, front, pivot, s->form);
            least = (ITEM)(pivot + 1); /* or nothing is left */
        } else {
            front = NAMED(split)(from, to, from, n, pivot, &alike);
            NAMED(sort_within)(to, from + n - front, front, least, depth, s);
            least = pivot;
        }
        to += front;
        n -= front;
        if (alike) {
            NAMED(fill)(to, n, pivot, s->form);
            return;
        }
    }
    NAMED(sort_base)(from, to, n, s->form);
}

/* Elements x[0 .. n) in order, at `to`, with room for as many. x may be the room, but not `to`. */
static void NAMED(sort_elements)(const ITEM *x, const NAMED(form) * from, ITEM *to, ITEM *room, int64_t n, int depth,
                                 const NAMED(sorting) * s) {
    if (n <= NAMED(BASE_SORT)) {
        NAMED(sort_few)(x, from, to, n, s->form);
        return;
    }
    if (NAMED(sort_plain)(x, from, to, n, s->form)) return;
    const NAMED(forms) as = NAMED(forms_of)(from);
    ITEM two[2];
    if (NAMED(two_pivots)(x, n, &as, two)) {
        NAMED(sort_in_three)(x, &as, to, room, n, two, 0, depth, s);
        return;
    }
    const ITEM pivot = NAMED(pivot_of)(x, n, &as);
    bool alike;
    const int64_t front = NAMED(split_as)(x, to, room, n, pivot, &as, &alike), rest = n - front;
    if (alike)
        NAMED(fill)(to + front, rest, pivot, s->form);
    else
        NAMED(sort_into)(room, to + front, rest, pivot, depth, s);
    NAMED(sort_within)(to, room, front, 0, depth, s);
}

#include "cpu/vector/sort_find_of.h"

#undef AND
#undef ALL
#undef APART_128
#undef APART_16
#undef APART_256
#undef APART_32
#undef APART_64
#undef AT_MOST
#undef BACK_1
#undef BELOW
#undef BESIDE_1
#undef BESIDE_16
#undef BESIDE_2
#undef BESIDE_4
#undef BESIDE_8
#undef BLEND
#undef CHOOSE
#undef CHOSEN
#undef COMPARED
#undef EACH_LANE
#undef EQUAL
#undef EXCHANGE
#undef F1
#undef F2
#undef F4
#undef F8
#undef FAR
#undef FAR_END
#undef FAR_TURN
#undef FE2
#undef FE3
#undef FE4
#undef FE5
#undef FIRST
#undef FLIP_NEGATIVE
#undef FLIP_POSITIVE
#undef FT1
#undef FT2
#undef FT3
#undef FT4
#undef IOTA
#undef ITEM
#undef JOINED
#undef JOINED_
#undef LANES
#undef LANES_ORDER
#undef LANE_BITS
#undef LARGEST_ABOVE
#undef LOAD
#undef LOAD_MASKED
#undef LOAD_SOME
#undef LOWEST
#undef MASK_MAX
#undef MASK_ORDER
#undef MAX
#undef MIN
#undef MOVED
#undef N1
#undef N2
#undef N4
#undef N8
#undef NAMED
#undef NE2
#undef NE3
#undef NE4
#undef NE5
#undef NEAR
#undef NEAR_END
#undef NEAR_TURN
#undef NT1
#undef NT2
#undef NT3
#undef NT4
#undef ONES
#undef ORDER
#undef ORDER_BY_MASK
#undef PACK
#undef REG
#undef SET1
#undef SET_SOME
#undef SIGNED_ABOVE
#undef SIGNS
#undef SPARE
#undef STORE
#undef STORE_BEFORE
#undef STORE_FIRST
#undef STORE_MASKED
#undef STORE_SOME
#undef TURNED
#undef U1
#undef U2
#undef U4
#undef U8
#undef UPSIDE
#undef XOR
