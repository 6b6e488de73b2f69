/* Means and sums of squared distances from them, of pieces of rows and columns; spread.c joins them. */
#ifndef HT_CPU_VECTOR_VARIANCE_H
#define HT_CPU_VECTOR_VARIANCE_H

#include "cpu/vector/simd.h"
#include "device/kernel.h"

typedef struct ht_variance {
    double mean, squares;
} ht_variance;

/* Of both together [Chan, Golub, LeVeque: Updating formulae, 1979]. */
static inline ht_variance ht_variance_joined(ht_variance a, double n_a, ht_variance b, double n_b) {
    const double off = b.mean - a.mean, n = n_a + n_b;
    return (ht_variance){a.mean + off * (n_b / n), a.squares + b.squares + off * off * (n_a * n_b / n)};
}

enum {
    HT_VARIANCE_WIDTH = 1024,                            /* columns at a time */
    HT_VARIANCE_ROOM = 2 * 64 * (HT_VARIANCE_WIDTH + 16) /* floats that they take */
};

/* Of n elements of the last axis, from x->data[at] on: at most HT_REDUCE_BLOCK. */
ht_variance HT_ISA_NAME(ht_variance_of_row)(const ht_view *x, int64_t at, int64_t n);
/* The same of w columns side by side, at most HT_VARIANCE_WIDTH, in f32, f16 or bf16; to the last bit what a row of such
 * elements gives. `room`: HT_VARIANCE_ROOM floats, at the beginning of a line. */
void HT_ISA_NAME(ht_variance_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room,
                                         ht_variance *to);

#endif
