/* Compositions of selections and updates by index, through GATHER and SCATTER, and of sorting, through ARGSORT. */
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/index.h>
#include <hearth/ops.h>
#include <hearth/order.h>

#include <string.h>

ht_array *ht_checked_index(ht_scope *s, ht_array *index, ht_array *ok, int64_t n) {
    if (!index || !ok) return NULL;
    if (n == 0 && ht_array_size(index) == 0) return index;
    /* Invalid indices become n, which GATHER rejects; it would count negative ones from the end. */
    ht_array *good = ht_greater_equal(s, index, ht_constant_like(s, index, 0));
    if (ok != HT_NONE) good = ht_logical_and(s, good, ok);
    ht_array *at = ht_where(s, good, ht_astype(s, index, HT_I64), ht_full(s, (double)n, HT_I64, NULL, 0));
    ht_array *number = ht_arange(s, 0, (double)n, 1, index->dtype);
    ht_array *y = at ? ht_gather(s, number, &at, (int[]){0}, 1, (int64_t[]){1}) : NULL; /* [..., 1] */
    return y ? ht_squeeze(s, y, -1) : NULL;
}

/* ---- arrays without elements, of which GATHER and SCATTER have no slices ---- */

static bool is_empty(const ht_array *x) { return ht_array_size(x) == 0; }

/* x, an empty array, updated by another; both have a derivative, as when they are not empty. */
static ht_array *with_nothing(ht_scope *s, ht_array *x, ht_array *update) {
    return ht_add(s, x, ht_reshape(s, update, x->shape, x->n_dims));
}

/* ---- along one axis ---- */

/* Shape as [outer, n, inner] around an axis. */
typedef struct around {
    int64_t outer, n, inner;
} around;

static around around_axis(const ht_array *x, int axis) {
    around a = {1, x->shape[axis], 1};
    for (int i = 0; i < axis; i++) a.outer *= x->shape[i];
    for (int i = axis + 1; i < x->n_dims; i++) a.inner *= x->shape[i];
    return a;
}

ht_array *ht_compose_take(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_array *x = in[0], *index = in[1];
    const int axis = ((const ht_axis_params *)params)->axis;
    const around a = around_axis(x, axis);
    int64_t shape[HT_MAX_DIMS], m = ht_array_size(index);
    int n_dims = 0;
    for (int i = 0; i < axis; i++) shape[n_dims++] = x->shape[i];
    for (int i = 0; i < index->n_dims; i++) shape[n_dims++] = index->shape[i];
    for (int i = axis + 1; i < x->n_dims; i++) shape[n_dims++] = x->shape[i];
    if (a.n == 0 && m == 0) return ht_reshape(s, in[0], shape, n_dims);
    ht_array *at = ht_reshape(s, in[1], &m, 1), *flat = ht_reshape(s, in[0], (int64_t[]){a.outer, a.n, a.inner}, 3);
    if (!at || !flat) return NULL;
    ht_array *y = ht_gather(s, flat, &at, (int[]){1}, 1, (int64_t[]){a.outer, 1, a.inner}); /* [m, outer, 1, inner] */
    return ht_reshape(s, ht_transpose(s, y, (int[]){1, 0, 2, 3}), shape, n_dims);
}

/* Indices of every element at an index along an axis, as GATHER takes them: three of [outer, m, inner], or 1 for a size. */
static bool places_along(ht_scope *s, ht_array *index, int axis, ht_array *at[3]) {
    const around a = around_axis(index, axis);
    at[0] = ht_reshape(s, ht_arange(s, 0, (double)a.outer, 1, HT_I64), (int64_t[]){a.outer, 1, 1}, 3);
    at[1] = ht_reshape(s, index, (int64_t[]){a.outer, a.n, a.inner}, 3);
    at[2] = ht_arange(s, 0, (double)a.inner, 1, HT_I64);
    return at[0] && at[1] && at[2];
}

static const int three_axes[3] = {0, 1, 2};

ht_array *ht_compose_take_along(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_array *index = in[1];
    const int axis = ((const ht_axis_params *)params)->axis;
    const around a = around_axis(in[0], axis);
    ht_array *at[3];
    if (is_empty(in[0]) && is_empty(index)) return ht_reshape(s, in[0], index->shape, index->n_dims);
    ht_array *x = ht_reshape(s, in[0], (int64_t[]){a.outer, a.n, a.inner}, 3);
    if (!x || !places_along(s, in[1], axis, at)) return NULL;
    ht_array *y = ht_gather(s, x, at, three_axes, 3, (int64_t[]){1, 1, 1}); /* [outer, m, inner, 1, 1, 1] */
    return ht_reshape(s, y, index->shape, index->n_dims);
}

ht_array *ht_compose_put_along(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_put_along_params *p = params;
    const around a = around_axis(in[0], p->axis), of_index = around_axis(in[1], p->axis);
    ht_array *at[3];
    if (is_empty(in[0])) return with_nothing(s, in[0], in[2]);
    ht_array *x = ht_reshape(s, in[0], (int64_t[]){a.outer, a.n, a.inner}, 3);
    ht_array *updates = ht_reshape(s, in[2], (int64_t[]){of_index.outer, of_index.n, of_index.inner, 1, 1, 1}, 6);
    if (!x || !updates || !places_along(s, in[1], p->axis, at)) return NULL;
    ht_array *y = ht_scatter(s, x, at, three_axes, 3, updates, p->mode);
    return ht_reshape(s, y, in[0]->shape, in[0]->n_dims);
}

/* ---- windows ---- */

/* offset + sum of stride[d] * index[d] of every element of a shape in row-major order, i64 [size]. */
static ht_array *positions(ht_scope *s, const int64_t *shape, int n_dims, const int64_t *stride, int64_t offset) {
    ht_array *at = ht_full(s, (double)offset, HT_I64, NULL, 0);
    for (int d = 0; d < n_dims; d++) {
        ht_array *step = ht_times(s, ht_arange(s, 0, (double)shape[d], 1, HT_I64), (double)stride[d]);
        at = ht_add(s, ht_expand_dims(s, at, -1), step);
    }
    return ht_reshape(s, at, (int64_t[]){at ? ht_array_size(at) : 0}, 1);
}

/* x, flattened, with the elements of `updates` set or added at positions. */
static ht_array *placed(ht_scope *s, ht_array *x, ht_array *at, ht_array *updates, ht_scatter_mode mode) {
    updates = ht_reshape(s, updates, (int64_t[]){ht_array_size(updates), 1}, 2);
    return at ? ht_scatter(s, x, &at, (int[]){0}, 1, updates, mode) : NULL;
}

ht_array *ht_compose_slice_update(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_slice_params *p = params;
    ht_array *x = in[0], *update = in[1];
    int64_t stride[HT_MAX_DIMS], offset = 0, step = 1;
    if (is_empty(x)) return with_nothing(s, x, update);
    for (int d = x->n_dims - 1; d >= 0; d--) {
        stride[d] = step * p->step[d];
        offset += step * p->start[d];
        step *= x->shape[d];
    }
    ht_array *at = positions(s, update->shape, update->n_dims, stride, offset);
    ht_array *y = placed(s, ht_reshape(s, x, (int64_t[]){ht_array_size(x)}, 1), at, update, HT_SCATTER_SET);
    return ht_reshape(s, y, x->shape, x->n_dims);
}

ht_array *ht_compose_strided_add(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_strided_add_params *p = params;
    ht_array *x = in[0], *zeros = ht_zeros(s, x->dtype, p->shape, p->n_dims);
    if (zeros && is_empty(zeros)) return ht_reshape(s, x, p->shape, p->n_dims);
    ht_array *at = positions(s, x->shape, x->n_dims, p->window.stride, p->window.offset);
    zeros = zeros ? ht_reshape(s, zeros, (int64_t[]){ht_array_size(zeros)}, 1) : NULL;
    ht_array *y = placed(s, zeros, at, x, HT_SCATTER_ADD);
    return ht_reshape(s, y, p->shape, p->n_dims);
}

/* ---- order ---- */

/* Zeros of both signs are equal to ARGSORT: they keep their order. */
ht_array *ht_compose_sort(ht_scope *s, const void *params, ht_array *const *in) {
    (void)params;
    return ht_take_along_axis(s, in[0], ht_argsort(s, in[0], -1), -1);
}

ht_array *ht_compose_partition(ht_scope *s, const void *params, ht_array *const *in) {
    (void)params;
    return ht_sort(s, in[0], -1);
}

ht_array *ht_compose_argpartition(ht_scope *s, const void *params, ht_array *const *in) {
    (void)params;
    return ht_argsort(s, in[0], -1);
}

/* The last axis of x backwards, from its end down to element `end`. */
static ht_array *backwards(ht_scope *s, ht_array *x, int64_t end) {
    if (!x) return NULL;
    const int last = x->n_dims - 1;
    int64_t start[HT_MAX_DIMS], stop[HT_MAX_DIMS], step[HT_MAX_DIMS];
    for (int i = 0; i <= last; i++) {
        start[i] = stop[i] = HT_OPEN;
        step[i] = 1;
    }
    step[last] = -1;
    if (end > 0) stop[last] = end - 1;
    return ht_slice(s, x, start, stop, step);
}

/* The last k of the ascending order, reversed; NaN orders last. The sort is stable: reversing the row first puts equal
 * elements in index order after the second reversal. */
ht_array *ht_compose_top_k(ht_scope *s, const void *params, ht_array *const *in) {
    const int64_t n = in[0]->shape[in[0]->n_dims - 1], k = ((const ht_top_k_params *)params)->k;
    ht_array *order = backwards(s, ht_argsort(s, backwards(s, in[0], 0), -1), n - k);
    return ht_subtract(s, ht_full(s, (double)(n - 1), HT_I32, NULL, 0), ht_astype(s, order, HT_I32));
}
