/* Axis iteration of vector kernels (cpu/axis_view.h). */
#ifndef HT_CPU_VECTOR_AXIS_VIEW_H
#define HT_CPU_VECTOR_AXIS_VIEW_H

#include "cpu/axis_view.h"
#include "cpu/bypass.h"
#include "cpu/vector/vector.h"

typedef struct along {
    ht_axis_view of;
    const char *x;
    char *y;
    int64_t step;  /* elements of x from one to the next along the axis; of y there are of.inner */
    int64_t bytes; /* of an element of either */
    bool bypasses; /* y is written round the caches */
} along;

void HT_ISA_NAME(ht_vector_softmax)(ht_kernel kernels[HT_OP_COUNT]);

/* Where the elements behind the axis are not adjacent, or those along it if none are behind, they are brought together in
 * the result's place first. The result has the operand's dtype. */
static inline along axis_operand_of(const ht_call *call, int behind) {
    const ht_view *x = &call->in[0];
    along a = {.of = ht_axis_view_of(x, behind), .y = call->out.data, .bytes = (int64_t)ht_dtype_bytes(x->dtype)};
    bool adjacent = true;
    int64_t expected = 1;
    for (int d = x->n_dims - 1; d >= (a.of.inner == 1 ? a.of.axis : a.of.axis + 1); d--) {
        adjacent = adjacent && (x->shape[d] == 1 || x->stride[d] == expected);
        expected *= x->shape[d];
    }
    if (!adjacent) {
        HT_ISA_NAME(ht_vector_turn)(x, &call->out, call->pool);
        x = &call->out;
        a.of = ht_axis_view_of(x, behind);
    }
    a.x = x->data;
    a.step = x->stride[a.of.axis];
    a.bypasses = adjacent && ht_bypasses((size_t)(ht_view_size(x) * a.bytes));
    return a;
}

/* Element [outer][0][c] of either. */
static inline const char *axis_operand_x(const along *a, int64_t outer, int64_t c) {
    return a->x + (ht_axis_view_in(&a->of, outer * a->of.inner) + c) * a->bytes;
}
static inline char *axis_operand_y(const along *a, int64_t outer, int64_t c) {
    return a->y + (outer * a->of.n * a->of.inner + c) * a->bytes;
}

#endif
