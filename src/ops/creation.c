/* Array constructors and copies: full, arange, cast, contiguous. */
#include "array/op.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/ops.h>

#include <math.h>
#include <string.h>

static ht_status result_of(const ht_make_params *p, const char *op, const int64_t *shape, int n_dims,
                           ht_result_type *out, ht_error *err) {
    if (ht_dtype_bytes(p->dtype) == 0) return ht_fail(err, HT_ERR_ARGUMENT, "%s: %d is no dtype", op, (int)p->dtype);
    if (n_dims < 0 || n_dims > HT_MAX_DIMS)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %d dimensions, expected 0 to %d", op, n_dims, HT_MAX_DIMS);
    out->dtype = p->dtype;
    out->n_dims = n_dims;
    if (n_dims) memcpy(out->shape, shape, (size_t)n_dims * sizeof *shape);
    return HT_OK;
}

ht_status ht_shape_full(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_make_params *p = c->params;
    return result_of(p, c->op, p->shape, p->n_dims, out, err);
}

ht_status ht_shape_cast(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    return result_of(c->params, c->op, c->in[0]->shape, c->in[0]->n_dims, out, err);
}

ht_status ht_shape_copy(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_make_params p = {.dtype = c->in[0]->dtype};
    return result_of(&p, c->op, c->in[0]->shape, c->in[0]->n_dims, out, err);
}

ht_array *ht_full(ht_scope *s, double value, ht_dtype dtype, const int64_t *shape, int n_dims) {
    const ht_make_params p = {.value = {.value = value}, .dtype = dtype, .n_dims = n_dims, .shape = shape};
    return ht_apply(s, HT_OP_FULL, &p, NULL, 0);
}

ht_array *ht_zeros(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims) {
    return ht_full(s, 0.0, dtype, shape, n_dims);
}
ht_array *ht_ones(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims) {
    return ht_full(s, 1.0, dtype, shape, n_dims);
}

static ht_array *sequence(ht_scope *s, double start, double step, int64_t n, ht_dtype dtype) {
    const ht_make_params p = {.value = {start, step}, .dtype = dtype, .n_dims = 1, .shape = &n};
    return ht_apply(s, HT_OP_ARANGE, &p, NULL, 0);
}

ht_array *ht_arange(ht_scope *s, double start, double stop, double step, ht_dtype dtype) {
    double n = ceil((stop - start) / step);
    if (!(fabs(n) < 0x1p62))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "arange: from %g to %g by %g are no countable elements", start, stop,
                             step);
    return sequence(s, start, step, n > 0 ? (int64_t)n : 0, dtype);
}

ht_array *ht_linspace(ht_scope *s, double start, double stop, int64_t n, ht_dtype dtype) {
    double step = n > 1 ? (stop - start) / (double)(n - 1) : 0.0;
    return sequence(s, start, step, n, dtype);
}

HT_REPLAY(full_like_again, ht_full_like(s, in[0], a->real[0], (ht_dtype)a->number[0]))

ht_array *ht_full_like(ht_scope *s, ht_array *x, double value, ht_dtype dtype) {
    if (!x) return NULL;
    if (ht_recording())
        return ht_record_plain(s, full_like_again, (ht_plain_args){.number = {(int64_t)dtype}, .real = {value}}, &x, 1);
    return ht_full(s, value, dtype, x->shape, x->n_dims);
}
ht_array *ht_zeros_like(ht_scope *s, ht_array *x) { return x ? ht_full_like(s, x, 0.0, x->dtype) : NULL; }
ht_array *ht_ones_like(ht_scope *s, ht_array *x) { return x ? ht_full_like(s, x, 1.0, x->dtype) : NULL; }

static ht_array *count(ht_scope *s, const ht_array *x, const int *axis, int n_axes, ht_dtype dtype) {
    double n = axis ? 1.0 : (double)ht_array_size(x);
    for (int i = 0, at; axis && i < n_axes; i++) {
        if (!ht_find_axis(s, "number_of_elements", x, axis[i], &at)) return NULL;
        n *= (double)x->shape[at];
    }
    return ht_full(s, n, dtype, NULL, 0);
}
HT_REPLAY(count_again, count(s, in[0], HT_AXES(a), a->n_axes, (ht_dtype)a->number[0]))

ht_array *ht_number_of_elements(ht_scope *s, ht_array *x, const int *axis, int n_axes, ht_dtype dtype) {
    if (!x) return NULL;
    const ht_plain_args args = {.number = {(int64_t)dtype}};
    if (ht_recording()) return ht_record_plain(s, count_again, ht_with_axes(args, axis, n_axes), &x, 1);
    return count(s, x, axis, n_axes, dtype);
}

/* bool [n, m]: compare(column index, row index + k). */
static ht_array *triangle(ht_scope *s, ht_array *(*compare)(ht_scope *, ht_array *, ht_array *), int64_t n, int64_t m,
                          int64_t k) {
    ht_array *column = sequence(s, 0.0, 1.0, m, HT_I64), *row = sequence(s, (double)k, 1.0, n, HT_I64);
    return compare(s, column, ht_expand_dims(s, row, 1));
}

ht_array *ht_eye(ht_scope *s, int64_t n, int64_t m, int64_t k, ht_dtype dtype) {
    return ht_astype(s, triangle(s, ht_equal, n, m, k), dtype);
}
ht_array *ht_tri(ht_scope *s, int64_t n, int64_t m, int64_t k, ht_dtype dtype) {
    return ht_astype(s, triangle(s, ht_less_equal, n, m, k), dtype);
}

HT_REPLAY(kept_again, (a->number[0] ? ht_tril : ht_triu)(s, in[0], a->number[1]))

static ht_array *kept(ht_scope *s, ht_array *(*compare)(ht_scope *, ht_array *, ht_array *), const char *name,
                      ht_array *x, int64_t k) {
    if (!x) return NULL;
    if (ht_recording())
        return ht_record_plain(s, kept_again, (ht_plain_args){.number = {compare == ht_less_equal, k}}, &x, 1);
    if (x->n_dims < 2)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: needs matrices, got a %d-dimensional array", name, x->n_dims);
    ht_array *mask = triangle(s, compare, x->shape[x->n_dims - 2], x->shape[x->n_dims - 1], k);
    return ht_where(s, mask, x, ht_full(s, 0.0, x->dtype, NULL, 0));
}
ht_array *ht_tril(ht_scope *s, ht_array *x, int64_t k) { return kept(s, ht_less_equal, "tril", x, k); }
ht_array *ht_triu(ht_scope *s, ht_array *x, int64_t k) { return kept(s, ht_greater_equal, "triu", x, k); }

ht_array *ht_astype(ht_scope *s, ht_array *x, ht_dtype dtype) {
    if (x && x->dtype == dtype) return x;
    const ht_make_params p = {.dtype = dtype};
    return ht_apply(s, HT_OP_CAST, &p, &x, 1);
}

HT_REPLAY(contiguous_again, ht_contiguous(s, in[0]))

ht_array *ht_contiguous(ht_scope *s, ht_array *x) {
    if (x && ht_recording()) return ht_record_plain(s, contiguous_again, (ht_plain_args){.number = {0}}, &x, 1);
    if (x && ht_array_is_contiguous(x)) return x;
    return ht_apply(s, HT_OP_COPY, NULL, &x, 1);
}
