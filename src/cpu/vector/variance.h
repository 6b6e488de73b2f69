/* Means and sums of squared distances from them, of pieces of rows and columns; spread.c joins them. */
#ifndef HT_CPU_VECTOR_VARIANCE_H
#define HT_CPU_VECTOR_VARIANCE_H

#include "cpu/vector/columns.h"
#include "device/kernel.h"

typedef struct ht_variance {
    double mean, squares;
} ht_variance;

/* Of both together [Chan, Golub, LeVeque: Updating formulae, 1979]. */
static inline ht_variance ht_variance_joined(ht_variance a, double n_a, ht_variance b, double n_b) {
    const double off = b.mean - a.mean, n = n_a + n_b;
    return (ht_variance){a.mean + off * (n_b / n), a.squares + b.squares + off * off * (n_a * n_b / n)};
}

/* Floats that the sums of w columns take. */
HT_INLINE int64_t ht_variance_room(int64_t w) { return (1 + 2 * COLUMNS_LANES) * columns_apart(w); }

/* Of n elements of the last axis, from x->data[at] on: at most HT_REDUCE_BLOCK. */
ht_variance HT_ISA_NAME(ht_variance_of_row)(const ht_view *x, int64_t at, int64_t n);
/* The same of w columns side by side in f32, f16 or bf16, at most columns_widest(): sums to `room`, of ht_variance_room(w)
 * floats at the beginning of a line, */
void HT_ISA_NAME(ht_variance_add_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room);

/* and what those of `some` columns from c on come to, at most COLUMNS_TOTALS; c is a multiple of 16. To the last bit what a
 * row of such elements gives. What is in the room of these columns is lost. */
void HT_ISA_NAME(ht_variance_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room, int64_t c,
                                         int64_t some, ht_variance *to);

#endif
