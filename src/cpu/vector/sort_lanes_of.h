/* Sorting by lanes of numbers of one width without sign. Included by sort_lanes.h for each, behind sort_base_of.h.
 *
 * Parts are split by a pivot until they fit into sixteen registers. Both sides of a split are packed to the front of a
 * buffer, one of them in place, and the parts of a row in one buffer are sorted into the other one. */

/* ---- splitting ---- */

/* Of numbers x[0 .. n) as elements those below the pivot go to `low`, the others to `high`, where either may be x. Gives how
 * many are below; `alike` says whether all the others equal the pivot. */
static inline __attribute__((always_inline)) int64_t NAMED(split_as)(const ITEM *x, ITEM *low, ITEM *high, int64_t n,
                                                                     ITEM pivot, const NAMED(forms) * as, bool *alike) {
    const __m512i middle = SET1(pivot);
    __m512i most = middle;
    int64_t front = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m512i v = _mm512_loadu_si512(x + i);
        if (as) v = NAMED(numbers)(as, v);
        const NAMED(mask) below = BELOW(v, middle);
        most = MAX(most, v);
        _mm512_storeu_si512(low + front, PACK(below, v));
        _mm512_storeu_si512(high + i - front, PACK((NAMED(mask)) ~below, v));
        front += __builtin_popcount(below);
    }
    if (i < n) {
        const NAMED(mask) here = FIRST(n - i);
        __m512i v = LOAD_SOME(middle, here, x + i);
        if (as) v = NAMED(numbers)(as, v);
        const NAMED(mask) below = BELOW(v, middle) & here, others = (NAMED(mask))(here & ~below);
        const int some = __builtin_popcount(below);
        most = MASK_MAX(most, here, most, v);
        STORE_SOME(low + front, FIRST(some), PACK(below, v));
        STORE_SOME(high + i - front, FIRST(n - i - some), PACK(others, v));
        front += some;
    }
    *alike = BELOW(middle, most) == 0;
    return front;
}

static int64_t NAMED(split)(const ITEM *x, ITEM *low, ITEM *high, int64_t n, ITEM pivot, bool *alike) {
    return NAMED(split_as)(x, low, high, n, pivot, NULL, alike);
}

/* The same by two pivots: what is below the first one goes to the front of `low`, which may be x, what is below the second one
 * to the front of `middle`, which may be x, and the others end before `end`. */
static inline __attribute__((always_inline)) void NAMED(split_in_three)(const ITEM *x, ITEM *low, ITEM *middle,
                                                                        ITEM *end, int64_t n, const ITEM pivot[2],
                                                                        const NAMED(forms) * as, int64_t count[3]) {
    const __m512i first = SET1(pivot[0]), second = SET1(pivot[1]);
    int64_t lows = 0, others = 0, highs = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m512i v = _mm512_loadu_si512(x + i);
        if (as) v = NAMED(numbers)(as, v);
        const NAMED(mask) below = BELOW(v, first), under = BELOW(v, second);
        const NAMED(mask) between = under & (NAMED(mask)) ~below, above = (NAMED(mask)) ~under;
        const int some = LANES - __builtin_popcount(under);
        _mm512_storeu_si512(low + lows, PACK(below, v));
        _mm512_storeu_si512(middle + others, PACK(between, v));
        lows += __builtin_popcount(below);
        highs += some;
        others = i + LANES - lows - highs;
        STORE_SOME(end - highs, FIRST(some), PACK(above, v));
    }
    for (; i < n; i++) {
        const ITEM v = as ? LOWEST(NAMED(numbers)(as, SET1(x[i]))) : x[i];
        if (v < pivot[0])
            low[lows++] = v;
        else if (v < pivot[1])
            middle[others++] = v;
        else
            end[-++highs] = v;
    }
    count[0] = lows, count[1] = others, count[2] = highs;
}

/* Those of x[0 .. n) above the number go to `to`, which may be x. Gives how many they are. */
static int64_t NAMED(keep_above)(const ITEM *x, ITEM *to, int64_t n, ITEM number) {
    const __m512i middle = SET1(number);
    int64_t kept = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512i v = _mm512_loadu_si512(x + i);
        const NAMED(mask) above = BELOW(middle, v);
        _mm512_storeu_si512(to + kept, PACK(above, v));
        kept += __builtin_popcount(above);
    }
    if (i < n) {
        const __m512i v = LOAD_SOME(middle, FIRST(n - i), x + i);
        const NAMED(mask) above = BELOW(middle, v);
        const int some = __builtin_popcount(above);
        STORE_SOME(to + kept, FIRST(some), PACK(above, v));
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

static inline __m512i NAMED(middle_of)(__m512i a, __m512i b, __m512i c) {
    const __m512i low = MIN(a, b), high = MAX(a, b);
    return MAX(low, MIN(high, c));
}

/* The middle lane of the middle ones of three registers, of many numbers of the middle ones of those of nine. */
static inline ITEM NAMED(pivot_of)(const ITEM *x, int64_t n, const NAMED(forms) * as) {
    const int count = n < 16 * NAMED(BASE_SORT) ? 3 : 9;
    const int64_t step = (n - LANES) / count;
    __m512i some[9];
    for (int i = 0; i < count; i++) {
        some[i] = _mm512_loadu_si512(x + step / 2 + i * step);
        if (as) some[i] = NAMED(numbers)(as, some[i]);
    }
    __m512i middle = NAMED(middle_of)(some[0], some[1], some[2]);
    if (count == 9)
        middle = NAMED(middle_of)(middle, NAMED(middle_of)(some[3], some[4], some[5]),
                                  NAMED(middle_of)(some[6], some[7], some[8]));
    return LOWEST(PERMUTED(SET1(LANES / 2), NAMED(sort_lanes)(middle)));
}

/* Registers of the numbers, in order: gives how many numbers. */
enum { NAMED(MOST_SAMPLED) = 4 * NAMED(BASE_SORT) };
static int NAMED(sample_of)(const ITEM *x, const NAMED(forms) * as, int64_t n, ITEM *sample) {
    const int runs = n < 1024 * NAMED(BASE_SORT) ? 1 : 4;
    const int count = n < 8 * NAMED(BASE_SORT) ? 4 : runs * 16;
    ITEM some[NAMED(MOST_SAMPLED)];
    const int64_t step = (n - LANES) / count;
    for (int i = 0; i < count; i++) {
        const __m512i v = _mm512_loadu_si512(x + step / 2 + i * step);
        _mm512_storeu_si512(some + i * LANES, as ? NAMED(numbers)(as, v) : v);
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
        NAMED(split_in_three)(x, to, room, to + n, n, pivot, as, count);
    else
        NAMED(split_in_three)(x, to, room, to + n, n, pivot, NULL, count);
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
            NAMED(split_in_three)(x, x, room, room + n, n, two, NULL, count);
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

/* ---- the number at a place ---- */

/* What is below a number, and what equals it. */
typedef struct NAMED(placed) {
    ITEM number;
    int64_t below, equal;
} NAMED(placed);

/* Of numbers x[0 .. n) as elements those above `low` and below `high` go to `to`, which may be x: gives how many; `under` gets
 * how many are not above `low`. */
static int64_t NAMED(keep_between)(const ITEM *x, const NAMED(forms) * as, ITEM *to, int64_t n, ITEM low, ITEM high,
                                   int64_t *under) {
    const __m512i first = SET1(low), last = SET1(high);
    int64_t kept = 0, not_above = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512i v = NAMED(numbers)(as, _mm512_loadu_si512(x + i));
        const NAMED(mask) before = AT_MOST(v, first), here = BELOW(v, last) & (NAMED(mask)) ~before;
        not_above += __builtin_popcount(before);
        _mm512_storeu_si512(to + kept, PACK(here, v));
        kept += __builtin_popcount(here);
    }
    if (i < n) {
        const NAMED(mask) there = FIRST(n - i);
        const __m512i v = NAMED(numbers)(as, LOAD_SOME(first, there, x + i));
        const NAMED(mask) before = AT_MOST(v, first) & there, here = BELOW(v, last) & there & (NAMED(mask)) ~before;
        const int some = __builtin_popcount(here);
        not_above += __builtin_popcount(before);
        STORE_SOME(to + kept, FIRST(some), PACK(here, v));
        kept += some;
    }
    *under = not_above;
    return kept;
}

/* How many of numbers x[0 .. n) as elements equal the number. */
static int64_t NAMED(count_equal)(const ITEM *x, const NAMED(forms) * as, int64_t n, ITEM number) {
    const __m512i one = SET1(number);
    int64_t equal = 0, i = 0;
    for (; i + LANES <= n; i += LANES)
        equal += __builtin_popcount(EQUAL(NAMED(numbers)(as, _mm512_loadu_si512(x + i)), one));
    const NAMED(mask) there = NAMED(lanes_left)(n - i);
    return equal + __builtin_popcount(EQUAL(NAMED(numbers)(as, LOAD_SOME(one, there, x + i)), one) & there);
}

/* Two numbers of a sample between which the one at kth of n should lie; `wide` times further apart, or the same one if 0. */
static void NAMED(choose)(const ITEM *sample, int of, int64_t kth, int64_t n, int wide, ITEM *low, ITEM *high) {
    const int at = (int)((double)kth / (double)n * of);
    const int away = wide * (2 + (int)(2.5F * sqrtf((float)at * (float)(of - at) / (float)of)));
    *low = at < away ? 0 : sample[at - away];
    *high = at + away >= of ? (ITEM)-1 : sample[at + away];
}

/* What sorting would put at kth of n <= BASE_SORT numbers, or of more, by digits. */
static NAMED(placed) NAMED(find_in)(ITEM *x, ITEM *room, int64_t n, int64_t kth, uint32_t *count) {
    NAMED(placed) found = {0};
    if (n <= NAMED(BASE_SORT))
        NAMED(sort_base)(x, x, n, &NAMED(plain));
    else
        NAMED(select)(x, room, n, kth, 0, WIDTH, count);
    found.number = x[kth];
    for (int64_t i = 0; i < n; i++) {
        found.below += x[i] < found.number;
        found.equal += x[i] == found.number;
    }
    return found;
}

/* What sorting would put at kth of elements x[0 .. n), with room for as many twice. What lies between two numbers of a sample
 * is kept, until it is little; where kth is not there it is one of the two, as in few different numbers, or what is below or
 * above them is asked. */
static NAMED(placed) NAMED(find)(const ITEM *x, const NAMED(form) * form, ITEM *room, ITEM *other, int64_t n,
                                 int64_t kth, int depth, uint32_t *count) {
    NAMED(forms) as = NAMED(forms_of)(form);
    int64_t outside = 0;
    bool one = false;
    while (n > NAMED(BASE_SORT) && depth-- > 0) {
        ITEM sample[NAMED(MOST_SAMPLED)], low, high;
        const int of = NAMED(sample_of)(x, &as, n, sample);
        NAMED(choose)(sample, of, kth, n, one ? 0 : 1, &low, &high);
        int64_t under, kept = NAMED(keep_between)(x, &as, room, n, low, high, &under);
        for (int wider = 4; kth < under || kth >= under + kept; wider = of) {
            ITEM first, last;
            NAMED(choose)(sample, of, kth, n, wider, &first, &last);
            if (kth < under) {
                const int64_t equal = NAMED(count_equal)(x, &as, n, low), below = under - equal;
                if (kth >= below) return (NAMED(placed)){low, outside + below, equal};
                high = low, low = first < low ? first : 0;
            } else {
                const int64_t equal = low == high ? 0 : NAMED(count_equal)(x, &as, n, high);
                if (kth < under + kept + equal) return (NAMED(placed)){high, outside + under + kept, equal};
                low = high, high = last > high ? last : (ITEM)-1;
            }
            kept = NAMED(keep_between)(x, &as, room, n, low, high, &under);
        }
        outside += under;
        kth -= under;
        one = kept > n / 2;
        n = kept;
        x = room;
        room = other;
        other = (ITEM *)(uintptr_t)x;
        as = NAMED(forms_of)(&NAMED(plain));
    }
    for (int64_t i = 0; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        STORE_SOME(room + i, here, NAMED(numbers)(&as, LOAD_SOME(as.top, here, x + i)));
    }
    NAMED(placed) found = NAMED(find_in)(room, other, n, kth, count);
    found.below += outside;
    return found;
}

/* Elements x[0 .. n) parted by what is at a place: what is below it, what equals it, the others. */
static void NAMED(part_elements)(const ITEM *x, const NAMED(form) * form, ITEM *to, const NAMED(form) * made, int64_t n,
                                 const NAMED(placed) * at) {
    const NAMED(forms) as = NAMED(forms_of)(form), out = NAMED(forms_of)(made);
    const __m512i middle = SET1(at->number);
    ITEM *low = to, *high = to + at->below + at->equal;
    const ITEM *const end_low = to + at->below, *const end = to + n;
    int64_t i = 0;
    /* Until a whole register might go beyond the end of either side. */
    for (; i + LANES <= n && low + LANES <= end_low && high + LANES <= end; i += LANES) {
        const __m512i v = NAMED(numbers)(&as, _mm512_loadu_si512(x + i)), e = NAMED(elements)(&out, v);
        const NAMED(mask) below = BELOW(v, middle), above = BELOW(middle, v);
        _mm512_storeu_si512(low, PACK(below, e));
        _mm512_storeu_si512(high, PACK(above, e));
        low += __builtin_popcount(below);
        high += __builtin_popcount(above);
    }
    for (; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        const __m512i v = NAMED(numbers)(&as, LOAD_SOME(as.top, here, x + i)), e = NAMED(elements)(&out, v);
        const NAMED(mask) below = BELOW(v, middle) & here, above = BELOW(middle, v) & here;
        const int lows = __builtin_popcount(below), highs = __builtin_popcount(above);
        STORE_SOME(low, FIRST(lows), PACK(below, e));
        STORE_SOME(high, FIRST(highs), PACK(above, e));
        low += lows;
        high += highs;
    }
    NAMED(fill)(to + at->below, at->equal, at->number, made);
}

#undef ABOVE
#undef ALL
#undef APART_128
#undef APART_16
#undef APART_256
#undef APART_32
#undef APART_64
#undef AT_MOST
#undef BACK_1
#undef BELOW
#undef BLEND
#undef CHOOSE
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
#undef FT1
#undef FT2
#undef FT3
#undef FT4
#undef ITEM
#undef JOINED
#undef JOINED_
#undef LANES
#undef LANE_BITS
#undef LOAD_SOME
#undef LOGIC
#undef LOWEST
#undef MASK_MAX
#undef MASK_ORDER
#undef MAX
#undef MIN
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
#undef ORDER
#undef PACK
#undef PERMUTED
#undef SET1
#undef SET_SOME
#undef SIGNS
#undef STORE_SOME
#undef TURNED
#undef U1
#undef U2
#undef U4
#undef U8
#undef UPSIDE
