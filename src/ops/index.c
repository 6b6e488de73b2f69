/* Gather and scatter: indexed reads of elements and slices, and indexed updates. */
#include "array/differentiate.h"
#include "array/op.h"
#include "base/error.h"
#include "ops/gradient.h"
#include "ops/replay_arguments.h"

#include <hearth/index.h>
#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

/* ---- shape rules ---- */

static ht_status check_index(const char *op, const ht_array *index, ht_error *err) {
    if (!ht_dtype_is_float(index->dtype) && index->dtype != HT_BOOL) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: the index is %s, expected integers", op, ht_dtype_name(index->dtype));
}

static ht_status too_many_axes(const char *op, int n, ht_error *err) {
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: the result would have %d dimensions, at most %d are possible", op, n,
                   HT_MAX_DIMS);
}

ht_status ht_shape_take(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *x = c->in[0], *index = c->in[1];
    const int axis = ((const ht_axis_params *)c->params)->axis, n_dims = x->n_dims - 1 + index->n_dims;
    ht_status st = check_index(c->op, index, err);
    if (st) return st;
    if (n_dims > HT_MAX_DIMS) return too_many_axes(c->op, n_dims, err);
    out->dtype = x->dtype;
    for (int i = 0; i < axis; i++) out->shape[out->n_dims++] = x->shape[i];
    for (int i = 0; i < index->n_dims; i++) out->shape[out->n_dims++] = index->shape[i];
    for (int i = axis + 1; i < x->n_dims; i++) out->shape[out->n_dims++] = x->shape[i];
    return HT_OK;
}

/* Checks n indices of one shape into axes of x, and the slice sizes. */
static ht_status check_slices(const char *op, const ht_array *x, ht_array *const *index, const int8_t *axis, int n,
                              const int64_t *size, ht_error *err) {
    char tx[HT_SHAPE_TEXT], ts[HT_SHAPE_TEXT];
    bool used[HT_MAX_DIMS] = {false};
    for (int i = 0; i < n; i++) {
        ht_status st = check_index(op, index[i], err);
        if (st) return st;
        if (used[axis[i]]) return ht_fail(err, HT_ERR_ARGUMENT, "%s: axis %d is named twice", op, axis[i]);
        used[axis[i]] = true;
    }
    for (int i = 0; i < x->n_dims; i++)
        if (size[i] < 0 || size[i] > x->shape[i])
            return ht_fail(err, HT_ERR_ARGUMENT, "%s: slices %s do not lie within %s", op,
                           ht_shape_text(size, x->n_dims, ts), ht_shape_text(x->shape, x->n_dims, tx));
    return HT_OK;
}

ht_status ht_shape_gather(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_gather_params *p = c->params;
    const ht_array *x = c->in[0], *index = c->in[1];
    ht_status st = check_slices(c->op, x, c->in + 1, p->axis, c->n_in - 1, p->size, err);
    if (st) return st;
    out->dtype = x->dtype;
    out->n_dims = index->n_dims + x->n_dims;
    if (out->n_dims > HT_MAX_DIMS) return too_many_axes(c->op, out->n_dims, err);
    memcpy(out->shape, index->shape, (size_t)index->n_dims * sizeof *out->shape);
    memcpy(out->shape + index->n_dims, p->size, (size_t)x->n_dims * sizeof *out->shape);
    return HT_OK;
}

ht_status ht_shape_scatter(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_scatter_params *p = c->params;
    const ht_array *x = c->in[0], *index = c->in[1], *updates = c->in[c->n_in - 1];
    char ti[HT_SHAPE_TEXT], tu[HT_SHAPE_TEXT];
    if (updates->n_dims != index->n_dims + x->n_dims || updates->dtype != x->dtype ||
        !ht_shape_begins(updates, index->shape, index->n_dims))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: updates %s for indices %s, expected the axes of the indices and then %d of a slice", c->op,
                       ht_shape_text(updates->shape, updates->n_dims, tu),
                       ht_shape_text(index->shape, index->n_dims, ti), x->n_dims);
    ht_status st = check_slices(c->op, x, c->in + 1, p->axis, c->n_in - 2, updates->shape + index->n_dims, err);
    return st ? st : ht_result_like(x, x->dtype, out);
}

static ht_status check_along(const char *op, const ht_array *x, const ht_array *index, int axis, ht_error *err) {
    char tx[HT_SHAPE_TEXT], ti[HT_SHAPE_TEXT];
    ht_status st = check_index(op, index, err);
    if (st) return st;
    bool ok = index->n_dims == x->n_dims;
    for (int i = 0; ok && i < x->n_dims; i++) ok = i == axis || x->shape[i] == index->shape[i];
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: index %s does not fit an array %s along axis %d", op,
                       ht_shape_text(index->shape, index->n_dims, ti), ht_shape_text(x->shape, x->n_dims, tx), axis);
    return HT_OK;
}

ht_status ht_shape_take_along(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_along(c->op, c->in[0], c->in[1], ((const ht_axis_params *)c->params)->axis, err);
    return st ? st : ht_result_like(c->in[1], c->in[0]->dtype, out);
}

ht_status ht_shape_put_along(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_along(c->op, c->in[0], c->in[1], ((const ht_put_along_params *)c->params)->axis, err);
    return st ? st : ht_result_like(c->in[0], c->in[0]->dtype, out);
}

ht_status ht_shape_slice_update(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    if (c->in[0]->dtype != c->in[1]->dtype || c->in[0]->n_dims != c->in[1]->n_dims)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %s of %d dimensions in an array of %s of %d", c->op,
                       ht_dtype_name(c->in[1]->dtype), c->in[1]->n_dims, ht_dtype_name(c->in[0]->dtype),
                       c->in[0]->n_dims);
    return ht_result_like(c->in[0], c->in[0]->dtype, out);
}

/* ---- along one axis ---- */

ht_array *ht_take(ht_scope *s, ht_array *x, ht_array *index, int axis) {
    ht_axis_params p;
    if (!x || !ht_find_axis(s, "take", x, axis, &p.axis)) return NULL;
    return ht_apply(s, HT_OP_TAKE, &p, (ht_array *[]){x, index}, 2);
}

/* Broadcasts a and b along all axes but one; incompatible shapes are left for the shape rule to report. */
static void broadcast_beside(ht_scope *s, ht_array **a, ht_array **b, int axis) {
    if (!*a || !*b || (*a)->n_dims != (*b)->n_dims) return;
    int64_t to_a[HT_MAX_DIMS], to_b[HT_MAX_DIMS];
    bool changes = false;
    for (int i = 0; i < (*a)->n_dims; i++) {
        int64_t m = to_a[i] = (*a)->shape[i], n = to_b[i] = (*b)->shape[i];
        if (i == axis || m == n) continue;
        if (m != 1 && n != 1) return;
        to_a[i] = to_b[i] = m == 1 ? n : m;
        changes = true;
    }
    if (!changes) return;
    *a = ht_broadcast_to(s, *a, to_a, (*a)->n_dims);
    *b = ht_broadcast_to(s, *b, to_b, (*b)->n_dims);
}

HT_REPLAY(take_along_again, ht_take_along_axis(s, in[0], in[1], a->axis[0]))

ht_array *ht_take_along_axis(ht_scope *s, ht_array *x, ht_array *index, int axis) {
    ht_axis_params p;
    if (x && index && ht_recording())
        return ht_record_plain(s, take_along_again, (ht_plain_args){.axis = {axis}}, (ht_array *[]){x, index}, 2);
    if (!x || !ht_find_axis(s, "take_along_axis", x, axis, &p.axis)) return NULL;
    broadcast_beside(s, &x, &index, p.axis);
    return ht_apply(s, HT_OP_TAKE_ALONG, &p, (ht_array *[]){x, index}, 2);
}

HT_REPLAY(put_along_again, (a->number[0] == HT_SCATTER_SET ? ht_put_along_axis
                                                           : ht_scatter_add_axis)(s, in[0], in[1], in[2], a->axis[0]))

static ht_array *put_along(ht_scope *s, const char *op, ht_array *x, ht_array *index, ht_array *values, int axis,
                           ht_scatter_mode mode) {
    ht_put_along_params p = {mode, 0};
    if (!x || !index || !ht_find_axis(s, op, x, axis, &p.axis)) return NULL;
    if (ht_recording())
        return ht_record_plain(s, put_along_again, (ht_plain_args){.number = {(int64_t)mode}, .axis = {axis}},
                               (ht_array *[]){x, index, values}, 3);
    ht_array *whole = x;
    broadcast_beside(s, &whole, &index, p.axis);
    if (whole != x && whole) { /* the result has the shape of x */
        char tx[HT_SHAPE_TEXT], ti[HT_SHAPE_TEXT];
        for (int i = 0; i < x->n_dims; i++)
            if (whole->shape[i] != x->shape[i])
                return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: index %s does not fit an array %s along axis %d", op,
                                     ht_shape_text(index->shape, index->n_dims, ti),
                                     ht_shape_text(x->shape, x->n_dims, tx), p.axis);
    }
    if (whole != x) ht_scope_drop(s, whole); /* a reference to x would prevent its donation */
    values = index ? ht_broadcast_to(s, ht_astype(s, values, x->dtype), index->shape, index->n_dims) : NULL;
    return ht_apply(s, HT_OP_PUT_ALONG, &p, (ht_array *[]){x, index, values}, 3);
}

ht_array *ht_put_along_axis(ht_scope *s, ht_array *x, ht_array *index, ht_array *values, int axis) {
    return put_along(s, "put_along_axis", x, index, values, axis, HT_SCATTER_SET);
}
ht_array *ht_scatter_add_axis(ht_scope *s, ht_array *x, ht_array *index, ht_array *values, int axis) {
    return put_along(s, "scatter_add_axis", x, index, values, axis, HT_SCATTER_ADD);
}

ht_array *ht_one_hot(ht_scope *s, ht_array *index, int64_t n, ht_dtype dtype) {
    if (!index) return NULL;
    ht_error err;
    if (check_index("one_hot", index, &err)) return ht_scope_fail_with(s, &err);
    ht_array *places = ht_expand_dims(s, ht_astype(s, index, HT_I64), -1);
    return ht_astype(s, ht_equal(s, places, ht_arange(s, 0, (double)n, 1, HT_I64)), dtype);
}

/* ---- along several axes ---- */

/* Operands of gather and scatter: x, the n indices broadcast to one shape, and a free place for the updates. The caller
 * frees the list; NULL on failure. */
static ht_array **operands(ht_scope *s, const char *op, ht_array *x, ht_array *const *index, const int *axis, int n,
                           int8_t *axes) {
    if (!x) return NULL;
    if (n < 1 || n > x->n_dims) {
        ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: %d indices for a %d-dimensional array", op, n, x->n_dims);
        return NULL;
    }
    ht_array shape = {.n_dims = 0};
    for (int i = 0; i < n; i++) {
        int at;
        if (!index[i] || !ht_find_axis(s, op, x, axis[i], &at)) return NULL;
        axes[i] = (int8_t)at;
        ht_array wider = {.n_dims = 0};
        bool fits = ht_broadcast_shapes(&shape, index[i], wider.shape, &wider.n_dims);
        shape = wider;
        if (fits) continue;
        ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: the shapes of the indices do not broadcast", op);
        return NULL;
    }
    ht_array **in = ht_array_list(s, n + 2);
    if (!in) return NULL;
    in[0] = x;
    for (int i = 0; i < n; i++) in[1 + i] = ht_broadcast_to(s, index[i], shape.shape, shape.n_dims);
    return in;
}

/* ---- recording ---- */

static bool names(const int *axis, int n, int n_dims, int i) {
    for (int k = 0; k < n; k++)
        if ((axis[k] < 0 ? axis[k] + n_dims : axis[k]) == i) return true;
    return false;
}

static bool gather_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    const ht_plain_args *a = args;
    const ht_array *x = in[0];
    for (int i = 0; i < x->n_dims; i++) {
        if (x->shape[i] == a->extra[i] || a->size[i] != a->extra[i] || names(a->axis, a->n_axes, x->n_dims, i))
            continue;
        return ht_scope_fail(
            s, HT_ERR_ARGUMENT,
            "gather: slices of %lld elements were all of axis %d when the function was traced, which now has "
            "%lld; write HT_OPEN where all are meant, whatever the size",
            (long long)a->size[i], i, (long long)x->shape[i]);
    }
    out[0] = ht_gather(s, in[0], in + 1, a->axis, n_in - 1, a->size);
    return out[0] != NULL;
}

HT_REPLAY(scatter_again, ht_scatter(s, in[0], in + 2, a->axis, n_in - 2, in[1], (ht_scatter_mode)a->number[0]))

/* Records a call on x, optional updates, and the indices; NULL for invalid arguments. */
static ht_array *record_places(ht_scope *s, ht_replay_fn *again, ht_plain_args a, ht_array *x, ht_array *updates,
                               ht_array *const *index, const int *axis, int n) {
    ht_array *in[HT_MAX_DIMS + 2];
    int n_in = 0;
    in[n_in++] = x;
    if (updates) in[n_in++] = updates;
    for (int i = 0; i < n; i++) in[n_in++] = index[i];
    memcpy(a.extra, x->shape, (size_t)x->n_dims * sizeof *a.extra);
    return ht_record_plain(s, again, ht_with_axes(a, axis, n), in, n_in);
}

ht_array *ht_gather(ht_scope *s, ht_array *x, ht_array *const *index, const int *axis, int n, const int64_t *size) {
    ht_gather_params p = {{0}, {0}};
    if (x && n > 0 && n <= x->n_dims && ht_recording())
        return record_places(s, gather_again, ht_with_sizes((ht_plain_args){.n_axes = n}, size, x->n_dims), x, NULL,
                             index, axis, n);
    ht_array **in = operands(s, "gather", x, index, axis, n, p.axis);
    if (!in) return NULL;
    for (int i = 0; i < x->n_dims; i++) p.size[i] = size[i] == HT_OPEN ? x->shape[i] : size[i];
    ht_array *y = ht_apply(s, HT_OP_GATHER, &p, in, n + 1);
    free(in);
    return y;
}

ht_array *ht_scatter(ht_scope *s, ht_array *x, ht_array *const *index, const int *axis, int n, ht_array *updates,
                     ht_scatter_mode mode) {
    ht_scatter_params p = {.mode = mode};
    if (!updates) return NULL;
    if (x && n > 0 && n <= x->n_dims && ht_recording())
        return record_places(s, scatter_again, (ht_plain_args){.number = {(int64_t)mode}}, x, updates, index, axis, n);
    ht_array **in = operands(s, "scatter", x, index, axis, n, p.axis);
    if (!in) return NULL;
    in[n + 1] = ht_astype(s, updates, x->dtype);
    ht_array *y = ht_apply(s, HT_OP_SCATTER, &p, in, n + 2);
    free(in);
    return y;
}

/* ---- reverse rules ---- */

/* Gather and scatter are adjoint: each is the reverse rule of the other. */

static ht_array *zeros_like(ht_scope *s, const ht_array *x) { return ht_zeros(s, x->dtype, x->shape, x->n_dims); }

static ht_array *zero_of(ht_scope *s, const ht_array *x) { return ht_constant_like(s, x, 0.0); }

/* Index of each element: 0, 1, 2, ... in the shape of x. */
static ht_array *numbers_like(ht_scope *s, const ht_array *x) {
    return ht_reshape(s, ht_arange(s, 0, (double)ht_array_size(x), 1, HT_I64), x->shape, x->n_dims);
}

/* g where the update survived, else 0: of several values for one position the last one stays. */
static ht_array *of_winners(ht_scope *s, ht_array *won, ht_array *numbers, ht_array *g) {
    return g ? ht_where(s, ht_equal(s, won, numbers), g, zero_of(s, g)) : NULL;
}

/* ---- along one axis ---- */

static int axis_of(const ht_array *node) { return ((const ht_axis_params *)(const void *)node->params)->axis; }

/* Scatters the gradient, with the axes of the index moved to the front. */
void ht_vjp_take(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const int axis = axis_of(node), n_index = node->in[1]->n_dims;
    int order[HT_MAX_DIMS];
    for (int i = 0; i < n_index; i++) order[i] = axis + i;
    for (int i = 0; i < axis; i++) order[n_index + i] = i;
    for (int i = n_index + axis; i < node->n_dims; i++) order[i] = i;
    ht_array *x = node->in[0], *updates = ht_transpose(s, grad, order);
    if (node->n_dims < HT_MAX_DIMS) {
        updates = ht_expand_dims(s, updates, n_index + axis);
        grad_in[0] = ht_scatter(s, zeros_like(s, x), &node->in[1], &axis, 1, updates, HT_SCATTER_ADD);
        return;
    }
    /* The index is flattened, so that the number of axes stays within HT_MAX_DIMS. */
    ht_array *index = ht_reshape(s, node->in[1], (int64_t[]){-1}, 1);
    int64_t shape[HT_MAX_DIMS];
    shape[0] = ht_array_size(node->in[1]);
    for (int i = 0; i < x->n_dims; i++) shape[1 + i] = i == axis ? 1 : x->shape[i];
    updates = ht_reshape(s, updates, shape, x->n_dims + 1);
    grad_in[0] = ht_scatter(s, zeros_like(s, x), &index, &axis, 1, updates, HT_SCATTER_ADD);
}

void ht_vjp_take_along(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_scatter_add_axis(s, zeros_like(s, node->in[0]), node->in[1], grad, axis_of(node));
}

void ht_vjp_put_along(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
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
}

/* ---- along several axes ---- */

static int axes_of(const int8_t *from, int n, int *axis) {
    for (int i = 0; i < n; i++) axis[i] = from[i];
    return n;
}

void ht_vjp_gather(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    int axis[HT_MAX_DIMS],
        n = axes_of(((const ht_gather_params *)(const void *)node->params)->axis, node->n_in - 1, axis);
    grad_in[0] = ht_scatter(s, zeros_like(s, node->in[0]), node->in + 1, axis, n, grad, HT_SCATTER_ADD);
}

/* Slices of another array `a` at the indices of a scatter. */
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

/* Product of all other factors of a position, from the product of its nonzero factors and the number of zeros: 0 when
 * another factor is 0. */
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
    ht_array *x = node->in[0], *updates = node->in[node->n_in - 1], *y = ht_node_output(node), *zero = zero_of(s, x);
    *of_x = ht_where(s, ht_equal(s, x, y), grad, zero);
    *of_updates = ht_where(s, ht_equal(s, updates, gathered(s, node, y)), gathered(s, node, grad), zero);
}

void ht_vjp_scatter(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
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
}

/* ---- slices ---- */

void ht_vjp_slice_update(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
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
}
