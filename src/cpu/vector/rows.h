/* Row iteration for kernels along the last axis: row offsets, and sums whose order depends on the length alone. */
#ifndef HT_CPU_VECTOR_ROWS_H
#define HT_CPU_VECTOR_ROWS_H

#include "base/dtype.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/lanes.h"

/* Offset of row i of v; `contiguous` is ht_view_contiguous(v), computed once by the caller. */
HT_INLINE int64_t row_offset(const ht_view *v, bool contiguous, int64_t i) {
    int last = v->n_dims - 1;
    return contiguous ? i * v->shape[last] : ht_view_offset(v, last, i);
}

HT_INLINE int64_t row_count(const ht_view *v) {
    int64_t n = 1;
    for (int d = 0; d < v->n_dims - 1; d++) n *= v->shape[d];
    return n;
}

/* 64 partial sums in four vectors, to which successive vectors of sixteen elements are added in rotation. */
typedef struct row_sum {
    v16f lane[4];
} row_sum;

HT_INLINE row_sum row_sum_zero(void) { return (row_sum){{v16f_zero(), v16f_zero(), v16f_zero(), v16f_zero()}}; }

HT_INLINE v16f row_sum_lanes(const row_sum *s) {
    return v16f_add(v16f_add(s->lane[0], s->lane[1]), v16f_add(s->lane[2], s->lane[3]));
}

HT_INLINE float row_sum_total(const row_sum *s) { return v16f_sum(row_sum_lanes(s)); }

#endif
