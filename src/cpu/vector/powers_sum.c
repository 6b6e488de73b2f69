/* Sums of powers in one pass. Sixteen partial sums take every sixteenth element, each around a middle of its own, the largest
 * of its first ones: eight elements at a time, as they come from memory, until one of them is more than MOST_ABOVE it. Then
 * that becomes the middle, and a ninth power puts what was there before in proportion to it. Sums are brought to one middle
 * and added pairwise at the end. Of rows they are the lanes of a register. */
#include "cpu/vector/powers_sum.h"

#include "base/checked.h"
#include "cpu/vector/math.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"

#include <float.h>
#include <math.h>

/* How far elements may be above a middle. Differences are rounded the more the larger they are. */
#define MOST_ABOVE 8.0f

enum {
    SUMS = 16,
    EACH = 8,    /* elements that a sum takes at a time, */
    AT_ONCE = 4, /* of which so many powers are under way side by side */
    GROUP = SUMS * EACH,
    WIDTH = HT_POWERS_WIDTH,
    FLOATS = WIDTH + 16 /* from one of the sums to the next: no power of two, of which a cache holds only few */
};

/* What is taken off elements around `high`. */
HT_INLINE v16f middle_of(v16f high) { return v16f_min(v16f_set1(FLT_MAX), high); }

/* What x is above the middle; powers further below it than the lowest are 0. An infinite element is not above it, which only
 * those who are `careful` see to. */
HT_INLINE v16f above(v16f x, v16f middle, bool careful) {
    const v16f d = v16f_sub(x, middle), lowest = v16f_set1(-POWERS_LOWEST);
    return v16f_max(lowest, careful ? v16f_select(v16f_eq(d, v16f_set1(INFINITY)), v16f_zero(), d) : d);
}

/* Adds e^x of n registers of x, from -POWERS_LOWEST to MOST_ABOVE, to two sums, as terms of a sum of which one is 1 or more:
 * off by less than 1.25 * 2^-24 of that, or of what is above it. What is rounded off where x is low is lost in the sum, so the
 * reduction takes one step: x becomes eighths of a power of two. */
HT_INLINE void add_terms(const v16f *x, int n, bool begins, v16f *total) {
    const v16f shift = v16f_set1(POWERS_SHIFT), eighths = v16f_set1(8.0f * HT_LOG2_E);
    v16f shifted[AT_ONCE], power[AT_ONCE], r[AT_ONCE], q[AT_ONCE];
#define EACH_TERM                                                                                                      \
    HT_UNROLL                                                                                                          \
    for (int i = 0; i < n; i++)
    EACH_TERM shifted[i] = v16f_fma(x[i], eighths, shift);
    EACH_TERM power[i] = powers_of_eighths(shifted[i]);
    EACH_TERM r[i] = v16f_fnma(x[i], eighths, v16f_sub(shifted[i], shift)); /* with the other sign */
    EACH_TERM q[i] = v16f_fma(v16f_set1(-0.00010842f), r[i], v16f_set1(0.00375403f));
    EACH_TERM q[i] = v16f_fma(q[i], r[i], v16f_set1(-0.0866434f));
    EACH_TERM q[i] = v16f_fma(q[i], r[i], v16f_set1(1.0f));
    EACH_TERM total[i % 2] = begins && i < 2 ? v16f_mul(q[i], power[i]) : v16f_fma(q[i], power[i], total[i % 2]);
#undef EACH_TERM
}

/* The same of one middle below another. */
HT_INLINE v16f term_of(v16f low, v16f middle) {
    const v16f x = above(low, middle, false);
    v16f term[2];
    add_terms(&x, 1, true, term);
    return term[0];
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
HT_INLINE v16f bring_some(ht_dtype t, const char *p, int64_t apart, int n, int lanes, int last, v16f *x) {
    const v16f none = v16f_set1(-INFINITY);
    v16f most = none;
    HT_UNROLL
    for (int k = 0; k < EACH; k++) {
        const int some = k < n - 1 ? lanes : last;
        x[k] = k < n ? v16f_select(m16_first(some), lanes_load(t, p + k * apart, 0, 1, some), none) : none;
        most = v16f_max(x[k], most);
    }
    return most;
}

/* n of the elements that were brought, 1, AT_ONCE or EACH, to each sum; its first ones if it begins. */
HT_INLINE void take_n(const v16f *x, int n, v16f most, bool careful, bool begins, v16f *high, v16f *sum) {
    const int at_once = n < AT_ONCE ? n : AT_ONCE;
    const v16f before = middle_of(*high);
    v16f total[2], near[AT_ONCE];
    *high = begins ? v16f_max(most, *high) /* the same, where that is the lowest number */
                   : v16f_select(v16f_gt(v16f_sub(most, before), v16f_set1(MOST_ABOVE)), most, *high);
    const v16f middle = middle_of(*high);
    HT_UNROLL
    for (int from = 0; from < n; from += at_once) {
        HT_UNROLL
        for (int k = 0; k < at_once; k++) near[k] = above(x[from + k], middle, careful);
        add_terms(near, at_once, from == 0, total);
    }
    if (n >= AT_ONCE) total[0] = v16f_add(total[0], total[1]);
    *sum = begins ? total[0] : v16f_fma(*sum, term_of(before, middle), total[0]);
}

/* EACH elements to each sum, unless that needs another middle; whether it is so. Each of them is computed as soon as it comes
 * from memory. */
HT_INLINE bool take_near(ht_dtype t, const char *p, int64_t apart, v16f high, v16f *sum) {
    const v16f middle = middle_of(high);
    v16f x[EACH], total[2];
    v16i most[2]; /* compared as integers: right where it is positive */
    HT_UNROLL
    for (int k = 0; k < EACH; k++) {
        x[k] = above(lanes_load(t, p + k * apart, 0, 1, 16), middle, false);
        most[k % 2] = k < 2 ? v16f_bits(x[k]) : v16i_max(v16f_bits(x[k]), most[k % 2]);
    }
    const v16f highest = v16f_from_bits(v16i_max(most[0], most[1]));
    if (m16_any(v16f_gt(highest, v16f_set1(MOST_ABOVE)))) return false;
    add_terms(x, AT_ONCE, true, total);
    add_terms(x + AT_ONCE, AT_ONCE, false, total);
    *sum = v16f_add(*sum, v16f_add(total[0], total[1]));
    return true;
}

/* The first n of them; powers of those behind, -inf, are 0. */
HT_INLINE void take_some(const v16f *x, int n, v16f most, bool careful, bool begins, v16f *high, v16f *sum) {
    if (n == 1)
        take_n(x, 1, most, careful, begins, high, sum);
    else if (n <= AT_ONCE)
        take_n(x, AT_ONCE, most, careful, begins, high, sum);
    else
        take_n(x, EACH, most, careful, begins, high, sum);
}

/* ---- rows ---- */

/* The sixteen sums of a row. */
typedef struct row_sums {
    v16f high, sum;
} row_sums;

HT_INLINE row_sums sums_of_row(ht_dtype t, bool careful, const char *first, int64_t n) {
    v16f x[EACH];
    const char *p = first;
    const int64_t bytes = t == HT_F32 ? 4 : 2, apart = 16 * bytes, step = GROUP * bytes;
    row_sums s = {v16f_set1(-FLT_MAX), v16f_zero()};
    const bool asks = n >= GROUP && ht_asks_near();
    for (; n >= GROUP && !careful; n -= GROUP, p += step) {
        if (asks) {
            HT_UNROLL
            for (int k = 0; k < EACH; k++) HT_PREFETCH_ALONG(p + k * apart);
        }
        if (take_near(t, p, apart, s.high, &s.sum)) continue;
        const v16f most = bring(t, p, apart, EACH, EACH, x);
        take_n(x, EACH, most, false, false, &s.high, &s.sum);
    }
    for (; n > 0; n -= GROUP, p += step) {
        const int registers = (int)ht_min_i64(EACH, (n + 15) / 16),
                  last = (int)ht_min_i64(16, n - 16 * (registers - 1));
        const v16f most = bring_some(t, p, apart, registers, 16, last, x);
        take_some(x, registers, most, careful, p == first, &s.high, &s.sum);
    }
    return s;
}

HT_INLINE ht_powers total_of_row(row_sums s) {
    const float highest = v16f_hmax(s.high);
    return (ht_powers){highest, v16f_sum(v16f_mul(s.sum, term_of(middle_of(s.high), middle_of(v16f_set1(highest)))))};
}

/* Totals are made of several rows at a time: each takes long for its few operations. */
HT_INLINE void of_rows(ht_dtype t, const char *const *p, const int64_t *n, int rows, ht_powers *to) {
    row_sums s[HT_POWERS_ROWS];
    for (int r = 0; r < rows; r++) s[r] = sums_of_row(t, false, p[r], n[r]);
    for (int r = 0; r < rows; r++) to[r] = total_of_row(s[r]);
    for (int r = 0; r < rows; r++)
        if (isinf(to[r].high)) to[r] = total_of_row(sums_of_row(t, true, p[r], n[r]));
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
    of_rows(HT_F32, &p, &n, 1, &sum);
    return sum;
}

void HT_ISA_NAME(ht_powers_of_rows)(const ht_view *x, const int64_t *at, const int64_t *n, int rows, ht_powers *to) {
    const char *p[HT_POWERS_ROWS];
    if (x->stride[x->n_dims - 1] != 1) {
        for (int r = 0; r < rows; r++) to[r] = of_spread_row(x, at[r], n[r]);
        return;
    }
    for (int r = 0; r < rows; r++) p[r] = (const char *)x->data + at[r] * (int64_t)ht_dtype_bytes(x->dtype);
    if (x->dtype == HT_F32)
        of_rows(HT_F32, p, n, rows, to);
    else if (x->dtype == HT_F16)
        of_rows(HT_F16, p, n, rows, to);
    else
        of_rows(HT_BF16, p, n, rows, to);
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

HT_INLINE v16f high_at(const some_rows *of, const float *high) {
    return of->begins ? v16f_set1(-FLT_MAX) : v16f_load(high);
}
HT_INLINE v16f sum_at(const some_rows *of, const float *sum) { return of->begins ? v16f_zero() : v16f_load(sum); }

/* Of w columns, whole registers, to the sums of one place; n: no fewer than there are rows. Rows are read along as far as
 * there are columns, which is how memory is fast: sums wait in a cache. */
HT_INLINE void take_whole(ht_dtype t, const some_rows *of, int n, int some, int64_t w, float *high, float *sum) {
    v16f x[EACH];
    const char *p = of->first;
    for (int64_t c = 0; c < w; c += 16, p += t == HT_F32 ? 64 : 32) {
        v16f highest = high_at(of, high + c), total = sum_at(of, sum + c);
        HT_UNROLL
        for (int k = 0; k < n; k++)
            if (k < some) HT_PREFETCH_BESIDE(of->near, p + k * of->apart + of->ahead);
        if (some < EACH || of->begins || !take_near(t, p, of->apart, highest, &total)) {
            const v16f most = bring(t, p, of->apart, n, some, x);
            take_n(x, n, most, false, n < EACH && of->begins, &highest, &total);
            v16f_store(high + c, highest);
        }
        v16f_store(sum + c, total);
    }
}

/* Of w columns, to the sums of one place. */
HT_INLINE void take_rows(ht_dtype t, const some_rows *of, int64_t w, bool careful, float *high, float *sum) {
    v16f x[EACH];
    const int64_t whole = careful ? 0 : w / 16 * 16;
    if (whole > 0) {
        if (of->n == EACH)
            take_whole(t, of, EACH, EACH, whole, high, sum);
        else if (of->n == 1)
            take_whole(t, of, 1, 1, whole, high, sum);
        else if (of->n <= AT_ONCE)
            take_whole(t, of, AT_ONCE, of->n, whole, high, sum);
        else
            take_whole(t, of, EACH, of->n, whole, high, sum);
    }
    for (int64_t c = whole; c < w; c += 16) {
        const int lanes = lanes_of(w - c);
        v16f highest = high_at(of, high + c), total = sum_at(of, sum + c);
        const v16f most = bring_some(t, of->first + c * (t == HT_F32 ? 4 : 2), of->apart, of->n, lanes, lanes, x);
        take_some(x, of->n, most, careful, of->begins, &highest, &total);
        v16f_store(high + c, highest);
        v16f_store(sum + c, total);
    }
}

/* Sums of sixteen columns, of which `sums` places were begun, to ht_powers. */
static void finish_columns(const float *high, const float *sum, int64_t sums, int lanes, ht_powers *to) {
    _Alignas(64) float highest[16], total[16];
    v16f most = v16f_load(high), each[SUMS];
    for (int64_t k = 1; k < sums; k++) most = v16f_max(v16f_load(high + k * FLOATS), most);
    const v16f middle = middle_of(most);
    for (int64_t k = 0; k < SUMS; k++)
        each[k] = k < sums
                      ? v16f_mul(v16f_load(sum + k * FLOATS), term_of(middle_of(v16f_load(high + k * FLOATS)), middle))
                      : v16f_zero();
    for (int half = SUMS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) each[k] = v16f_add(each[k], each[k + half]);
    v16f_store(highest, most);
    v16f_store(total, each[0]);
    for (int i = 0; i < lanes; i++) to[i] = (ht_powers){highest[i], total[i]};
}

/* Whether there was no infinite element, or that did not matter. */
HT_INLINE bool of_columns_if(ht_dtype t, bool careful, const char *first, int64_t next, int64_t n, int64_t w,
                             ht_powers *to) {
    _Alignas(64) float high[SUMS][FLOATS], sum[SUMS][FLOATS];
    const bool near = ht_asks_near();
    int64_t r = 0;
    for (; r < n; r += GROUP)
        for (int64_t k = 0; k < SUMS && r + k < n; k++) {
            const int64_t rows = ht_min_i64(EACH, (n - r - k + SUMS - 1) / SUMS);
            const int64_t ahead = k < SUMS - 1 ? 1 : GROUP - SUMS + 1;
            take_rows(t, &(some_rows){first + (r + k) * next, SUMS * next, ahead * next, (int)rows, r == 0, near}, w,
                      careful, high[k], sum[k]);
        }
    for (int64_t c = 0; c < w; c += 16)
        finish_columns(high[0] + c, sum[0] + c, n < SUMS ? n : SUMS, lanes_of(w - c), to + c);
    bool infinite = false;
    for (int64_t c = 0; c < w; c++) infinite |= isinf(to[c].high);
    return careful || !infinite;
}

HT_INLINE void of_columns(ht_dtype t, const char *first, int64_t next, int64_t n, int64_t w, ht_powers *to) {
    if (!of_columns_if(t, false, first, next, n, w, to)) of_columns_if(t, true, first, next, n, w, to);
}

void HT_ISA_NAME(ht_powers_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, ht_powers *to) {
    const int64_t bytes = (int64_t)ht_dtype_bytes(x->dtype), next = x->stride[x->n_dims - 1] * bytes;
    const char *first = (const char *)x->data + at * bytes;
    if (x->dtype == HT_F32)
        of_columns(HT_F32, first, next, n, w, to);
    else if (x->dtype == HT_F16)
        of_columns(HT_F16, first, next, n, w, to);
    else
        of_columns(HT_BF16, first, next, n, w, to);
}
