/* Axis views: permuted, merged and split axes, and diagonals. */
#include "array/op.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/ops.h>

#include <string.h>

bool ht_find_axis(ht_scope *s, const char *op, const ht_array *x, int axis, int *out) {
    *out = axis < 0 ? axis + x->n_dims : axis;
    if (*out >= 0 && *out < x->n_dims) return true;
    return ht_scope_fail(s, HT_ERR_INDEX, "%s: axis %d does not fit a %d-dimensional array", op, axis, x->n_dims);
}

ht_array *ht_axis_part(ht_scope *s, ht_array *x, int axis, int64_t begin, int64_t end) {
    int64_t start[HT_MAX_DIMS] = {0}, stop[HT_MAX_DIMS];
    if (!x) return NULL;
    memcpy(stop, x->shape, sizeof stop);
    start[axis] = begin;
    stop[axis] = end;
    return ht_slice(s, x, start, stop, NULL);
}

ht_array *ht_neighbour(ht_scope *s, ht_array *x, int axis, bool next, double edge) {
    if (!x) return NULL;
    const int at = x->n_dims + axis;
    int64_t n = x->shape[at], shape[HT_MAX_DIMS];
    if (n == 0) return x;
    memcpy(shape, x->shape, sizeof shape);
    shape[at] = 1;
    ht_array *rest = ht_axis_part(s, x, at, next, next ? n : n - 1),
             *end = ht_full(s, edge, x->dtype, shape, x->n_dims);
    return ht_concatenate(s, (ht_array *[]){next ? rest : end, next ? end : rest}, 2, at);
}

ht_array *ht_swapaxes(ht_scope *s, ht_array *x, int axis1, int axis2) {
    int order[HT_MAX_DIMS], a, b;
    if (!x || !ht_find_axis(s, "swapaxes", x, axis1, &a) || !ht_find_axis(s, "swapaxes", x, axis2, &b)) return NULL;
    for (int i = 0; i < x->n_dims; i++) order[i] = i == a ? b : i == b ? a : i;
    return ht_transpose(s, x, order);
}

ht_array *ht_moveaxis(ht_scope *s, ht_array *x, int from, int to) {
    int order[HT_MAX_DIMS], a, b;
    if (!x || !ht_find_axis(s, "moveaxis", x, from, &a) || !ht_find_axis(s, "moveaxis", x, to, &b)) return NULL;
    for (int i = 0, next = 0; i < x->n_dims; i++) {
        if (next == a) next++;
        order[i] = i == b ? a : next++;
    }
    return ht_transpose(s, x, order);
}

HT_REPLAY(flatten_again, ht_flatten(s, in[0], a->axis[0], a->axis[1]))

ht_array *ht_flatten(ht_scope *s, ht_array *x, int first, int last) {
    if (x && ht_recording()) return ht_record_plain(s, flatten_again, (ht_plain_args){.axis = {first, last}}, &x, 1);
    int64_t shape[HT_MAX_DIMS];
    int a, b, n = 0;
    if (!x) return NULL;
    if (x->n_dims == 0) return ht_expand_dims(s, x, 0);
    if (!ht_find_axis(s, "flatten", x, first, &a) || !ht_find_axis(s, "flatten", x, last, &b)) return NULL;
    if (a > b) return ht_scope_fail(s, HT_ERR_ARGUMENT, "flatten: axis %d comes after axis %d", first, last);
    for (int i = 0; i < x->n_dims; i++) {
        if (i > a && i <= b)
            shape[n - 1] *= x->shape[i];
        else
            shape[n++] = x->shape[i];
    }
    return ht_reshape(s, x, shape, n);
}

HT_REPLAY(unflatten_again, ht_unflatten(s, in[0], a->axis[0], a->size, a->n_axes))

HT_REPLAY(like_again, (a->number[0] ? ht_broadcast_like : ht_reshape_like)(s, in[0], in[1]))

ht_array *ht_reshape_like(ht_scope *s, ht_array *x, ht_array *like) {
    if (!x || !like) return NULL;
    if (ht_recording())
        return ht_record_plain(s, like_again, (ht_plain_args){.number = {0}}, (ht_array *[]){x, like}, 2);
    return ht_reshape(s, x, like->shape, like->n_dims);
}

ht_array *ht_broadcast_like(ht_scope *s, ht_array *x, ht_array *like) {
    if (!x || !like) return NULL;
    if (ht_recording())
        return ht_record_plain(s, like_again, (ht_plain_args){.number = {1}}, (ht_array *[]){x, like}, 2);
    return ht_broadcast_to(s, x, like->shape, like->n_dims);
}

ht_array *ht_unflatten(ht_scope *s, ht_array *x, int axis, const int64_t *shape, int n_dims) {
    if (x && n_dims <= HT_MAX_DIMS && ht_recording()) {
        const ht_plain_args args = {.axis = {axis}, .n_axes = n_dims};
        return ht_record_plain(s, unflatten_again, ht_with_sizes(args, shape, n_dims), &x, 1);
    }
    int64_t whole[HT_MAX_DIMS];
    int at, n = 0;
    if (!x || !ht_find_axis(s, "unflatten", x, axis, &at)) return NULL;
    if (n_dims < 0 || x->n_dims - 1 + n_dims > HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT,
                             "unflatten: %d axes for one of %d are too many, at most %d are possible", n_dims,
                             x->n_dims, HT_MAX_DIMS);
    for (int i = 0; i < x->n_dims; i++) {
        if (i != at) {
            whole[n++] = x->shape[i];
            continue;
        }
        for (int k = 0; k < n_dims; k++) whole[n++] = shape[k];
    }
    return ht_reshape(s, x, whole, n);
}

HT_REPLAY(diagonal_again, ht_diagonal(s, in[0], a->number[0], a->axis[0], a->axis[1]))

/* The stride of a diagonal is the sum of the strides of both axes. */
ht_array *ht_diagonal(ht_scope *s, ht_array *x, int64_t offset, int axis1, int axis2) {
    if (x && ht_recording())
        return ht_record_plain(s, diagonal_again, (ht_plain_args){.number = {offset}, .axis = {axis1, axis2}}, &x, 1);
    int a, b;
    if (!x || !ht_find_axis(s, "diagonal", x, axis1, &a) || !ht_find_axis(s, "diagonal", x, axis2, &b)) return NULL;
    if (a == b) return ht_scope_fail(s, HT_ERR_ARGUMENT, "diagonal: axis %d is named twice", axis1);
    int64_t start[HT_MAX_DIMS] = {0}, stop[HT_MAX_DIMS];
    memcpy(stop, x->shape, sizeof stop);
    int64_t rows = x->shape[a], columns = x->shape[b];
    start[a] = offset < 0 ? (offset < -rows ? rows : -offset) : 0;
    start[b] = offset > 0 ? (offset > columns ? columns : offset) : 0;
    int64_t n = rows - start[a] < columns - start[b] ? rows - start[a] : columns - start[b];
    stop[a] = start[a] + n;
    stop[b] = start[b] + n;
    ht_array *v = ht_slice(s, x, start, stop, NULL); /* both axes cut to the length of the diagonal */
    if (!v) return NULL;
    int64_t step = v->stride[a] + v->stride[b];
    int n_dims = 0;
    for (int i = 0; i < v->n_dims; i++) {
        if (i == a || i == b) continue;
        v->shape[n_dims] = v->shape[i];
        v->stride[n_dims++] = v->stride[i];
    }
    v->shape[n_dims] = n;
    v->stride[n_dims++] = step;
    v->op = HT_OP_DIAGONAL;
    v->n_dims = n_dims;
    *(ht_diagonal_params *)(void *)v->params = (ht_diagonal_params){a, b, {start[a], start[b]}};
    return v;
}
