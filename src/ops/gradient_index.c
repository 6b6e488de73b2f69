/* Reverse rules of gather and scatter, each of which is the reverse of the other. */
#include "ops/gradient.h"

#include <hearth/index.h>

#include <string.h>

static ht_array *zeros_like(ht_scope *s, const ht_array *x) { return ht_zeros(s, x->dtype, x->shape, x->n_dims); }

static ht_array *zero_of(ht_scope *s, const ht_array *x) { return ht_constant_like(s, x, 0.0); }

/* 0, 1, 2, ... in the shape of x. */
static ht_array *numbers_like(ht_scope *s, const ht_array *x) {
    return ht_reshape(s, ht_arange(s, 0, (double)ht_array_size(x), 1, HT_I64), x->shape, x->n_dims);
}

/* g where what was put stayed: of several values for one place, the last one. */
static ht_array *of_winners(ht_scope *s, ht_array *won, ht_array *numbers, ht_array *g) {
    return g ? ht_where(s, ht_equal(s, won, numbers), g, zero_of(s, g)) : NULL;
}

/* ---- along one axis ---- */

static int axis_of(const ht_array *node) { return ((const ht_axis_params *)(const void *)node->params)->axis; }

/* The gradient with the axes of the index in front, and the axis that was taken from behind those before it. */
bool ht_vjp_take(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const int axis = axis_of(node), n_index = node->in[1]->n_dims;
    int order[HT_MAX_DIMS];
    for (int i = 0; i < n_index; i++) order[i] = axis + i;
    for (int i = 0; i < axis; i++) order[n_index + i] = i;
    for (int i = n_index + axis; i < node->n_dims; i++) order[i] = i;
    ht_array *x = node->in[0], *updates = ht_transpose(s, grad, order);
    if (node->n_dims < HT_MAX_DIMS) {
        updates = ht_expand_dims(s, updates, n_index + axis);
        grad_in[0] = ht_scatter(s, zeros_like(s, x), &node->in[1], &axis, 1, updates, HT_SCATTER_ADD);
        return grad_in[0] != NULL;
    }
    /* No room for one more axis: the index as one. */
    ht_array *index = ht_reshape(s, node->in[1], (int64_t[]){-1}, 1);
    int64_t shape[HT_MAX_DIMS];
    shape[0] = ht_array_size(node->in[1]);
    for (int i = 0; i < x->n_dims; i++) shape[1 + i] = i == axis ? 1 : x->shape[i];
    updates = ht_reshape(s, updates, shape, x->n_dims + 1);
    grad_in[0] = ht_scatter(s, zeros_like(s, x), &index, &axis, 1, updates, HT_SCATTER_ADD);
    return grad_in[0] != NULL;
}

bool ht_vjp_take_along(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_scatter_add_axis(s, zeros_like(s, node->in[0]), node->in[1], grad, axis_of(node));
    return grad_in[0] != NULL;
}

bool ht_vjp_put_along(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_put_along_params *p = (const void *)node->params;
    ht_array *index = node->in[1];
    grad_in[0] = grad;
    grad_in[2] = ht_take_along_axis(s, grad, index, p->axis);
    if (p->mode == HT_SCATTER_SET) {
        ht_array *numbers = numbers_like(s, index);
        ht_array *last = ht_put_along_axis(s, ht_zeros(s, HT_I64, node->shape, node->n_dims), index, numbers, p->axis);
        grad_in[0] = ht_put_along_axis(s, grad, index, zero_of(s, grad), p->axis);
        grad_in[2] = of_winners(s, ht_take_along_axis(s, last, index, p->axis), numbers, grad_in[2]);
    }
    return grad_in[0] && grad_in[2];
}

/* ---- along several axes ---- */

static int axes_of(const int8_t *from, int n, int *axis) {
    for (int i = 0; i < n; i++) axis[i] = from[i];
    return n;
}

bool ht_vjp_gather(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    int axis[HT_MAX_DIMS],
        n = axes_of(((const ht_gather_params *)(const void *)node->params)->axis, node->n_in - 1, axis);
    grad_in[0] = ht_scatter(s, zeros_like(s, node->in[0]), node->in + 1, axis, n, grad, HT_SCATTER_ADD);
    return grad_in[0] != NULL;
}

/* What the indices of a scatter name of another array of its shape. */
static ht_array *gathered(ht_scope *s, const ht_array *node, ht_array *a) {
    const ht_array *updates = node->in[node->n_in - 1];
    int axis[HT_MAX_DIMS],
        n = axes_of(((const ht_scatter_params *)(const void *)node->params)->axis, node->n_in - 2, axis);
    return ht_gather(s, a, node->in + 1, axis, n, updates->shape + (updates->n_dims - node->n_dims));
}

static ht_array *scattered(ht_scope *s, const ht_array *node, ht_array *x, ht_array *updates, ht_scatter_mode mode) {
    int axis[HT_MAX_DIMS],
        n = axes_of(((const ht_scatter_params *)(const void *)node->params)->axis, node->n_in - 2, axis);
    return ht_scatter(s, x, node->in + 1, axis, n, updates, mode);
}

static void vjp_set(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **of_x, ht_array **of_updates) {
    const ht_array *updates = node->in[node->n_in - 1];
    ht_array *numbers = numbers_like(s, updates);
    ht_array *last = scattered(s, node, ht_zeros(s, HT_I64, node->shape, node->n_dims), numbers, HT_SCATTER_SET);
    *of_x = scattered(s, node, grad, zeros_like(s, updates), HT_SCATTER_SET);
    *of_updates = of_winners(s, gathered(s, node, last), numbers, gathered(s, node, grad));
}

/* The product of all other factors of a place: of those that are not 0, divided by the factor itself, unless there is a zero
 * beside it. */
static ht_array *other_factors(ht_scope *s, ht_array *x, ht_array *product, ht_array *zeros) {
    ht_array *zero = zero_of(s, x), *one = ht_constant_like(s, x, 1.0), *is_zero = ht_equal(s, x, zero);
    ht_array *others = ht_divide(s, product, ht_where(s, is_zero, one, x));
    return ht_where(s, ht_equal(s, zeros, ht_astype(s, is_zero, HT_I32)), others, zero);
}

static void vjp_prod(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **of_x, ht_array **of_updates) {
    ht_array *x = node->in[0], *updates = node->in[node->n_in - 1];
    ht_array *one = ht_constant_like(s, x, 1.0), *zero = zero_of(s, x);
    ht_array *x_is_zero = ht_equal(s, x, zero), *is_zero = ht_equal(s, updates, zero);
    ht_array *product =
        scattered(s, node, ht_where(s, x_is_zero, one, x), ht_where(s, is_zero, one, updates), HT_SCATTER_PROD);
    ht_array *zeros =
        scattered(s, node, ht_astype(s, x_is_zero, HT_I32), ht_astype(s, is_zero, HT_I32), HT_SCATTER_ADD);
    *of_x = ht_multiply(s, grad, other_factors(s, x, product, zeros));
    *of_updates = ht_multiply(s, gathered(s, node, grad),
                              other_factors(s, updates, gathered(s, node, product), gathered(s, node, zeros)));
}

static void vjp_extreme(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **of_x, ht_array **of_updates) {
    ht_array *x = node->in[0], *updates = node->in[node->n_in - 1], *y = ht_output(node), *zero = zero_of(s, x);
    *of_x = ht_where(s, ht_equal(s, x, y), grad, zero);
    *of_updates = ht_where(s, ht_equal(s, updates, gathered(s, node, y)), gathered(s, node, grad), zero);
}

bool ht_vjp_scatter(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array **of_x = &grad_in[0], **of_updates = &grad_in[node->n_in - 1];
    switch (((const ht_scatter_params *)(const void *)node->params)->mode) {
    case HT_SCATTER_SET: vjp_set(s, node, grad, of_x, of_updates); break;
    case HT_SCATTER_PROD: vjp_prod(s, node, grad, of_x, of_updates); break;
    case HT_SCATTER_MIN:
    case HT_SCATTER_MAX: vjp_extreme(s, node, grad, of_x, of_updates); break;
    case HT_SCATTER_ADD:
        *of_x = grad;
        *of_updates = gathered(s, node, grad);
        break;
    }
    return *of_x && *of_updates;
}

/* ---- a window ---- */

bool ht_vjp_slice_update(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_slice_params *p = (const void *)node->params;
    const ht_array *update = node->in[1];
    int64_t start[HT_MAX_DIMS], stop[HT_MAX_DIMS], step[HT_MAX_DIMS];
    for (int i = 0; i < node->n_dims; i++) {
        const int64_t n = update->shape[i], last = p->start[i] + (n - 1) * p->step[i];
        start[i] = n > 0 ? p->start[i] : 0;
        step[i] = n > 0 ? p->step[i] : 1;
        stop[i] = n > 0 ? last + (step[i] > 0 ? 1 : -1) : 0;
    }
    grad_in[0] = ht_slice_update(s, grad, zero_of(s, update), start, stop, step);
    grad_in[1] = ht_slice(s, grad, start, stop, step);
    return grad_in[0] && grad_in[1];
}
