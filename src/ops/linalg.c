/* Contractions (inner, outer, tensordot, addmm), as views around one matrix product, and vector norms. */
#include "array/op.h"
#include "base/dtype.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/linalg.h>
#include <hearth/ops.h>

#include <math.h>
#include <string.h>

static ht_array *times(ht_scope *s, ht_array *x, float factor) {
    if (!x || factor == 1.0f) return x;
    return ht_multiply(s, x, ht_full(s, (double)factor, x->dtype, NULL, 0));
}

HT_REPLAY(addmm_again, ht_addmm(s, in[0], in[1], in[2], (float)a->real[0], (float)a->real[1]))

ht_array *ht_addmm(ht_scope *s, ht_array *c, ht_array *a, ht_array *b, float alpha, float beta) {
    if (!a || !b || !c) return NULL;
    if (ht_recording())
        return ht_record_plain(s, addmm_again, (ht_plain_args){.real = {(double)alpha, (double)beta}},
                               (ht_array *[]){c, a, b}, 3);
    ht_dtype dtype = ht_dtype_promote(ht_dtype_promote(a->dtype, b->dtype), c->dtype);
    ht_array *product = times(s, ht_matmul(s, ht_astype(s, a, dtype), ht_astype(s, b, dtype), false), alpha);
    c = times(s, ht_astype(s, c, dtype), beta);
    return product && c ? ht_add(s, product, ht_broadcast_to(s, c, product->shape, product->n_dims)) : NULL;
}

ht_array *ht_inner(ht_scope *s, ht_array *a, ht_array *b) {
    if (!a || !b) return NULL;
    if (a->n_dims == 0 || b->n_dims == 0) return ht_multiply(s, a, b);
    return ht_tensordot(s, a, b, (int[]){-1}, (int[]){-1}, 1);
}

ht_array *ht_outer(ht_scope *s, ht_array *a, ht_array *b) {
    a = ht_reshape(s, a, (int64_t[]){-1, 1}, 2);
    return ht_multiply(s, a, ht_reshape(s, b, (int64_t[]){-1}, 1));
}

/* x as a matrix [other axes, given axes], each kind merged; the given axes keep the given order. */
static ht_array *as_matrix(ht_scope *s, ht_array *x, const int *axes, int n, int64_t *rest, int *n_rest) {
    int order[HT_MAX_DIMS], kept = 0;
    bool named[HT_MAX_DIMS] = {false};
    int64_t rows = 1, columns = 1;
    for (int i = 0; i < n; i++) named[axes[i]] = true;
    for (int i = 0; i < x->n_dims; i++) {
        if (named[i]) continue;
        rest[(*n_rest)++] = x->shape[i];
        rows *= x->shape[i];
        order[kept++] = i;
    }
    for (int i = 0; i < n; i++) {
        columns *= x->shape[axes[i]];
        order[kept++] = axes[i];
    }
    return ht_reshape(s, ht_transpose(s, x, order), (int64_t[]){rows, columns}, 2);
}

static bool find_axes(ht_scope *s, const ht_array *x, const int *axes, int n, int *out) {
    for (int i = 0; i < n; i++) {
        if (!ht_find_axis(s, "tensordot", x, axes[i], &out[i])) return false;
        for (int k = 0; k < i; k++)
            if (out[k] == out[i])
                return ht_scope_fail(s, HT_ERR_ARGUMENT, "tensordot: axis %d is named twice", axes[i]);
    }
    return true;
}

typedef struct tensordot_args {
    int n, a[HT_MAX_DIMS], b[HT_MAX_DIMS];
} tensordot_args;

HT_REPLAY_OF(tensordot_again, tensordot_args, ht_tensordot(s, in[0], in[1], a->a, a->b, a->n))

static ht_array *record_tensordot(ht_scope *s, ht_array *a, ht_array *b, const int *axes_a, const int *axes_b, int n) {
    tensordot_args t = {.n = n};
    if (n) memcpy(t.a, axes_a, (size_t)n * sizeof *axes_a);
    if (n) memcpy(t.b, axes_b, (size_t)n * sizeof *axes_b);
    return ht_record_one(s, tensordot_again, &t, sizeof t, (ht_array *[]){a, b}, 2);
}

ht_array *ht_tensordot(ht_scope *s, ht_array *a, ht_array *b, const int *axes_a, const int *axes_b, int n) {
    int at_a[HT_MAX_DIMS] = {0}, at_b[HT_MAX_DIMS] = {0}, n_dims = 0;
    int64_t shape[2 * HT_MAX_DIMS];
    char text_a[HT_SHAPE_TEXT], text_b[HT_SHAPE_TEXT];
    if (!a || !b) return NULL;
    if (n < 0 || n > a->n_dims || n > b->n_dims)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "tensordot: %d axes to sum over, the arrays have %d and %d", n,
                             a->n_dims, b->n_dims);
    if (ht_recording()) return record_tensordot(s, a, b, axes_a, axes_b, n);
    if (!find_axes(s, a, axes_a, n, at_a) || !find_axes(s, b, axes_b, n, at_b)) return NULL;
    for (int i = 0; i < n; i++)
        if (a->shape[at_a[i]] != b->shape[at_b[i]])
            return ht_scope_fail(s, HT_ERR_ARGUMENT, "tensordot: axis %d of %s and axis %d of %s differ", at_a[i],
                                 ht_shape_text(a->shape, a->n_dims, text_a), at_b[i],
                                 ht_shape_text(b->shape, b->n_dims, text_b));
    ht_array *left = as_matrix(s, a, at_a, n, shape, &n_dims), *right = as_matrix(s, b, at_b, n, shape, &n_dims);
    if (n_dims > HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "tensordot: the result would have %d axes, at most %d are possible",
                             n_dims, HT_MAX_DIMS);
    ht_array *y =
        n ? ht_matmul(s, left, right, true) : ht_multiply(s, left, right ? ht_transpose(s, right, NULL) : NULL);
    return ht_reshape(s, y, shape, n_dims);
}

ht_array *ht_norm(ht_scope *s, ht_array *x, double order, const int *axis, int n_axes, bool keepdims) {
    if (!x) return NULL;
    x = ht_astype(s, x, ht_dtype_at_least_float(x->dtype));
    if (order == 2.0) return ht_sqrt(s, ht_sum(s, ht_square(s, x), axis, n_axes, keepdims));
    ht_array *size = ht_abs(s, x);
    if (isinf(order)) return (order > 0 ? ht_max : ht_min)(s, size, axis, n_axes, keepdims);
    if (!size || isnan(order))
        return size ? ht_scope_fail(s, HT_ERR_ARGUMENT, "norm: the order is not a number") : NULL;
    if (order == 0.0) {
        ht_array *counts = ht_not_equal(s, size, ht_full(s, 0.0, size->dtype, NULL, 0));
        return ht_sum(s, ht_astype(s, counts, size->dtype), axis, n_axes, keepdims);
    }
    if (order == 1.0) return ht_sum(s, size, axis, n_axes, keepdims);
    ht_array *power = ht_full(s, order, size->dtype, NULL, 0), *root = ht_full(s, 1.0 / order, size->dtype, NULL, 0);
    return ht_power(s, ht_sum(s, ht_power(s, size, power), axis, n_axes, keepdims), root);
}
