/* Sums of powers in one pass. Sixteen partial sums take every sixteenth element, each around a middle of its own, near its
 * first one: eight elements at a time, as they come from memory, until one of them is more than MOST_ABOVE it. Then the largest
 * of them becomes the middle, and a ninth power puts what was there before in proportion to it. Sums are brought to one
 * middle and added pairwise at the end. Of rows they are the lanes of a register.
 *
 * Middles are whole eighths of a power of two, so that nothing has to be taken off an element: the middle is in the constant
 * that rounds it to such eighths. Middles end at MOST, and those close to it would not notice what is beyond; lines with such
 * a middle, or an infinite element, are found at the end, and then the largest is taken off all elements first. */
#include "cpu/vector/powers_sum.h"

#include "base/checked.h"
#include "cpu/reference/value.h"
#include "cpu/vector/math.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"

#include <float.h>
#include <math.h>

#define EIGHTHS      (8.0f * HT_LOG2_E) /* of a power of two in a power of e */
#define MOST         0x1p21f            /* eighths: a middle near 180,000 */
#define MOST_ABOVE   92.0f              /* eighths that elements may be above a middle, e^8. Sums get as much larger. */
#define LOWEST_POWER 1012.0f            /* eighths below the middle: POWERS_LOWEST */

/* Terms are as many times as large, so that the first step of their series is an addition. Rounded, the product of this and of
 * one divided by it is one to 4e-10. */
#define TERMS_OF_ONE (-9220.0f)

enum {
    SUMS = HT_POWERS_SUMS,
    EACH = 8, /* elements that a sum takes at a time, */
    FEW = 4,  /* or as many */
    GROUP = SUMS * EACH,
    FOLLOWED = 4096, /* bytes of columns that are asked for before they are needed (columns_ahead) */
    WIDTH = COLUMNS_TOTALS
};

/* How many registers of powers are under way side by side. AVX2 has sixteen for these, the constants and the sums, and two
 * for one of sixteen lanes: halves of those are computed one after the other, as otherwise they go to memory and back half a
 * dozen times. */
#if defined(HT_ISA_YMM)
enum { AT_ONCE = 2, PARTS = 2 };
HT_INLINE v16f part_of(v16f x, int part) { return v16f_half(x, part); }
HT_INLINE v16f of_parts(const v16f *part) { return v16f_join(part[0], part[1]); }
#else
enum { AT_ONCE = 4, PARTS = 1 };
HT_INLINE v16f part_of(v16f x, int part) {
    (void)part;
    return x;
}
HT_INLINE v16f of_parts(const v16f *part) { return part[0]; }
#endif

/* The middle of a sum whose elements reach up to `most`. */
HT_INLINE v16f middle_at(v16f most) {
    const v16f shift = v16f_set1(POWERS_SHIFT), end = v16f_set1(MOST / EIGHTHS);
    const v16f x = v16f_max(v16f_neg(end), v16f_min(end, most));
    return v16f_sub(v16f_fma(x, v16f_set1(EIGHTHS), shift), shift);
}

/* Adds powers of n registers of x around a middle to two sums: each is off by less than 1.5 * 2^-24 of itself for its series
 * and by half a unit for its place in the table. Those far below the middle are 0. There is one step of reduction, x to eighths
 * of a power of two: what that rounds off, as if x were 1.3e-8 of it smaller, is alike for all terms but for their distance
 * from the middle, which makes 1.1e-7 for those that are 8 above it. *most, if it is wanted: of each lane the largest, in
 * eighths above the middle, as what they are in once POWERS_SHIFT is added: a positive number, whose bits compare as integers.
 */
HT_INLINE void add_terms(const v16f *x, int n, v16f middle, int at, v16i *most, v16f *total) {
    const v16f shift = v16f_sub(v16f_set1(POWERS_SHIFT), middle);
    const v16f lowest = v16f_fma(middle, v16f_set1(1.0f / EIGHTHS), v16f_set1(-POWERS_LOWEST));
    v16f near[AT_ONCE], shifted[AT_ONCE], power[AT_ONCE], r[AT_ONCE], q[AT_ONCE];
#define EACH_TERM                                                                                                      \
    HT_UNROLL                                                                                                          \
    for (int i = 0; i < n; i++)
    EACH_TERM near[i] = v16f_max(lowest, x[i]);
    EACH_TERM shifted[i] = v16f_fma(near[i], v16f_set1(EIGHTHS), shift);
    EACH_TERM if (most) *most = at + i == 0 ? v16f_bits(shifted[i]) : v16i_max(v16f_bits(shifted[i]), *most);
    EACH_TERM r[i] = v16f_fnma(near[i], v16f_set1(EIGHTHS), v16f_sub(shifted[i], shift)); /* with the other sign */
    EACH_TERM q[i] = v16f_add(r[i], v16f_set1(-34.612247f));
    EACH_TERM q[i] = v16f_fma(q[i], r[i], v16f_set1(798.8521f));
    EACH_TERM q[i] = v16f_fma(q[i], r[i], v16f_set1(TERMS_OF_ONE));
    EACH_TERM power[i] = powers_of_eighths(shifted[i]);
    EACH_TERM total[(at + i) % 2] =
        at + i < 2 ? v16f_mul(q[i], power[i]) : v16f_fma(q[i], power[i], total[(at + i) % 2]);
#undef EACH_TERM
}

/* A sum, and terms that were added up. */
HT_INLINE v16f with_terms(v16f sum, v16f total) { return v16f_fma(total, v16f_set1(1.0f / TERMS_OF_ONE), sum); }

/* The power that is between two middles. */
HT_INLINE v16f power_between(v16f low, v16f middle) {
    const v16f eighths = v16f_max(v16f_set1(-LOWEST_POWER), v16f_sub(low, middle));
    return powers_of_eighths(v16f_add(eighths, v16f_set1(POWERS_SHIFT)));
}

/* Elements as they are, or less `off`: the largest of them, or of all numbers. */
HT_INLINE v16f less(v16f x, bool careful, v16f off) {
    if (!careful) return x;
    const v16f d = v16f_sub(x, off);
    return v16f_select(v16f_eq(d, v16f_set1(INFINITY)), v16f_zero(), d);
}

/* n registers of elements, `apart` bytes from one to the next, of which the first `some` are there, to x[n], and -inf
 * for the others, whose powers are 0. Gives the largest of each sum. */
HT_INLINE v16f bring(ht_dtype t, const char *p, int64_t apart, int n, int some, v16f *x) {
    v16f most[2] = {v16f_set1(-INFINITY), v16f_set1(-INFINITY)};
    HT_UNROLL
    for (int k = 0; k < n; k++) {
        x[k] = k < some ? lanes_load(t, p + k * apart, 0, 1, 16) : v16f_set1(-INFINITY);
        most[k % 2] = v16f_max(x[k], most[k % 2]);
    }
    return v16f_max(most[0], most[1]);
}

/* The same of n registers, the last of which has `last` lanes, the others `lanes`, to x[EACH]. */
HT_INLINE v16f bring_some(ht_dtype t, bool careful, v16f off, const char *p, int64_t apart, int n, int lanes, int last,
                          v16f *x) {
    const v16f none = v16f_set1(-INFINITY);
    v16f most = none;
    HT_UNROLL
    for (int k = 0; k < EACH; k++) {
        const int some = k < n - 1 ? lanes : last;
        x[k] = none;
        if (k < n)
            x[k] = v16f_select(m16_first(some), less(lanes_load(t, p + k * apart, 0, 1, some), careful, off), none);
        most = v16f_max(x[k], most);
    }
    return most;
}

/* A sum, or sixteen of them. */
typedef struct powers_sum {
    v16f middle, sum;
} powers_sum;

/* Before its first element. */
HT_INLINE powers_sum sum_from(v16f first) { return (powers_sum){middle_at(first), v16f_zero()}; }

/* n of the elements that were brought, 1, FEW or EACH, to each sum. */
HT_INLINE void take_n(const v16f *x, int n, v16f most, powers_sum *s) {
    const int at_once = n < AT_ONCE ? n : AT_ONCE;
    const v16f before = s->middle, highest = middle_at(most);
    v16f total[2];
    s->middle = v16f_select(v16f_gt(v16f_sub(highest, before), v16f_set1(MOST_ABOVE)), highest, before);
    HT_UNROLL
    for (int from = 0; from < n; from += at_once) add_terms(x + from, at_once, s->middle, from, NULL, total);
    if (n >= FEW) total[0] = v16f_add(total[0], total[1]);
    s->sum = with_terms(v16f_mul(s->sum, power_between(before, s->middle)), total[0]);
}

/* How what follows in a row is asked for: near if the core asks for that; or else into the second cache, 4 KB ahead without
 * AVX-512, which on Zen 3 took 0.75 to 0.8 of the time. */
typedef enum asking { ASKS_NOT, ASKS_NEAR, ASKS_FAR } asking;

static asking asking_of(const ht_view *x) {
    if (ht_asks_near()) return ASKS_NEAR;
    return !HT_ASKS_FAR || rows_ask_far(x) ? ASKS_FAR : ASKS_NOT;
}

HT_INLINE void ask_along(asking asks, const char *p) {
    if (asks == ASKS_NEAR)
        HT_PREFETCH_ALONG(p);
    else if (asks == ASKS_FAR && HT_ASKS_FAR)
        HT_PREFETCH_FAR(p);
    else if (asks == ASKS_FAR)
        HT_PREFETCH_SECOND(p + HT_AHEAD_FAR);
}

/* EACH elements to each sum, and again, `steps` times at most, until that needs another middle; gives how often. Each of them
 * is computed as soon as it comes from memory. */
HT_INLINE int64_t take_near(ht_dtype t, asking asks, const char *p, int64_t apart, int64_t steps, powers_sum *s) {
    const v16f middle = s->middle;
    v16f sum = s->sum;
    int64_t i = 0;
    for (; i < steps; i++, p += EACH * apart) {
        v16f most[PARTS], total[PARTS];
        HT_UNROLL
        for (int part = 0; part < PARTS; part++) {
            v16f x[AT_ONCE], two[2];
            v16i highest;
            HT_UNROLL
            for (int from = 0; from < EACH; from += AT_ONCE) {
                HT_UNROLL
                for (int k = 0; k < AT_ONCE; k++) {
                    x[k] = part_of(lanes_load(t, p + (from + k) * apart, 0, 1, 16), part);
                    if (part == 0) ask_along(asks, p + (from + k) * apart);
                }
                add_terms(x, AT_ONCE, part_of(middle, part), from, &highest, two);
            }
            most[part] = v16f_from_bits(highest);
            total[part] = v16f_add(two[0], two[1]);
        }
        if (m16_any(v16f_gt(of_parts(most), v16f_set1(POWERS_SHIFT + MOST_ABOVE)))) break;
        sum = with_terms(sum, of_parts(total));
    }
    s->sum = sum;
    return i;
}

/* The first n of them; powers of those behind, -inf, are 0. */
HT_INLINE void take_some(const v16f *x, int n, v16f most, powers_sum *s) {
    if (n == 1)
        take_n(x, 1, most, s);
    else if (n <= FEW)
        take_n(x, FEW, most, s);
    else
        take_n(x, EACH, most, s);
}

/* Whether `highest` of some middles is one that has elements near it and notices others: not where middles end, nor so close
 * to it that no middle is MOST_ABOVE higher. With NaN the sum is NaN around anything. */
static bool is_near(float highest) { return !(highest <= -MOST || highest >= MOST - MOST_ABOVE); }

/* Sums around `highest`, of elements from which `off` was taken. */
static ht_powers powers_at(float highest, float off, float sum) {
    return (ht_powers){isinf(off) ? (double)off : (double)highest / (double)EIGHTHS + (double)off, sum};
}

/* What one element comes to: itself. */
static ht_powers powers_of_one(ht_dtype t, const char *p) {
    const float x = ht_get_f32(t, p, 0);
    return (ht_powers){(double)x, isnan(x) ? x : 1.0f};
}

/* ---- rows ---- */

/* take_near of a row. */
HT_INLINE int64_t take_along(ht_dtype t, asking asks, const char *p, int64_t apart, int64_t steps, powers_sum *s) {
    if (asks == ASKS_NEAR) return take_near(t, ASKS_NEAR, p, apart, steps, s);
    return asks == ASKS_FAR ? take_near(t, ASKS_FAR, p, apart, steps, s) : take_near(t, ASKS_NOT, p, apart, steps, s);
}

/* The sixteen sums of a row. */
HT_INLINE powers_sum sums_of_row(ht_dtype t, bool careful, v16f off, asking asks, const char *p, int64_t n) {
    v16f x[EACH];
    const int64_t bytes = t == HT_F32 ? 4 : 2, apart = 16 * bytes, step = GROUP * bytes;
    bring_some(t, careful, off, p, apart, 1, 16, lanes_of(n), x);
    powers_sum s = sum_from(x[0]);
    for (int64_t steps = careful ? 0 : n / GROUP; steps > 0; steps--, n -= GROUP, p += step) {
        const int64_t near = take_along(t, asks, p, apart, steps, &s);
        steps -= near, n -= near * GROUP, p += near * step;
        if (steps == 0) break;
        const v16f most = bring(t, p, apart, EACH, EACH, x);
        take_n(x, EACH, most, &s);
    }
    for (; n > 0; n -= GROUP, p += step) {
        const int registers = (int)ht_min_i64(EACH, (n + 15) / 16),
                  last = (int)ht_min_i64(16, n - 16 * (registers - 1));
        const v16f most = bring_some(t, careful, off, p, apart, registers, 16, last, x);
        take_some(x, registers, most, &s);
    }
    return s;
}

HT_INLINE float largest_of_row(ht_dtype t, const char *p, int64_t n) {
    v16f largest = v16f_set1(-FLT_MAX);
    for (int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_of(n - i);
        const v16f x = lanes_load(t, p, i, 1, lanes);
        largest = v16f_max(v16f_select(m16_first(lanes), x, largest), largest);
    }
    return v16f_hmax(largest);
}

HT_INLINE float total_of_row(powers_sum s, float highest) {
    return v16f_sum(v16f_mul(s.sum, power_between(s.middle, v16f_set1(highest))));
}

/* Totals are made of several rows at a time: each takes long for its few operations. */
HT_INLINE void of_rows(ht_dtype t, asking asks, const char *const *p, const int64_t *n, int rows, ht_powers *to) {
    powers_sum s[HT_POWERS_ROWS];
    float highest[HT_POWERS_ROWS];
    for (int r = 0; r < rows; r++) s[r] = sums_of_row(t, false, v16f_zero(), asks, p[r], n[r]);
    for (int r = 0; r < rows; r++) {
        highest[r] = v16f_hmax(s[r].middle);
        to[r] = n[r] == 1 ? powers_of_one(t, p[r]) : powers_at(highest[r], 0.0f, total_of_row(s[r], highest[r]));
    }
    for (int r = 0; r < rows; r++) {
        if (is_near(highest[r]) || n[r] == 1) continue;
        const float off = largest_of_row(t, p[r], n[r]);
        s[r] = sums_of_row(t, true, v16f_set1(isinf(off) ? FLT_MAX : off), ASKS_NOT, p[r], n[r]);
        highest[r] = v16f_hmax(s[r].middle);
        to[r] = powers_at(highest[r], off, total_of_row(s[r], highest[r]));
    }
}

/* A row whose elements are not adjacent. */
static ht_powers of_spread_row(const ht_view *x, int64_t at, int64_t n) {
    _Alignas(64) float room[HT_REDUCE_BLOCK];
    const int64_t stride = x->stride[x->n_dims - 1];
    const char *p = (const char *)room;
    ht_powers sum;
    for (int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_of(n - i);
        v16f_store_n(room + i, lanes_load(x->dtype, x->data, at + i * stride, stride, lanes), lanes);
    }
    of_rows(HT_F32, ASKS_NOT, &p, &n, 1, &sum);
    return sum;
}

void HT_ISA_NAME(ht_powers_of_rows)(const ht_view *x, const int64_t *at, const int64_t *n, int rows, ht_powers *to) {
    const char *p[HT_POWERS_ROWS];
    if (x->stride[x->n_dims - 1] != 1) {
        for (int r = 0; r < rows; r++) to[r] = of_spread_row(x, at[r], n[r]);
        return;
    }
    const asking asks = asking_of(x);
    for (int r = 0; r < rows; r++) p[r] = (const char *)x->data + at[r] * (int64_t)ht_dtype_bytes(x->dtype);
    if (x->dtype == HT_F32)
        of_rows(HT_F32, asks, p, n, rows, to);
    else if (x->dtype == HT_F16)
        of_rows(HT_F16, asks, p, n, rows, to);
    else
        of_rows(HT_BF16, asks, p, n, rows, to);
}

/* ---- columns ---- */

/* Some rows, `apart` bytes from one to the next, of which those `ahead` bytes behind them will be read next. */
typedef struct some_rows {
    const char *first;
    int64_t apart, ahead;
    int n;       /* EACH, at most */
    bool begins; /* with these rows the sums begin */
    bool near;   /* ht_asks_near() */
} some_rows;

/* The sums of one place, of columns side by side. */
typedef struct place {
    float *middle, *sum;
} place;

HT_INLINE powers_sum sums_at(place at, int64_t c) {
    return (powers_sum){v16f_load(at.middle + c), v16f_load(at.sum + c)};
}

HT_INLINE void keep_sums(place at, int64_t c, powers_sum s) {
    v16f_store(at.middle + c, s.middle);
    v16f_store(at.sum + c, s.sum);
}

/* Asks for the rows to come, eight lines of one at a time: of the first `bytes` of them at step i. Whether any was left. */
HT_INLINE bool ask_for_page(const some_rows *of, bool near, int64_t bytes, int64_t i) {
    enum { LINES = 8 * 64 };
    const int64_t from = i / EACH * LINES, some = bytes - from;
    if (some <= 0) return false;
    if (i % EACH >= of->n) return true;
    const char *p = of->first + of->ahead + i % EACH * of->apart + from;
    if (some < LINES) {
        for (int64_t b = 0; b < some; b += 64) HT_PREFETCH_BESIDE(near, p + b);
        return true;
    }
    HT_UNROLL
    for (int b = 0; b < LINES; b += 64) HT_PREFETCH_BESIDE(near, p + b);
    return true;
}

/* Asks for what is `on` bytes behind byte `at` of these rows, or in those to come. */
HT_INLINE void ask_on(const some_rows *of, bool near, int rows, int64_t bytes, int64_t at, int64_t on) {
    const char *p = of->first + at + columns_next(at, bytes, on, of->ahead);
    HT_UNROLL
    for (int k = 0; k < rows; k++) HT_PREFETCH_BESIDE(near, p + k * of->apart);
}

/* EACH rows of sixteen columns, for which the middles may have to be others. Not inline: the loop over all columns would keep
 * for it what it reads. */
__attribute__((noinline)) static void take_anew(ht_dtype t, const char *p, int64_t apart, float *middle, float *sum) {
    v16f x[EACH];
    powers_sum s = {v16f_load(middle), v16f_load(sum)};
    const v16f most = bring(t, p, apart, EACH, EACH, x);
    take_n(x, EACH, most, &s);
    v16f_store(middle, s.middle);
    v16f_store(sum, s.sum);
}

/* Of w columns, whole registers, to the sums of one place; n: no fewer than there are rows. Rows are read along as far as
 * there are columns, which is how memory is fast: sums wait in a cache. What is asked for: `pages` of the rows to come, or what
 * is next in these. */
HT_INLINE void take_whole(ht_dtype t, const some_rows *of, int n, int some, bool near, bool pages, int64_t w,
                          place at) {
    v16f x[EACH];
    const char *p = of->first;
    const int64_t on = columns_ahead(FOLLOWED);
    const int64_t each = t == HT_F32 ? 4 : 2, bytes = w * each;
    for (int64_t c = 0; c < w; c += 16, p += 16 * each) {
        powers_sum s = sums_at(at, c);
        if (pages)
            ask_for_page(of, near, bytes, c / 16);
        else if (c * each % 64 == 0)
            ask_on(of, near, some, bytes, c * each, on);
        if (some < EACH) {
            const v16f most = bring(t, p, of->apart, n, some, x);
            take_n(x, n, most, &s);
            keep_sums(at, c, s);
        } else if (take_near(t, ASKS_NOT, p, of->apart, 1, &s) == 1)
            v16f_store(at.sum + c, s.sum);
        else
            take_anew(t, p, of->apart, at.middle + c, at.sum + c);
    }
    for (int64_t i = w / 16; pages && ask_for_page(of, near, bytes, i);) i++;
}

/* Of w columns, to the sums of one place; off: what is taken off each, if `careful`. */
HT_INLINE void take_rows(ht_dtype t, const some_rows *of, int64_t w, bool careful, const float *off, place at) {
    v16f x[EACH];
    const int64_t whole = careful ? 0 : w / 16 * 16;
    const bool pages = columns_ahead(FOLLOWED) == 0;
    for (int64_t c = 0; c < whole && of->begins; c += 16)
        keep_sums(at, c, sum_from(lanes_load(t, of->first, c, 1, 16)));
    if (whole > 0) {
        if (of->n == EACH && pages && of->near)
            take_whole(t, of, EACH, EACH, true, true, whole, at);
        else if (of->n == EACH && pages)
            take_whole(t, of, EACH, EACH, false, true, whole, at);
        else if (of->n == EACH)
            take_whole(t, of, EACH, EACH, of->near, false, whole, at);
        else if (of->n == 1)
            take_whole(t, of, 1, 1, of->near, pages, whole, at);
        else if (of->n <= FEW)
            take_whole(t, of, FEW, of->n, of->near, pages, whole, at);
        else
            take_whole(t, of, EACH, of->n, of->near, pages, whole, at);
    }
    for (int64_t c = whole; c < w; c += 16) {
        const int lanes = lanes_of(w - c);
        const v16f least = careful ? v16f_load(off + c) : v16f_zero();
        const v16f most =
            bring_some(t, careful, least, of->first + c * (t == HT_F32 ? 4 : 2), of->apart, of->n, lanes, lanes, x);
        powers_sum s = of->begins ? sum_from(x[0]) : sums_at(at, c);
        take_some(x, of->n, most, &s);
        keep_sums(at, c, s);
    }
}

/* The sums of columns side by side: middles of each place, `apart` from one to the next, and then its sums. */
typedef struct columns_room {
    float *sums;
    int64_t apart;
} columns_room;

HT_INLINE place place_of(columns_room room, int64_t k) {
    return (place){room.sums + k * room.apart, room.sums + (SUMS + k) * room.apart};
}

/* Sums of sixteen columns, of which `sums` places were begun, to one around *highest. */
HT_INLINE v16f total_of_columns(columns_room room, int64_t c, int64_t sums, v16f *highest) {
    v16f each[SUMS];
    *highest = v16f_load(place_of(room, 0).middle + c);
    for (int64_t k = 1; k < sums; k++) *highest = v16f_max(v16f_load(place_of(room, k).middle + c), *highest);
    for (int64_t k = 0; k < SUMS; k++) {
        if (k < sums) {
            const powers_sum s = sums_at(place_of(room, k), c);
            each[k] = v16f_mul(s.sum, power_between(s.middle, *highest));
        } else
            each[k] = v16f_zero();
    }
    for (int half = SUMS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) each[k] = v16f_add(each[k], each[k + half]);
    return each[0];
}

/* Powers of w columns to the sums in the room; if `careful`, with off[] taken off. */
HT_INLINE void add_columns(ht_dtype t, bool careful, const float *off, const char *first, int64_t next, int64_t n,
                           int64_t w, columns_room room) {
    const bool near = ht_asks_near();
    for (int64_t r = 0; r < n; r += GROUP)
        for (int64_t k = 0; k < SUMS && r + k < n; k++) {
            const int64_t rows = ht_min_i64(EACH, (n - r - k + SUMS - 1) / SUMS);
            const int64_t ahead = k < SUMS - 1 ? 1 : GROUP - SUMS + 1;
            take_rows(t, &(some_rows){first + (r + k) * next, SUMS * next, ahead * next, (int)rows, r == 0, near}, w,
                      careful, off, place_of(room, k));
        }
}

/* What the sums of w columns of n elements come to around the highest of their middles, in whole registers. */
HT_INLINE void totals_of(columns_room room, int64_t n, int64_t w, float *highest, float *total) {
    for (int64_t c = 0; c < w; c += 16) {
        v16f most;
        v16f_store(total + c, total_of_columns(room, c, n < SUMS ? n : SUMS, &most));
        v16f_store(highest + c, most);
    }
}

HT_INLINE void largest_of_columns(ht_dtype t, const char *first, int64_t next, int64_t n, int64_t w, float *largest) {
    for (int64_t c = 0; c < WIDTH; c += 16) v16f_store(largest + c, v16f_set1(-FLT_MAX));
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < w; c += 16) {
            const v16f x = lanes_load(t, first + r * next, c, 1, lanes_of(w - c));
            v16f_store(largest + c, v16f_max(x, v16f_load(largest + c)));
        }
}

/* Again of w columns, registers that need it: of those in them for which needs[w] says so. */
HT_INLINE void of_columns_again(ht_dtype t, const char *first, int64_t next, int64_t n, int64_t w, const bool *needs,
                                columns_room room, ht_powers *to) {
    _Alignas(64) float largest[WIDTH], off[WIDTH], highest[WIDTH], total[WIDTH];
    largest_of_columns(t, first, next, n, w, largest);
    for (int64_t c = 0; c < WIDTH; c++) off[c] = isinf(largest[c]) ? FLT_MAX : largest[c];
    add_columns(t, true, off, first, next, n, w, room);
    totals_of(room, n, w, highest, total);
    for (int64_t c = 0; c < w; c++)
        if (needs[c]) to[c] = powers_at(highest[c], largest[c], total[c]);
}

/* How many of w columns are in the registers up to the first one that needs to be computed again, or does not. */
static int64_t alike(const bool *needs, int64_t w, bool again) {
    for (int64_t c = 0; c < w; c += 16) {
        bool any = false;
        for (int64_t i = c; i < w && i < c + 16; i++) any |= needs[i];
        if (any != again) return c;
    }
    return w;
}

HT_INLINE void of_columns(ht_dtype t, const char *first, int64_t next, int64_t n, int64_t w, columns_room room,
                          ht_powers *to) {
    _Alignas(64) float highest[WIDTH], total[WIDTH];
    const int64_t bytes = t == HT_F32 ? 4 : 2;
    bool needs[WIDTH];
    if (n == 1) {
        for (int64_t c = 0; c < w; c++) to[c] = powers_of_one(t, first + c * bytes);
        return;
    }
    totals_of(room, n, w, highest, total);
    for (int64_t c = 0; c < w; c++) {
        to[c] = powers_at(highest[c], 0.0f, total[c]);
        needs[c] = !is_near(highest[c]);
    }
    for (int64_t c = 0; c < w;) {
        c += alike(needs + c, w - c, false);
        const int64_t some = alike(needs + c, w - c, true);
        if (some > 0) of_columns_again(t, first + c * bytes, next, n, some, needs + c, room, to + c);
        c += some;
    }
}

void HT_ISA_NAME(ht_powers_add_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room) {
    const int64_t bytes = (int64_t)ht_dtype_bytes(x->dtype), next = x->stride[x->n_dims - 1] * bytes;
    const char *first = (const char *)x->data + at * bytes;
    const columns_room to = {room, columns_apart(w)};
    if (n == 1) return;
    if (x->dtype == HT_F32)
        add_columns(HT_F32, false, NULL, first, next, n, w, to);
    else if (x->dtype == HT_F16)
        add_columns(HT_F16, false, NULL, first, next, n, w, to);
    else
        add_columns(HT_BF16, false, NULL, first, next, n, w, to);
}

void HT_ISA_NAME(ht_powers_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room, int64_t c,
                                       int64_t some, ht_powers *to) {
    const int64_t bytes = (int64_t)ht_dtype_bytes(x->dtype), next = x->stride[x->n_dims - 1] * bytes;
    const char *first = (const char *)x->data + (at + c) * bytes;
    const columns_room from = {room + c, columns_apart(w)};
    if (x->dtype == HT_F32)
        of_columns(HT_F32, first, next, n, some, from, to);
    else if (x->dtype == HT_F16)
        of_columns(HT_F16, first, next, n, some, from, to);
    else
        of_columns(HT_BF16, first, next, n, some, from, to);
}
