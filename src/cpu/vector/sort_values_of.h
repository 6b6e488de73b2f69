/* Numbers in order already, and numbers of which there are few different ones: those of a sample are counted by comparing
 * with each, which takes one pass where splitting takes several. Included by sort_lanes_of.h for each width. */

static bool NAMED(in_order)(const ITEM *x, int64_t n, const NAMED(forms) * as) {
    int64_t i = 0;
    for (; i + LANES < n; i += LANES) {
        const REG a = COMPARED(NAMED(numbers)(as, LOAD(x + i)));
        if (BELOW(COMPARED(NAMED(numbers)(as, LOAD(x + i + 1))), a)) return false;
    }
    if (i + 1 >= n) return true;
    const NAMED(mask) here = FIRST(n - 1 - i);
    const REG a = NAMED(numbers)(as, LOAD_SOME(as->top, here, x + i));
    const REG b = NAMED(numbers)(as, LOAD_SOME(as->top, here, x + i + 1));
    return !(BELOW(COMPARED(b), COMPARED(a)) & here);
}

enum { NAMED(FEW) = 12, NAMED(WORTH_SAMPLING) = 8 * NAMED(BASE_SORT) };

typedef struct NAMED(few) {
    int n;
    ITEM number[NAMED(FEW)]; /* in order */
    int64_t count[NAMED(FEW)];
} NAMED(few);

/* The numbers of a sample, if they are few. */
static bool NAMED(few_of_sample)(const ITEM *x, const NAMED(forms) * as, int64_t n, NAMED(few) * few) {
    ITEM sample[NAMED(MOST_SAMPLED)];
    const int of = NAMED(sample_of)(x, as, n, sample);
    *few = (NAMED(few)){.n = 1, .number = {sample[0]}};
    for (int i = 1; i < of; i++) {
        if (sample[i] == sample[i - 1]) continue;
        if (few->n == NAMED(FEW)) return false;
        few->number[few->n++] = sample[i];
    }
    return true;
}

/* Whether elements x[0 .. n) as numbers are few different ones, and how many of each. */
static bool NAMED(count_few)(const ITEM *x, const NAMED(forms) * as, int64_t n, NAMED(few) * few) {
    enum { AT_ONCE = 64 };
    if (n < NAMED(WORTH_SAMPLING) || !NAMED(few_of_sample)(x, as, n, few)) return false;
    for (int64_t i = 0; i < n; i += AT_ONCE * LANES) {
        REG v[AT_ONCE];
        const int64_t some = n - i < AT_ONCE * LANES ? n - i : AT_ONCE * LANES;
        const int registers = (int)((some + LANES - 1) / LANES);
        for (int r = 0; r < registers; r++)
            v[r] = NAMED(numbers)(as, LOAD_SOME(as->top, NAMED(lanes_left)(some - r * LANES), x + i + r * LANES));
        const NAMED(mask) last = NAMED(lanes_left)(some - (registers - 1) * LANES);
        int64_t known = 0;
        for (int k = 0; k < few->n; k++) {
            const REG one = SET1(few->number[k]);
            int64_t count = 0;
            for (int r = 0; r < registers - 1; r++) count += __builtin_popcount(EQUAL(v[r], one));
            count += __builtin_popcount(EQUAL(v[registers - 1], one) & last);
            few->count[k] += count;
            known += count;
        }
        if (known != some) return false;
    }
    return true;
}

/* Elements x[0 .. n) in order, at `to`, if they are few different ones. */
static bool NAMED(sort_values)(const ITEM *x, const NAMED(forms) * as, ITEM *to, int64_t n, const NAMED(form) * form) {
    NAMED(few) few;
    if (!NAMED(count_few)(x, as, n, &few)) return false;
    for (int k = 0; k < few.n; k++) {
        NAMED(fill)(to, few.count[k], few.number[k], form);
        to += few.count[k];
    }
    return true;
}

/* The same, or if they are in order already. */
static bool NAMED(sort_plain)(const ITEM *x, const NAMED(form) * from, ITEM *to, int64_t n, const NAMED(form) * form) {
    const NAMED(forms) as = NAMED(forms_of)(from), made = NAMED(forms_of)(form);
    if (!NAMED(in_order)(x, n, &as)) return NAMED(sort_values)(x, &as, to, n, form);
    for (int64_t i = 0; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        STORE_SOME(to + i, here, NAMED(elements)(&made, NAMED(numbers)(&as, LOAD_SOME(as.top, here, x + i))));
    }
    return true;
}

/* As many registers as have eight lanes: which of their lanes are there. */
enum { NAMED(TOGETHER) = LANES < 8 ? 8 / LANES : 1 };
static inline uint32_t NAMED(load_together)(const ITEM *x, int64_t n, REG *v) {
    uint32_t here = 0;
    for (int r = 0; r < NAMED(TOGETHER); r++) {
        const NAMED(mask) some = NAMED(lanes_left)(n - r * LANES);
        v[r] = LOAD_SOME(SET1(0), some, x + r * LANES);
        here |= (uint32_t)some << r * LANES;
    }
    return here;
}
static inline uint32_t NAMED(equal_together)(const REG *v, ITEM number) {
    uint32_t equal = 0;
    for (int r = 0; r < NAMED(TOGETHER); r++) equal |= (uint32_t)EQUAL(v[r], SET1(number)) << r * LANES;
    return equal;
}

/* The places of numbers x[0 .. n) in order, equal ones as they come, if those are few different ones. */
static bool NAMED(sort_places_of_few)(const ITEM *x, int64_t n, uint32_t *places) {
    const NAMED(forms) as = NAMED(forms_of)(&NAMED(plain));
    NAMED(few) few;
    uint32_t *next[NAMED(FEW)], *end[NAMED(FEW)];
    if (!NAMED(count_few)(x, &as, n, &few)) return false;
    for (int k = 0; k < few.n; k++) {
        next[k] = places;
        places += few.count[k];
        end[k] = places;
    }
    for (int64_t i = 0; i < n; i += NAMED(TOGETHER) * LANES) {
        REG v[NAMED(TOGETHER)];
        const uint32_t here = NAMED(load_together)(x + i, n - i, v);
        for (int k = 0; k < few.n; k++) {
            const uint32_t equal = NAMED(equal_together)(v, few.number[k]) & here;
            next[k] += store_places(next[k], end[k] - next[k], equal, i);
        }
    }
    return true;
}

/* The places of numbers x[0 .. n) below what is at a place, then of those that equal it, then of those above it: each of the
 * three in order. */
static void NAMED(deal_places)(const ITEM *x, int64_t n, const NAMED(placed) * at, uint32_t *places) {
    const REG middle = COMPARED(SET1(at->number));
    uint32_t *low = places, *equal = low + at->below, *high = equal + at->equal;
    const uint32_t *const end_low = equal, *const end_equal = high, *const end = places + n;
    if (n < MANY_PLACES) {
        uint32_t *next[] = {low, equal, high};
        for (int64_t i = 0; i < n; i++) *next[(x[i] >= at->number) + (x[i] > at->number)]++ = (uint32_t)i;
        return;
    }
    for (int64_t i = 0; i < n; i += NAMED(TOGETHER) * LANES) {
        REG v[NAMED(TOGETHER)];
        const uint32_t here = NAMED(load_together)(x + i, n - i, v);
        const uint32_t alike = NAMED(equal_together)(v, at->number) & here;
        uint32_t below = 0;
        for (int r = 0; r < NAMED(TOGETHER); r++) below |= (uint32_t)BELOW(COMPARED(v[r]), middle) << r * LANES;
        below &= here;
        low += store_places(low, end_low - low, below, i);
        equal += store_places(equal, end_equal - equal, alike, i);
        high += store_places(high, end - high, here & ~(below | alike), i);
    }
}
