/* Sums of powers around the largest element, in one pass. Sixteen partial sums take every sixteenth element, each around the
 * largest that it has met: four elements at a time, which a fifth power puts what was there before in proportion to. They
 * are brought to the largest of all and added pairwise at the end. Of rows they are the lanes of a register. */
#include "cpu/vector/powers_sum.h"

#include "cpu/vector/math.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"

#include <float.h>
#include <math.h>

enum {
    SUMS = 16,
    EACH = 4, /* elements that a sum takes at a time */
    GROUP = SUMS * EACH,
    AHEAD = 1024, /* elements of a row that are asked for before they are needed */
    WIDTH = HT_POWERS_WIDTH,
    FLOATS = WIDTH + 16 /* from one of the sums to the next: no power of two, of which a cache holds only few */
};

#define LN2 0.693147180559945f

/* What is taken off elements of which the largest is `high`. */
HT_INLINE v16f middle_of(v16f high) { return v16f_min(v16f_set1(FLT_MAX), high); }

/* How far x is below the middle; infinity is not above it either, which only those who are `careful` see to: without an
 * infinite element there is none. */
HT_INLINE v16f depth_of(v16f x, v16f middle, bool careful) {
    const v16f d = v16f_sub(middle, x);
    return careful ? v16f_max(v16f_zero(), d) : d;
}

/* e^-x of n registers of x >= 0 as terms of a sum of which one is 1: off by less than 2^-24 of that. What is rounded off
 * where x is large is lost in the sum, so the reduction takes one step; of -x, so that signs change for nothing. */
HT_INLINE void terms_of(v16f *x, int n) {
    const v16f shift = v16f_set1(0x1.8p23f), log2_e = v16f_set1(HT_LOG2_E);
    v16f whole[EACH + 1], q[EACH + 1];
#define EACH_TERM                                                                                                      \
    HT_UNROLL                                                                                                          \
    for (int i = 0; i < n; i++)
    EACH_TERM x[i] = v16f_min(v16f_set1(HT_EXP_CLAMP), x[i]);
    EACH_TERM whole[i] = v16f_sub(shift, v16f_fma(x[i], log2_e, shift)); /* not above 0 */
    EACH_TERM x[i] = v16f_fma(x[i], log2_e, whole[i]);
    EACH_TERM q[i] = v16f_fma(v16f_set1(HT_EXP_6 * LN2 * LN2 * LN2 * LN2 * LN2 * LN2), x[i],
                              v16f_set1(-HT_EXP_5 * LN2 * LN2 * LN2 * LN2 * LN2));
    EACH_TERM q[i] = v16f_fma(q[i], x[i], v16f_set1(HT_EXP_4 * LN2 * LN2 * LN2 * LN2));
    EACH_TERM q[i] = v16f_fma(q[i], x[i], v16f_set1(-HT_EXP_3 * LN2 * LN2 * LN2));
    EACH_TERM q[i] = v16f_fma(q[i], x[i], v16f_set1(HT_EXP_2 * LN2 * LN2));
    EACH_TERM q[i] = v16f_fma(q[i], x[i], v16f_set1(-LN2));
    EACH_TERM q[i] = v16f_fma(q[i], x[i], v16f_set1(1.0f));
    EACH_TERM x[i] = v16f_scale(q[i], whole[i]);
#undef EACH_TERM
}

HT_INLINE v16f term_of(v16f x, v16f middle) {
    v16f term = depth_of(x, middle, true);
    terms_of(&term, 1);
    return term;
}

/* The next n elements, EACH at most, of each sum; its first ones if it begins. */
HT_INLINE void take_n(const v16f *x, int n, bool begins, bool careful, v16f *high, v16f *sum) {
    v16f power[EACH + 1] = {middle_of(*high)}, total[EACH];
    HT_UNROLL
    for (int k = 0; k < n; k++) *high = v16f_max(x[k], *high);
    const v16f middle = middle_of(*high);
    power[0] = v16f_sub(middle, power[0]);
    HT_UNROLL
    for (int k = 0; k < n; k++) power[k + 1] = depth_of(x[k], middle, careful);
    terms_of(begins ? power + 1 : power, begins ? n : n + 1);
    HT_UNROLL
    for (int k = 0; k < EACH; k++) total[k] = k < n ? power[k + 1] : v16f_zero();
    total[0] = v16f_add(v16f_add(total[0], total[1]), v16f_add(total[2], total[3]));
    *sum = begins ? total[0] : v16f_fma(*sum, power[0], total[0]);
}

HT_INLINE void take(const v16f *x, int n, bool begins, bool careful, v16f *high, v16f *sum) {
    switch (n) {
    case 1: take_n(x, 1, begins, careful, high, sum); return;
    case 2: take_n(x, 2, begins, careful, high, sum); return;
    case 3: take_n(x, 3, begins, careful, high, sum); return;
    default: take_n(x, EACH, begins, careful, high, sum);
    }
}

/* ---- rows ---- */

HT_INLINE ht_powers of_row_if(ht_dtype t, bool careful, const void *p, int64_t n) {
    const int64_t bytes = t == HT_F32 ? 4 : 2;
    v16f high = v16f_set1(-FLT_MAX), sum = v16f_zero(), x[EACH];
    int64_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        HT_UNROLL
        for (int k = 0; k < EACH; k++) {
            HT_PREFETCH((const char *)p + (i + 16 * k + AHEAD) * bytes); /* also of the next row */
            x[k] = lanes_load(t, p, i + 16 * k, 1, 16);
        }
        take(x, EACH, false, careful, &high, &sum);
    }
    if (i < n) {
        const v16f none = v16f_set1(-INFINITY);
        int some = 0;
        for (int k = 0; k < EACH; k++) x[k] = none;
        for (; i < n; i += 16, some++) {
            const int lanes = lanes_of(n - i);
            x[some] = v16f_select(m16_first(lanes), lanes_load(t, p, i, 1, lanes), none);
        }
        if (n < GROUP)
            take(x, some, true, careful, &high, &sum);
        else
            take(x, some, false, careful, &high, &sum);
    }
    const float highest = v16f_hmax(high);
    return (ht_powers){highest, v16f_sum(v16f_mul(sum, term_of(middle_of(high), middle_of(v16f_set1(highest)))))};
}

HT_INLINE ht_powers of_row(ht_dtype t, const void *p, int64_t n) {
    const ht_powers sum = of_row_if(t, false, p, n);
    return isinf(sum.high) ? of_row_if(t, true, p, n) : sum;
}

ht_powers HT_ISA_NAME(ht_powers_of_row)(const ht_view *x, int64_t at, int64_t n) {
    _Alignas(64) float room[HT_REDUCE_BLOCK];
    const int64_t stride = x->stride[x->n_dims - 1];
    const char *p = (const char *)x->data + at * (int64_t)ht_dtype_bytes(x->dtype);
    if (stride == 1 && x->dtype == HT_F32) return of_row(HT_F32, p, n);
    if (stride == 1) return x->dtype == HT_F16 ? of_row(HT_F16, p, n) : of_row(HT_BF16, p, n);
    for (int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_of(n - i);
        v16f_store_n(room + i, lanes_load(x->dtype, p, i * stride, stride, lanes), lanes);
    }
    return of_row(HT_F32, room, n);
}

/* ---- columns ---- */

/* Of w columns, `rows` rows that are `apart` bytes from one another, to the sums of one place; `ahead` bytes behind them is
 * what comes next. Rows are read along as far as there are columns, which is how memory is fast: sums wait in a cache. */
HT_INLINE void take_rows(ht_dtype t, const char *row, int64_t apart, int64_t ahead, int64_t w, int rows, bool begins,
                         bool careful, float *high, float *sum) {
    for (int64_t c = 0; c < w; c += 16) {
        const int n = lanes_of(w - c);
        v16f most = begins ? v16f_set1(-FLT_MAX) : v16f_load(high + c);
        v16f total = begins ? v16f_zero() : v16f_load(sum + c), x[EACH];
        HT_UNROLL
        for (int k = 0; k < EACH; k++) {
            const char *p = row + k * apart + c * (t == HT_F32 ? 4 : 2);
            if (k < rows) HT_PREFETCH(p + ahead);
            x[k] = k < rows ? lanes_load(t, p, 0, 1, n) : v16f_zero();
        }
        take(x, rows, false, careful, &most, &total);
        v16f_store(high + c, most);
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
    int64_t r = 0;
    for (; r + GROUP <= n; r += GROUP)
        for (int64_t k = 0; k < SUMS; k++)
            take_rows(t, first + (r + k) * next, SUMS * next, (k < SUMS - 1 ? 1 : GROUP - SUMS + 1) * next, w, EACH,
                      r == 0, careful, high[k], sum[k]);
    for (int64_t k = 0; k < SUMS && r + k < n; k++)
        take_rows(t, first + (r + k) * next, SUMS * next, next, w, (int)((n - r - k + SUMS - 1) / SUMS), r == 0,
                  careful, high[k], sum[k]);
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
