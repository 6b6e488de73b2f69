/* Sums of powers around something near the largest element, of pieces of rows and columns; spread.c joins them. */
#ifndef HT_CPU_VECTOR_POWERS_SUM_H
#define HT_CPU_VECTOR_POWERS_SUM_H

#include "base/math.h"
#include "cpu/vector/columns.h"
#include "cpu/vector/powers.h"
#include "device/kernel.h"

#include <float.h>
#include <math.h>

/* The sum of e^(x - high) with some `high` near the largest element. Where one is infinite, so is `high`; the sum is NaN if an
 * element is. Of nothing but -inf the sum is 0 in threads that take what is below the smallest normal number for 0 (powers.h),
 * or `high` is -inf. Of one element `high` is that, and the sum 1. */
typedef struct ht_powers {
    double high;
    float sum;
} ht_powers;

enum {
    HT_POWERS_ROWS = 16, /* rows at a time, at most */
    HT_POWERS_SUMS = 16  /* of a row or column */
};

/* Floats that the sums of w columns take. */
HT_INLINE int64_t ht_powers_room(int64_t w) { return 2 * HT_POWERS_SUMS * columns_apart(w); }

/* Of some rows: n[r] elements of the last axis of f32, f16 or bf16, from x->data[at[r]] on; at most HT_REDUCE_BLOCK. */
void HT_ISA_NAME(ht_powers_of_rows)(const ht_view *x, const int64_t *at, const int64_t *n, int rows, ht_powers *to);

/* The same of w columns side by side, at most columns_widest(): sums to `room`, of ht_powers_room(w) floats at the beginning of
 * a line, */
void HT_ISA_NAME(ht_powers_add_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room);

/* and what those of `some` columns from c on come to, at most COLUMNS_TOTALS; c is a multiple of 16. To the last bit what a
 * row of such elements gives. What is in the room of these columns is lost. */
void HT_ISA_NAME(ht_powers_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room, int64_t c,
                                       int64_t some, ht_powers *to);

#endif
