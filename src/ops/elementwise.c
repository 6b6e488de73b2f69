/* One value in, one value out: unary and broadcast binary operations. */
#include "base/error.h"
#include "ops/op.h"

#include <hearth/ops.h>

#include <string.h>

static ht_status same_as(const ht_array *x, ht_result_type *out) {
    out->dtype = x->dtype;
    out->n_dims = x->n_dims;
    memcpy(out->shape, x->shape, sizeof out->shape);
    return HT_OK;
}

ht_status ht_shape_unary(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                         ht_error *err) {
    (void)n_in;
    (void)params;
    if (!ht_is_float(in[0]->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a floating-point array, got %s; cast it first", op,
                       ht_dtype_name(in[0]->dtype));
    return same_as(in[0], out);
}

ht_status ht_shape_any_unary(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                             ht_error *err) {
    (void)n_in;
    (void)params;
    if (in[0]->dtype == HT_BOOL) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs numbers, got bool", op);
    return same_as(in[0], out);
}

bool ht_broadcast_shapes(const ht_array *a, const ht_array *b, int64_t *shape, int *n_dims) {
    int n = a->n_dims > b->n_dims ? a->n_dims : b->n_dims;
    for (int i = 0; i < n; i++) {
        int ia = i - (n - a->n_dims), ib = i - (n - b->n_dims);
        int64_t da = ia < 0 ? 1 : a->shape[ia], db = ib < 0 ? 1 : b->shape[ib];
        if (da != db && da != 1 && db != 1) return false;
        shape[i] = da == 1 ? db : da;
    }
    *n_dims = n;
    return true;
}

ht_status ht_shape_binary(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                          ht_error *err) {
    (void)n_in;
    (void)params;
    char a[HT_SHAPE_TEXT], b[HT_SHAPE_TEXT];
    if (in[0]->dtype != in[1]->dtype)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: operands are %s and %s; cast one of them", op,
                       ht_dtype_name(in[0]->dtype), ht_dtype_name(in[1]->dtype));
    if (in[0]->dtype == HT_BOOL) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs numbers, got bool", op);
    if (!ht_broadcast_shapes(in[0], in[1], out->shape, &out->n_dims))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: shapes %s and %s do not broadcast", op,
                       ht_shape_text(in[0]->shape, in[0]->n_dims, a), ht_shape_text(in[1]->shape, in[1]->n_dims, b));
    out->dtype = in[0]->dtype;
    return HT_OK;
}

#define UNARY(name, id)                                                                                                \
    ht_array *name(ht_scope *s, ht_array *x) { return ht_apply(s, HT_OP_##id, NULL, &x, 1); }

UNARY(ht_neg, NEG)
UNARY(ht_abs, ABS)
UNARY(ht_square, SQUARE)
UNARY(ht_sqrt, SQRT)
UNARY(ht_rsqrt, RSQRT)
UNARY(ht_exp, EXP)
UNARY(ht_log, LOG)
UNARY(ht_sin, SIN)
UNARY(ht_cos, COS)
UNARY(ht_tanh, TANH)
UNARY(ht_sigmoid, SIGMOID)
UNARY(ht_silu, SILU)
UNARY(ht_gelu_tanh, GELU_TANH)

ht_array *ht_scale(ht_scope *s, ht_array *x, float value) {
    const ht_scale_params p = {value};
    return ht_apply(s, HT_OP_SCALE, &p, &x, 1);
}

ht_array *ht_softcap(ht_scope *s, ht_array *x, float value) {
    const ht_scale_params p = {value};
    return ht_apply(s, HT_OP_SOFTCAP, &p, &x, 1);
}

/* Kernels take operands of the result's shape, so both are stretched first; a view that stretches nothing is not made. */
static ht_array *stretched(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims) {
    bool same = x->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) same = x->shape[i] == shape[i];
    return same ? x : ht_broadcast_to(s, x, shape, n_dims);
}

static ht_array *binary(ht_scope *s, ht_op_id op, ht_array *a, ht_array *b) {
    int64_t shape[HT_MAX_DIMS];
    int n_dims;
    if (!a || !b) return NULL;
    if (ht_broadcast_shapes(a, b, shape, &n_dims)) {
        a = stretched(s, a, shape, n_dims);
        b = stretched(s, b, shape, n_dims);
    }
    return ht_apply(s, op, NULL, (ht_array *[]){a, b}, 2);
}

#define BINARY(name, id)                                                                                               \
    ht_array *name(ht_scope *s, ht_array *a, ht_array *b) { return binary(s, HT_OP_##id, a, b); }

BINARY(ht_add, ADD)
BINARY(ht_sub, SUB)
BINARY(ht_mul, MUL)
BINARY(ht_div, DIV)
BINARY(ht_minimum, MINIMUM)
BINARY(ht_maximum, MAXIMUM)
