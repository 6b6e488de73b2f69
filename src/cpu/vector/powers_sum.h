/* Largest elements and sums of powers around them, of pieces of rows and columns; spread.c joins them. */
#ifndef HT_CPU_VECTOR_POWERS_SUM_H
#define HT_CPU_VECTOR_POWERS_SUM_H

#include "base/math.h"
#include "cpu/vector/powers.h"
#include "cpu/vector/simd_past.h"
#include "device/kernel.h"

#include <float.h>
#include <math.h>

/* The largest, and the sum of e^(x - largest). An infinite largest counts as the largest number in the sum, where an infinite
 * element is 1; the sum is NaN if an element is. Of nothing but -inf the largest is the lowest number, and the sum 0. */
typedef struct ht_powers {
    float high, sum;
} ht_powers;

enum {
    HT_POWERS_ROWS = 16,    /* rows at a time, at most */
    HT_POWERS_WIDTH = 512,  /* columns at a time */
    HT_POWERS_AT_ONCE = 128 /* elements that are written at a time */
};

/* Of some rows: n[r] elements of the last axis of f32, f16 or bf16, from x->data[at[r]] on; at most HT_REDUCE_BLOCK. */
void HT_ISA_NAME(ht_powers_of_rows)(const ht_view *x, const int64_t *at, const int64_t *n, int rows, ht_powers *to);

/* Rows of f32 that are still to be written, round the caches: y = e^(x - around) * factor. The processor writes them while it
 * computes something else, if that is done a few lines at a time. */
typedef struct ht_powers_waiting {
    const char *x;
    char *y;
    int64_t x_step, y_step;       /* bytes from a row to the next */
    int64_t rows, column, width;  /* rows that are left, what is written of the first, and elements of each: some
                                     HT_POWERS_AT_ONCE */
    const float *around, *factor; /* [width] */
} ht_powers_waiting;

/* Some of them, if any are left. */
HT_INLINE void ht_powers_write(ht_powers_waiting *q) {
    if (q->rows == 0) return;
    const float *x = (const float *)(const void *)q->x + q->column;
    float *y = (float *)(void *)q->y + q->column;
    HT_UNROLL
    for (int i = 0; i < HT_POWERS_AT_ONCE; i += 16) {
        HT_PREFETCH_SECOND((const char *)(x + i) + q->x_step);
        const v16f e = v16f_exp_falling(v16f_sub(v16f_load(x + i), v16f_load(q->around + q->column + i)));
        v16f_store_past(y + i, v16f_mul(e, v16f_load(q->factor + q->column + i)));
    }
    q->column += HT_POWERS_AT_ONCE;
    if (q->column < q->width) return;
    q->column = 0;
    q->x += q->x_step;
    q->y += q->y_step;
    q->rows--;
}

/* The same of w columns side by side, at most HT_POWERS_WIDTH; to the last bit what a row of such elements gives. Meanwhile
 * about as much is written of what waits; NULL: nothing does. */
void HT_ISA_NAME(ht_powers_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, ht_powers *to,
                                       ht_powers_waiting *waiting);

/* Of two pieces the whole. */
static inline ht_powers ht_powers_joined(ht_powers a, ht_powers b) {
    const float high = a.high > b.high ? a.high : b.high, middle = fminf(FLT_MAX, high);
    return (ht_powers){high, a.sum * ht_exp_f32(fminf(FLT_MAX, a.high) - middle) +
                                 b.sum * ht_exp_f32(fminf(FLT_MAX, b.high) - middle)};
}

#endif
