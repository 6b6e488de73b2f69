/* Numbers in order already, and numbers of which there are few different ones: those of a sample are counted by comparing
 * with each, which takes one pass where splitting takes several. Included by sort_lanes_of.h for each width. */

static bool NAMED(in_order)(const ITEM *x, int64_t n, const NAMED(forms) * as) {
    int64_t i = 0;
    for (; i + LANES < n; i += LANES) {
        const __m512i a = NAMED(numbers)(as, _mm512_loadu_si512(x + i));
        if (BELOW(NAMED(numbers)(as, _mm512_loadu_si512(x + i + 1)), a)) return false;
    }
    if (i + 1 >= n) return true;
    const NAMED(mask) here = FIRST(n - 1 - i);
    const __m512i a = NAMED(numbers)(as, LOAD_SOME(as->top, here, x + i));
    const __m512i b = NAMED(numbers)(as, LOAD_SOME(as->top, here, x + i + 1));
    return !(BELOW(b, a) & here);
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
        __m512i v[AT_ONCE];
        const int64_t some = n - i < AT_ONCE * LANES ? n - i : AT_ONCE * LANES;
        const int registers = (int)((some + LANES - 1) / LANES);
        for (int r = 0; r < registers; r++)
            v[r] = NAMED(numbers)(as, LOAD_SOME(as->top, NAMED(lanes_left)(some - r * LANES), x + i + r * LANES));
        const NAMED(mask) last = NAMED(lanes_left)(some - (registers - 1) * LANES);
        int64_t known = 0;
        for (int k = 0; k < few->n; k++) {
            const __m512i one = SET1(few->number[k]);
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

/* The places of numbers x[0 .. n) in order, equal ones as they come, if those are few different ones. */
static bool NAMED(sort_places_of_few)(const ITEM *x, int64_t n, uint32_t *places) {
    const NAMED(forms) as = NAMED(forms_of)(&NAMED(plain));
    NAMED(few) few;
    uint32_t *next[NAMED(FEW)];
    if (!NAMED(count_few)(x, &as, n, &few)) return false;
    for (int k = 0; k < few.n; places += few.count[k++]) next[k] = places;
    const __m512i iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int64_t i = 0; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        const __m512i v = LOAD_SOME(as.top, here, x + i);
        for (int k = 0; k < few.n; k++) {
            const uint32_t equal = EQUAL(v, SET1(few.number[k])) & here;
            for (int half = 0; half < LANES; half += 16) {
                const __mmask16 some = (__mmask16)(equal >> half);
                const int count = __builtin_popcount(some);
                _mm512_mask_storeu_epi32(
                    next[k], (__mmask16)((1u << count) - 1),
                    _mm512_maskz_compress_epi32(some, _mm512_add_epi32(_mm512_set1_epi32((int)i + half), iota)));
                next[k] += count;
            }
        }
    }
    return true;
}
