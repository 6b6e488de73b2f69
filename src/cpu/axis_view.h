/* Axis view: an array as [outer][n][inner], for operations along one axis of n elements that keep the shape. */
#ifndef HT_CPU_AXIS_VIEW_H
#define HT_CPU_AXIS_VIEW_H

#include "cpu/strided_iterator.h"

typedef struct ht_axis_view {
    int axis;
    int64_t outer, n, inner;
    ht_view others; /* the operand without the axis */
} ht_axis_view;

/* View of x along axis n_dims - 1 - behind, so `behind` counts the inner axes. */
static inline ht_axis_view ht_axis_view_of(const ht_view *x, int behind) {
    ht_axis_view a = {.axis = x->n_dims - 1 - behind, .outer = 1, .inner = 1, .others = *x};
    a.n = x->shape[a.axis];
    for (int d = 0; d < a.axis; d++) a.outer *= x->shape[d];
    for (int d = a.axis + 1; d < x->n_dims; d++) {
        a.inner *= x->shape[d];
        a.others.shape[d - 1] = x->shape[d];
        a.others.stride[d - 1] = x->stride[d];
    }
    a.others.n_dims--;
    return a;
}

/* Offset in the operand of line i, 0 <= i < outer * inner: its element 0 along the axis. */
static inline int64_t ht_axis_view_in(const ht_axis_view *a, int64_t i) {
    return ht_view_offset(&a->others, a->others.n_dims, i);
}
/* Offset of line i in the row-contiguous result, whose stride along the axis is `inner`. */
static inline int64_t ht_axis_view_out(const ht_axis_view *a, int64_t i) {
    return i / a->inner * a->n * a->inner + i % a->inner;
}

#endif
