/* Reductions, softmax and scans. Reduction kernels work along the last axis: other axes are moved there by a view.
 * Softmax and scans work along any axis. */
#include "array/op.h"
#include "base/error.h"
#include "base/total.h"
#include "ops/gradient.h"
#include "ops/replay_arguments.h"

#include <hearth/ops.h>

#include <math.h>
#include <string.h>

/* ---- shape rules ---- */

static ht_status without_last(const char *op, const ht_array *x, bool needs_values, ht_dtype dtype, ht_result_type *out,
                              ht_error *err) {
    char text[HT_SHAPE_TEXT];
    if (x->n_dims < 1 || (needs_values && x->shape[x->n_dims - 1] == 0))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis%s, got shape %s", op,
                       needs_values ? " that is not empty" : "", ht_shape_text(x->shape, x->n_dims, text));
    out->dtype = dtype;
    out->n_dims = x->n_dims - 1;
    memcpy(out->shape, x->shape, (size_t)out->n_dims * sizeof out->shape[0]);
    return HT_OK;
}

ht_status ht_shape_sum(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    return without_last(c->op, c->in[0], false, ht_total_of(c->in[0]->dtype), out, err);
}

ht_status ht_shape_extreme(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    return without_last(c->op, c->in[0], true, c->in[0]->dtype, out, err);
}

ht_status ht_shape_argextreme(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    return without_last(c->op, c->in[0], true, HT_U32, out, err);
}

ht_status ht_shape_softmax(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    if (c->in[0]->n_dims < 1) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis, got a scalar", c->op);
    return ht_shape_float(c, out, err);
}

ht_status ht_shape_scan(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    if (c->in[0]->n_dims < 1) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis, got a scalar", c->op);
    return ht_shape_same(c, out, err);
}

/* ---- axes ---- */

typedef struct axes {
    bool is_reduced[HT_MAX_DIMS];
    int n;
} axes;

static bool find_axes(ht_scope *s, ht_op_id op, const ht_array *x, const int *axis, int n, axes *out) {
    *out = (axes){.n = axis ? n : x->n_dims};
    for (int i = 0; i < x->n_dims; i++) out->is_reduced[i] = !axis;
    for (int i = 0; axis && i < n; i++) {
        int at;
        if (!ht_find_axis(s, ht_op_name(op), x, axis[i], &at)) return false;
        if (out->is_reduced[at])
            return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: axis %d is named twice", ht_op_name(op), axis[i]);
        out->is_reduced[at] = true;
    }
    return true;
}

static bool is_of_something(ht_op_id op) {
    return op == HT_OP_MAX || op == HT_OP_MIN || op == HT_OP_ARGMAX || op == HT_OP_ARGMIN || op == HT_OP_LOGSUMEXP;
}

/* Fails when a reduced axis has no elements; checked here, where axes are still numbered as by the caller. */
static bool has_elements(ht_scope *s, ht_op_id op, const ht_array *x, const int *axis, const axes *a) {
    char text[HT_SHAPE_TEXT];
    for (int i = 0; i < a->n; i++) {
        const int given = axis ? axis[i] : i, at = given < 0 ? given + x->n_dims : given;
        if (x->shape[at] > 0) continue;
        if (axis)
            ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: axis %d of shape %s has no elements", ht_op_name(op), given,
                          ht_shape_text(x->shape, x->n_dims, text));
        else
            ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: an array of shape %s has no elements", ht_op_name(op),
                          ht_shape_text(x->shape, x->n_dims, text));
        return false;
    }
    return true;
}

static bool already_last(const ht_array *x, const axes *a) { return a->n == 1 && a->is_reduced[x->n_dims - 1]; }

/* x with the reduced axes merged into a last axis. */
static ht_array *moved(ht_scope *s, ht_array *x, const axes *a) {
    if (x->n_dims && already_last(x, a)) return x;
    int order[HT_MAX_DIMS], n = 0, kept;
    int64_t shape[HT_MAX_DIMS + 1], size = 1;
    for (int i = 0; i < x->n_dims; i++)
        if (!a->is_reduced[i]) order[n++] = i;
    kept = n;
    for (int i = 0; i < x->n_dims; i++)
        if (a->is_reduced[i]) order[n++] = i;
    for (int i = 0; i < kept; i++) shape[i] = x->shape[order[i]];
    for (int i = kept; i < n; i++) size *= x->shape[order[i]];
    shape[kept] = size;
    if (kept == HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "no axis of %d is named to be reduced", x->n_dims);
    for (int i = 0; i < n; i++)
        if (order[i] != i) return ht_reshape(s, ht_transpose(s, x, order), shape, kept + 1);
    return ht_reshape(s, x, shape, kept + 1);
}

/* With `keepdims`, y with the reduced axes restored with length 1. */
static ht_array *with_axes(ht_scope *s, ht_array *y, const axes *a, bool keepdims) {
    for (int i = 0; keepdims && y && i < HT_MAX_DIMS; i++)
        if (a->is_reduced[i]) y = ht_expand_dims(s, y, i);
    return y;
}

static ht_array *reduce_by(ht_scope *s, ht_op_id op, int ddof, ht_array *x, const int *axis, int n_axes, bool keepdims);
HT_REPLAY(reduce_again,
          reduce_by(s, (ht_op_id)a->number[0], (int)a->number[2], in[0], HT_AXES(a), a->n_axes, a->number[1]))

/* Applies a reduction; `ddof` is for VAR only. */
static ht_array *reduce_by(ht_scope *s, ht_op_id op, int ddof, ht_array *x, const int *axis, int n_axes,
                           bool keepdims) {
    const ht_var_params p = {ddof};
    axes a;
    if (x && ht_recording()) {
        const ht_plain_args args = {.number = {(int64_t)op, keepdims, ddof}};
        return ht_record_plain(s, reduce_again, ht_with_axes(args, axis, n_axes), &x, 1);
    }
    if (!x || !find_axes(s, op, x, axis, n_axes, &a)) return NULL;
    if (is_of_something(op) && !has_elements(s, op, x, axis, &a)) return NULL;
    if (axis && n_axes == 0 &&
        op == HT_OP_VAR) { /* groups of one element; reshaped to two axes, as x may have HT_MAX_DIMS already */
        ht_array *alone = ht_reshape(s, x, (int64_t[]){ht_array_size(x), 1}, 2);
        return ht_reshape(s, ht_apply(s, op, &p, &alone, 1), x->shape, x->n_dims);
    }
    if (axis && n_axes == 0) return op == HT_OP_SUM || op == HT_OP_PROD ? ht_astype(s, x, ht_total_of(x->dtype)) : x;
    x = moved(s, x, &a);
    const bool may_be = op == HT_OP_MEAN || op == HT_OP_VAR, of_nothing = x && may_be && x->shape[x->n_dims - 1] == 0;
    ht_array *y = ht_apply(s, of_nothing ? HT_OP_SUM : op, &p, &x, 1);
    if (of_nothing) y = ht_divide(s, y, ht_full(s, 0, x->dtype, NULL, 0)); /* 0 / 0 */
    return with_axes(s, y, &a, keepdims);
}

static ht_array *reduce(ht_scope *s, ht_op_id op, ht_array *x, const int *axis, int n_axes, bool keepdims) {
    return reduce_by(s, op, 0, x, axis, n_axes, keepdims);
}

/* ---- reductions ---- */

static ht_array *for_floating(ht_scope *s, ht_array *x) {
    return x ? ht_astype(s, x, ht_dtype_at_least_float(x->dtype)) : NULL;
}

#define REDUCTION(name, id, prepared)                                                                                  \
    ht_array *name(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims) {                             \
        return reduce(s, HT_OP_##id, prepared, axis, n_axes, keepdims);                                                \
    }

REDUCTION(ht_sum, SUM, x)
REDUCTION(ht_prod, PROD, x)
REDUCTION(ht_mean, MEAN, for_floating(s, x))
REDUCTION(ht_max, MAX, x)
REDUCTION(ht_min, MIN, x)
REDUCTION(ht_logsumexp, LOGSUMEXP, for_floating(s, x))

static ht_array *truth(ht_scope *s, ht_op_id op, ht_array *x, const int *axis, int n_axes, bool keepdims);
HT_REPLAY(truth_again, truth(s, (ht_op_id)a->number[0], in[0], HT_AXES(a), a->n_axes, a->number[1]))

/* all and any, as minimum or maximum of bools; all of no elements is true. */
static ht_array *truth(ht_scope *s, ht_op_id op, ht_array *x, const int *axis, int n_axes, bool keepdims) {
    axes a;
    if (x && ht_recording()) {
        const ht_plain_args args = {.number = {(int64_t)op, keepdims}};
        return ht_record_plain(s, truth_again, ht_with_axes(args, axis, n_axes), &x, 1);
    }
    x = ht_astype(s, x, HT_BOOL);
    if (!x || !find_axes(s, op, x, axis, n_axes, &a)) return NULL;
    for (int i = 0; i < x->n_dims; i++) {
        if (!a.is_reduced[i] || x->shape[i]) continue;
        int64_t shape[HT_MAX_DIMS];
        int n = 0;
        for (int k = 0; k < x->n_dims; k++)
            if (!a.is_reduced[k]) shape[n++] = x->shape[k];
        return with_axes(s, ht_full(s, op == HT_OP_MIN, HT_BOOL, shape, n), &a, keepdims);
    }
    return reduce(s, op, x, axis, n_axes, keepdims);
}
ht_array *ht_all(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims) {
    return truth(s, HT_OP_MIN, x, axis, n_axes, keepdims);
}
ht_array *ht_any(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims) {
    return truth(s, HT_OP_MAX, x, axis, n_axes, keepdims);
}

static ht_array *place(ht_scope *s, ht_op_id op, ht_array *x, const int *axis, bool keepdims) {
    return reduce(s, op, x, axis, 1, keepdims);
}
ht_array *ht_argmax(ht_scope *s, ht_array *x, const int *axis, bool keepdims) {
    return place(s, HT_OP_ARGMAX, x, axis, keepdims);
}
ht_array *ht_argmin(ht_scope *s, ht_array *x, const int *axis, bool keepdims) {
    return place(s, HT_OP_ARGMIN, x, axis, keepdims);
}

ht_array *ht_var(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims, int ddof) {
    return reduce_by(s, HT_OP_VAR, ddof, for_floating(s, x), axis, n_axes, keepdims);
}

ht_array *ht_std(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims, int ddof) {
    return ht_sqrt(s, ht_var(s, x, axis, n_axes, keepdims, ddof));
}

/* ---- softmax and scans ---- */

/* x with `axis` and the last axis exchanged. */
static ht_array *swapped(ht_scope *s, ht_array *x, int axis) {
    int order[HT_MAX_DIMS], last = x ? x->n_dims - 1 : 0;
    if (!x || axis == last) return x;
    for (int i = 0; i <= last; i++) order[i] = i;
    order[axis] = last;
    order[last] = axis;
    return ht_transpose(s, x, order);
}

ht_array *ht_apply_along(ht_scope *s, ht_op_id op, const void *params, ht_array *x, int axis) {
    int at;
    if (!x || !ht_find_axis(s, ht_op_name(op), x, axis, &at)) return NULL;
    x = swapped(s, x, at);
    return swapped(s, ht_apply(s, op, params, &x, 1), at);
}

ht_array *ht_softmax(ht_scope *s, ht_array *x, int axis) {
    int at;
    if (!x || !ht_find_axis(s, "softmax", x, axis, &at)) return NULL;
    const ht_along_params p = {x->n_dims - 1 - at};
    x = for_floating(s, x);
    return ht_apply(s, HT_OP_SOFTMAX, &p, &x, 1);
}

static ht_array *scan(ht_scope *s, ht_op_id op, ht_array *x, int axis, bool reverse, bool inclusive) {
    int at;
    if (!x || !ht_find_axis(s, ht_op_name(op), x, axis, &at)) return NULL;
    const ht_scan_params p = {x->n_dims - 1 - at, reverse, inclusive};
    return ht_apply(s, op, &p, &x, 1);
}

#define SCAN(name, id, prepared)                                                                                       \
    ht_array *name(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive) {                                 \
        return scan(s, HT_OP_##id, prepared, axis, reverse, inclusive);                                                \
    }

SCAN(ht_cumsum, CUMSUM, x && x->dtype == HT_BOOL ? ht_astype(s, x, HT_I32) : x)
SCAN(ht_cumprod, CUMPROD, x)
SCAN(ht_cummax, CUMMAX, x)
SCAN(ht_cummin, CUMMIN, x)
SCAN(ht_logcumsumexp, LOGCUMSUMEXP, for_floating(s, x))

/* ---- recurrence ---- */

ht_status ht_shape_recurrence(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = ht_shape_binary(c, out, err);
    if (st || (out->n_dims > 0 && ht_dtype_is_float(out->dtype))) return st;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis of floating point", c->op);
}

ht_array *ht_recurrence(ht_scope *s, ht_array *x, ht_array *d, bool reverse) {
    const ht_recurrence_params p = {reverse};
    return ht_apply(s, HT_OP_RECURRENCE, &p, (ht_array *[]){x, d}, 2);
}

/* ---- reverse rules ---- */

/* Reduced axes are last in the nodes. */

/* g [...] broadcast to x [..., n]. */
static ht_array *to_all(ht_scope *s, const ht_array *x, ht_array *g) {
    return ht_broadcast_to(s, ht_expand_dims(s, g, -1), x->shape, x->n_dims);
}

void ht_vjp_sum(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = to_all(s, node->in[0], grad);
}

void ht_vjp_mean(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_array *x = node->in[0];
    grad_in[0] = to_all(s, x, ht_times(s, grad, 1.0 / (double)x->shape[x->n_dims - 1]));
}

/* Gradient: the product of all other elements, as exclusive scans from both ends. */
void ht_vjp_prod(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0];
    ht_array *others = ht_multiply(s, ht_cumprod(s, x, -1, false, false), ht_cumprod(s, x, -1, true, false));
    grad_in[0] = ht_multiply(s, to_all(s, x, grad), others);
}

/* MAX and MIN: all elements equal to the result share its gradient equally. */
void ht_vjp_extreme(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0];
    ht_array *is_it = ht_astype(s, ht_equal(s, x, to_all(s, x, ht_node_output(node))), x->dtype);
    ht_array *share = ht_divide(s, is_it, ht_sum(s, is_it, (int[]){-1}, 1, true));
    grad_in[0] = ht_multiply(s, to_all(s, x, grad), share);
}

/* Derivative: 2 (x - mean) / (n - ddof); the term of the mean vanishes, as the deviations sum to 0. */
void ht_vjp_var(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0];
    const double n = (double)x->shape[x->n_dims - 1];
    const double divisor = n - ((const ht_var_params *)(const void *)node->params)->ddof;
    ht_array *off = ht_subtract(s, x, ht_mean(s, x, (int[]){-1}, 1, true));
    ht_array *each = ht_times(s, grad, divisor > 0 ? 2.0 / divisor : (double)INFINITY);
    grad_in[0] = ht_multiply(s, to_all(s, x, each), off);
}

/* Derivative: e^(x - y), taken as 1 where x equals y, also when both are infinite. */
void ht_vjp_logsumexp(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0], *y = to_all(s, x, ht_node_output(node));
    ht_array *share = ht_where(s, ht_equal(s, x, y), ht_constant_like(s, x, 1.0), ht_exp(s, ht_subtract(s, x, y)));
    grad_in[0] = ht_multiply(s, to_all(s, x, grad), share);
}

void ht_vjp_softmax(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const int axis = -1 - ((const ht_along_params *)(const void *)node->params)->behind;
    ht_array *y = ht_node_output(node), *gy = ht_multiply(s, grad, y);
    grad_in[0] = ht_subtract(s, gy, ht_multiply(s, y, ht_sum(s, gy, &axis, 1, true)));
}

/* ---- scans ---- */

static const ht_scan_params *scan_of(const ht_array *node) { return (const void *)node->params; }
static int axis_of(const ht_array *node) { return -1 - scan_of(node)->behind; }

void ht_vjp_cumsum(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_scan_params *p = scan_of(node);
    grad_in[0] = ht_cumsum(s, grad, axis_of(node), !p->reverse, p->inclusive);
}

/* Derivative of y_i with respect to x_j: the product without x_j. For x_j != 0 it is y_i / x_j; at the first zero it is
 * the scan with that zero replaced by 1; at later zeros it is 0. */
void ht_vjp_cumprod(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_scan_params *p = scan_of(node);
    const int axis = axis_of(node);
    ht_array *x = node->in[0], *zero = ht_constant_like(s, x, 0.0), *one = ht_constant_like(s, x, 1.0);
    ht_array *is_zero = ht_equal(s, x, zero);
    ht_array *zeros_so_far = ht_cumsum(s, is_zero, axis, p->reverse, true);
    ht_array *is_first = ht_logical_and(s, is_zero, ht_equal(s, zeros_so_far, ht_full(s, 1.0, HT_I32, NULL, 0)));
    ht_array *without = ht_cumprod(s, ht_where(s, is_first, one, x), axis, p->reverse, p->inclusive);
    ht_array *of_all = ht_cumsum(s, ht_multiply(s, grad, ht_node_output(node)), axis, !p->reverse, p->inclusive);
    ht_array *of_rest = ht_cumsum(s, ht_multiply(s, grad, without), axis, !p->reverse, p->inclusive);
    ht_array *divided = ht_divide(s, of_all, ht_where(s, is_zero, one, x));
    grad_in[0] = ht_where(s, is_zero, ht_where(s, is_first, of_rest, zero), divided);
}

/* ht_recurrence along any axis. */
static ht_array *recurrence(ht_scope *s, ht_array *x, ht_array *d, int axis, bool reverse) {
    if (axis == -1) return ht_recurrence(s, x, d, reverse);
    ht_array *y = ht_recurrence(s, ht_swapaxes(s, x, axis, -1), ht_swapaxes(s, d, axis, -1), reverse);
    return ht_swapaxes(s, y, axis, -1);
}

typedef ht_array *scan_fn(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);

/* Expresses a scan by the inclusive one: an exclusive result is the inclusive result shifted by one, and so is its
 * gradient. */
static void as_inclusive(ht_scope *s, const ht_array *node, scan_fn *again, ht_array **y, ht_array **grad) {
    const ht_scan_params *p = scan_of(node);
    *y = p->inclusive ? ht_node_output(node) : again(s, node->in[0], axis_of(node), p->reverse, true);
    if (!p->inclusive) *grad = ht_neighbour(s, *grad, axis_of(node), !p->reverse, 0.0);
}

/* Running maximum and minimum: the gradient of a run of equal results goes to the element that began the run. Runs are
 * summed from their ends by a recurrence. */
void ht_vjp_running_extreme(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const bool reverse = scan_of(node)->reverse;
    const int axis = axis_of(node);
    ht_array *x = node->in[0], *y;
    as_inclusive(s, node, node->op == HT_OP_CUMMAX ? ht_cummax : ht_cummin, &y, &grad);
    ht_array *begins = ht_equal(s, x, y);
    ht_array *goes_on = grad ? ht_astype(s, ht_logical_not(s, begins), grad->dtype) : NULL;
    ht_array *sums = recurrence(s, grad, ht_neighbour(s, goes_on, axis, !reverse, 0.0), axis, !reverse);
    grad_in[0] = sums ? ht_where(s, begins, sums, ht_constant_like(s, sums, 0.0)) : NULL;
}

/* Gradient of x_j: sum of g_i e^(x_j - y_i) over all i >= j. A recurrence keeps exponents from being positive:
 * s_j = g_j + e^(y_j - y_(j+1)) s_(j+1), times e^(x_j - y_j). Equal infinities contribute 0. */
void ht_vjp_logcumsumexp(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const bool reverse = scan_of(node)->reverse;
    const int axis = axis_of(node);
    ht_array *x = node->in[0], *y;
    as_inclusive(s, node, ht_logcumsumexp, &y, &grad);
    const double infinity = (double)INFINITY;
    ht_array *down =
        ht_nan_to_num(s, ht_subtract(s, y, ht_neighbour(s, y, axis, !reverse, 0.0)), -infinity, infinity, -infinity);
    ht_array *edge =
        down ? ht_constant_like(s, down, 0.0) : NULL; /* the factor of the last element is unused, but must be finite */
    ht_array *sums = recurrence(s, grad, ht_exp(s, ht_minimum(s, down, edge)), axis, !reverse);
    ht_array *share = ht_exp(s, ht_nan_to_num(s, ht_subtract(s, x, y), -infinity, infinity, -infinity));
    grad_in[0] = ht_multiply(s, sums, share);
}

void ht_vjp_recurrence(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const bool reverse = ((const ht_recurrence_params *)(const void *)node->params)->reverse;
    grad_in[0] = ht_recurrence(s, grad, ht_neighbour(s, node->in[1], -1, !reverse, 0.0), !reverse);
    grad_in[1] = ht_multiply(s, grad_in[0], ht_neighbour(s, ht_node_output(node), -1, reverse, 0.0));
}
