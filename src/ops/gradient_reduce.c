/* Reverse rules of reductions and scans, which are along the last axis. */
#include "ops/gradient.h"

#include <math.h>
#include <string.h>

/* g [...] for every element of x [..., n]. */
static ht_array *to_all(ht_scope *s, const ht_array *x, ht_array *g) {
    return ht_broadcast_to(s, ht_expand_dims(s, g, -1), x->shape, x->n_dims);
}

bool ht_vjp_sum(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = to_all(s, node->in[0], grad);
    return grad_in[0] != NULL;
}

bool ht_vjp_mean(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_array *x = node->in[0];
    grad_in[0] = to_all(s, x, ht_times(s, grad, 1.0 / (double)x->shape[x->n_dims - 1]));
    return grad_in[0] != NULL;
}

/* The product of all other elements: of those before and of those behind. */
bool ht_vjp_prod(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0];
    ht_array *others = ht_multiply(s, ht_cumprod(s, x, -1, false, false), ht_cumprod(s, x, -1, true, false));
    grad_in[0] = ht_multiply(s, to_all(s, x, grad), others);
    return grad_in[0] != NULL;
}

/* MAX and MIN: the elements that are the result share the gradient. */
bool ht_vjp_extreme(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0];
    ht_array *is_it = ht_astype(s, ht_equal(s, x, to_all(s, x, ht_output(node))), x->dtype);
    ht_array *share = ht_divide(s, is_it, ht_sum(s, is_it, (int[]){-1}, 1, true));
    grad_in[0] = ht_multiply(s, to_all(s, x, grad), share);
    return grad_in[0] != NULL;
}

/* With n - ddof in the place of n; the mean of the distances is 0. */
bool ht_vjp_var(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0];
    const double n = (double)x->shape[x->n_dims - 1];
    const double divisor = n - ((const ht_var_params *)(const void *)node->params)->ddof;
    ht_array *off = ht_subtract(s, x, ht_mean(s, x, (int[]){-1}, 1, true));
    ht_array *each = ht_times(s, grad, divisor > 0 ? 2.0 / divisor : (double)INFINITY);
    grad_in[0] = ht_multiply(s, to_all(s, x, each), off);
    return grad_in[0] != NULL;
}

/* An element that is all of the sum, which may be infinite, has all of the gradient. */
bool ht_vjp_logsumexp(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *x = node->in[0], *y = to_all(s, x, ht_output(node));
    ht_array *share = ht_where(s, ht_equal(s, x, y), ht_constant_like(s, x, 1.0), ht_exp(s, ht_subtract(s, x, y)));
    grad_in[0] = ht_multiply(s, to_all(s, x, grad), share);
    return grad_in[0] != NULL;
}

bool ht_vjp_softmax(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const int axis = -1 - ((const ht_along_params *)(const void *)node->params)->behind;
    ht_array *y = ht_output(node), *gy = ht_multiply(s, grad, y);
    grad_in[0] = ht_subtract(s, gy, ht_multiply(s, y, ht_sum(s, gy, &axis, 1, true)));
    return grad_in[0] != NULL;
}

/* ---- scans ---- */

static const ht_scan_params *scan_of(const ht_array *node) { return (const void *)node->params; }
static int axis_of(const ht_array *node) { return -1 - scan_of(node)->behind; }

bool ht_vjp_cumsum(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_scan_params *p = scan_of(node);
    grad_in[0] = ht_cumsum(s, grad, axis_of(node), !p->reverse, p->inclusive);
    return grad_in[0] != NULL;
}

/* Every y_i that x_j is in, without x_j: where x_j is not 0, y_i / x_j, which is 0 behind any zero. At the first zero, the
 * products that leave it out; at later ones nothing. */
bool ht_vjp_cumprod(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_scan_params *p = scan_of(node);
    const int axis = axis_of(node);
    ht_array *x = node->in[0], *zero = ht_constant_like(s, x, 0.0), *one = ht_constant_like(s, x, 1.0);
    ht_array *is_zero = ht_equal(s, x, zero);
    ht_array *zeros_so_far = ht_cumsum(s, is_zero, axis, p->reverse, true);
    ht_array *is_first = ht_logical_and(s, is_zero, ht_equal(s, zeros_so_far, ht_full(s, 1.0, HT_I32, NULL, 0)));
    ht_array *without = ht_cumprod(s, ht_where(s, is_first, one, x), axis, p->reverse, p->inclusive);
    ht_array *of_all = ht_cumsum(s, ht_multiply(s, grad, ht_output(node)), axis, !p->reverse, p->inclusive);
    ht_array *of_rest = ht_cumsum(s, ht_multiply(s, grad, without), axis, !p->reverse, p->inclusive);
    ht_array *divided = ht_divide(s, of_all, ht_where(s, is_zero, one, x));
    grad_in[0] = ht_where(s, is_zero, ht_where(s, is_first, of_rest, zero), divided);
    return grad_in[0] != NULL;
}

/* The element behind each one along an axis counted from the end, or before it; a zero at the end. */
static ht_array *neighbour(ht_scope *s, ht_array *x, int axis, bool to_the_right) {
    if (!x) return NULL;
    const int at = x->n_dims + axis;
    int64_t n = x->shape[at], shape[HT_MAX_DIMS], start[HT_MAX_DIMS] = {0}, stop[HT_MAX_DIMS];
    if (n == 0) return x;
    memcpy(shape, x->shape, sizeof shape);
    memcpy(stop, x->shape, sizeof stop);
    shape[at] = 1;
    start[at] = to_the_right ? 1 : 0;
    stop[at] = to_the_right ? n : n - 1;
    ht_array *rest = ht_slice(s, x, start, stop, NULL), *edge = ht_zeros(s, x->dtype, shape, x->n_dims);
    return ht_concatenate(s, (ht_array *[]){to_the_right ? rest : edge, to_the_right ? edge : rest}, 2, at);
}

/* A recurrence is one along the last axis. */
static ht_array *recurrence(ht_scope *s, ht_array *x, ht_array *d, int axis, bool reverse) {
    if (axis == -1) return ht_recurrence(s, x, d, reverse);
    ht_array *y = ht_recurrence(s, ht_swapaxes(s, x, axis, -1), ht_swapaxes(s, d, axis, -1), reverse);
    return ht_swapaxes(s, y, axis, -1);
}

typedef ht_array *scan_fn(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);

/* A scan that leaves out the place itself shows what the whole one has one place before: so goes its gradient. */
static void as_inclusive(ht_scope *s, const ht_array *node, scan_fn *scan, ht_array **y, ht_array **grad) {
    const ht_scan_params *p = scan_of(node);
    *y = p->inclusive ? ht_output(node) : scan(s, node->in[0], axis_of(node), p->reverse, true);
    if (!p->inclusive) *grad = neighbour(s, *grad, axis_of(node), !p->reverse);
}

/* The gradient of a place goes to the latest element that set what is there: sums of runs, found from their far ends, stop
 * where the next place begins another run, and belong to where they began. */
bool ht_vjp_running_extreme(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const bool reverse = scan_of(node)->reverse;
    const int axis = axis_of(node);
    ht_array *x = node->in[0], *y;
    as_inclusive(s, node, node->op == HT_OP_CUMMAX ? ht_cummax : ht_cummin, &y, &grad);
    ht_array *begins = ht_equal(s, x, y);
    ht_array *goes_on = grad ? ht_astype(s, ht_logical_not(s, begins), grad->dtype) : NULL;
    ht_array *sums = recurrence(s, grad, neighbour(s, goes_on, axis, !reverse), axis, !reverse);
    grad_in[0] = sums ? ht_where(s, begins, sums, ht_constant_like(s, sums, 0.0)) : NULL;
    return grad_in[0] != NULL;
}

/* sum_i g_i e^(x_j - y_i) over the places i that x_j is in. As a recurrence no exponent is positive: s_j = g_j +
 * e^(y_j - y_k) s_k with the next place k, times e^(x_j - y_j). Where both are infinite nothing is passed on. */
bool ht_vjp_logcumsumexp(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const bool reverse = scan_of(node)->reverse;
    const int axis = axis_of(node);
    ht_array *x = node->in[0], *y;
    as_inclusive(s, node, ht_logcumsumexp, &y, &grad);
    const double infinity = (double)INFINITY;
    ht_array *down =
        ht_nan_to_num(s, ht_subtract(s, y, neighbour(s, y, axis, !reverse)), -infinity, infinity, -infinity);
    ht_array *edge =
        down ? ht_constant_like(s, down, 0.0) : NULL; /* the last step leads nowhere: any finite one does */
    ht_array *sums = recurrence(s, grad, ht_exp(s, ht_minimum(s, down, edge)), axis, !reverse);
    ht_array *share = ht_exp(s, ht_nan_to_num(s, ht_subtract(s, x, y), -infinity, infinity, -infinity));
    grad_in[0] = ht_multiply(s, sums, share);
    return grad_in[0] != NULL;
}

bool ht_vjp_recurrence(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const bool reverse = ((const ht_recurrence_params *)(const void *)node->params)->reverse;
    grad_in[0] = ht_recurrence(s, grad, neighbour(s, node->in[1], -1, !reverse), !reverse);
    grad_in[1] = ht_multiply(s, grad_in[0], neighbour(s, ht_output(node), -1, reverse));
    return grad_in[0] && grad_in[1];
}
