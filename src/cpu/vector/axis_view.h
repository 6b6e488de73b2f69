/* Axis iteration of vector kernels (cpu/axis_view.h): operand, result and element addresses. */
#ifndef HT_CPU_VECTOR_AXIS_VIEW_H
#define HT_CPU_VECTOR_AXIS_VIEW_H

#include "cpu/axis_view.h"
#include "cpu/call.h"
#include "cpu/streaming_store.h"
#include "cpu/vector/vector.h"

/* Operand x and row-contiguous result y of one dtype, seen as [outer][n][inner]. */
typedef struct axis_operand {
    ht_axis_view view;
    const char *x;
    char *y;
    int64_t step;   /* stride of x along the axis, in elements; y has stride view.inner */
    int64_t bytes;  /* per element */
    bool streaming; /* y is written by streaming stores */
} axis_operand;

/* Prepares the operand and result of a call. The kernels need contiguous inner elements, or contiguous rows if inner =
 * 1; an operand without them is first copied to the result's buffer, which then serves as the operand. */
static inline axis_operand axis_operand_of(const ht_call *call, int behind) {
    const ht_view *x = &call->in[0];
    axis_operand a = {
        .view = ht_axis_view_of(x, behind), .y = call->out.data, .bytes = (int64_t)ht_dtype_bytes(x->dtype)};
    bool adjacent = true;
    int64_t expected = 1;
    for (int d = x->n_dims - 1; d >= (a.view.inner == 1 ? a.view.axis : a.view.axis + 1); d--) {
        adjacent = adjacent && (x->shape[d] == 1 || x->stride[d] == expected);
        expected *= x->shape[d];
    }
    if (!adjacent) {
        HT_ISA_NAME(ht_vector_make_contiguous)(x, &call->out, call->device);
        x = &call->out;
        a.view = ht_axis_view_of(x, behind);
    }
    a.x = x->data;
    a.step = x->stride[a.view.axis];
    a.streaming = adjacent && ht_use_streaming((size_t)(ht_view_size(x) * a.bytes));
    return a;
}

/* Address of x[outer][0][c]. */
static inline const char *axis_operand_x(const axis_operand *a, int64_t outer, int64_t c) {
    return a->x + (ht_axis_view_in(&a->view, outer * a->view.inner) + c) * a->bytes;
}
/* Address of y[outer][0][c]. */
static inline char *axis_operand_y(const axis_operand *a, int64_t outer, int64_t c) {
    return a->y + (outer * a->view.n * a->view.inner + c) * a->bytes;
}

#endif
