/* Largest elements and sums of powers around them, of pieces of rows and columns; spread.c joins them. */
#ifndef HT_CPU_VECTOR_POWERS_SUM_H
#define HT_CPU_VECTOR_POWERS_SUM_H

#include "cpu/vector/simd.h"
#include "device/kernel.h"

/* The largest, and the sum of e^(x - largest). An infinite largest counts as the largest number in the sum, where an infinite
 * element is 1; the sum is NaN if an element is. Of nothing but -inf the largest is the lowest number, and the sum 0. */
typedef struct ht_powers {
    float high, sum;
} ht_powers;

enum {
    HT_POWERS_WIDTH = 512 /* columns at a time */
};

/* Of n elements of the last axis of f32, f16 or bf16, from x->data[at] on: at most HT_REDUCE_BLOCK. */
ht_powers HT_ISA_NAME(ht_powers_of_row)(const ht_view *x, int64_t at, int64_t n);
/* The same of w columns side by side, at most HT_POWERS_WIDTH; to the last bit what a row of such elements gives. */
void HT_ISA_NAME(ht_powers_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, ht_powers *to);

#endif
