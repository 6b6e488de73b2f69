/* Reverse rules of views and joins: permutations are undone, broadcasts are summed. */
#include "ops/gradient.h"

#include <stdlib.h>
#include <string.h>

bool ht_vjp_reshape(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_reshape(s, grad, node->in[0]->shape, node->in[0]->n_dims);
    return grad_in[0] != NULL;
}

bool ht_vjp_transpose(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_transpose_params *p = (const void *)node->params;
    int back[HT_MAX_DIMS];
    for (int i = 0; i < node->n_dims; i++) back[p->axis[i]] = i;
    grad_in[0] = ht_transpose(s, grad, back);
    return grad_in[0] != NULL;
}

bool ht_vjp_broadcast(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_array *x = node->in[0];
    int axis[HT_MAX_DIMS], n = 0, lead = node->n_dims - x->n_dims;
    for (int i = 0; i < node->n_dims; i++)
        if (i < lead || (x->shape[i - lead] == 1 && node->shape[i] != 1)) axis[n++] = i;
    ht_array *sum = n ? ht_sum(s, grad, axis, n, true) : grad;
    grad_in[0] = ht_reshape(s, sum, x->shape, x->n_dims);
    return grad_in[0] != NULL;
}

/* ---- windows ---- */

static void row_major(const ht_array *x, int64_t *stride) {
    int64_t step = 1;
    for (int i = x->n_dims - 1; i >= 0; i--) {
        stride[i] = step;
        step *= x->shape[i];
    }
}

static bool put_back(ht_scope *s, const ht_array *x, ht_array *grad, const int64_t *stride, int64_t offset,
                     ht_array **grad_in) {
    grad_in[0] = ht_strided_add(s, grad, x->shape, x->n_dims, stride, ht_array_size(grad) ? offset : 0);
    return grad_in[0] != NULL;
}

bool ht_vjp_window(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_window_params *p = (const void *)node->params;
    return put_back(s, node->in[0], grad, p->stride, p->offset, grad_in);
}

bool ht_vjp_slice(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_slice_params *p = (const void *)node->params;
    const ht_array *x = node->in[0];
    int64_t stride[HT_MAX_DIMS], offset = 0;
    row_major(x, stride);
    for (int i = 0; i < x->n_dims; i++) {
        offset += p->start[i] * stride[i];
        stride[i] *= p->step[i];
    }
    return put_back(s, x, grad, stride, offset, grad_in);
}

/* The node was made from a slice of x (ops/axes.c), whose rule follows. */
bool ht_vjp_diagonal(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_diagonal_params *p = (const void *)node->params;
    const ht_array *x = node->in[0];
    int64_t of_x[HT_MAX_DIMS], stride[HT_MAX_DIMS];
    int n = 0;
    row_major(x, of_x);
    for (int i = 0; i < x->n_dims; i++)
        if (i != p->axis1 && i != p->axis2) stride[n++] = of_x[i];
    stride[n] = of_x[p->axis1] + of_x[p->axis2];
    int64_t offset = p->start[0] * of_x[p->axis1] + p->start[1] * of_x[p->axis2];
    return put_back(s, x, grad, stride, offset, grad_in);
}

bool ht_vjp_strided_add(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_window_params *p = (const void *)node->params;
    const ht_array *x = node->in[0];
    grad_in[0] = ht_as_strided(s, grad, x->shape, p->stride, x->n_dims, p->offset);
    return grad_in[0] != NULL;
}

bool ht_vjp_concatenate(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const int axis = ((const ht_axis_params *)(const void *)node->params)->axis;
    int64_t start[HT_MAX_DIMS] = {0}, stop[HT_MAX_DIMS];
    memcpy(stop, node->shape, sizeof stop);
    stop[axis] = 0;
    for (int i = 0; i < node->n_in; i++) {
        start[axis] = stop[axis];
        stop[axis] += node->in[i]->shape[axis];
        grad_in[i] = ht_slice(s, grad, start, stop, NULL);
        if (!grad_in[i]) return false;
    }
    return true;
}
