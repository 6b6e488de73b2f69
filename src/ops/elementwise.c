/* Elementwise operations of one operand, with the dtypes that MLX gives them. */
#include "base/error.h"
#include "ops/op.h"

#include <hearth/ops.h>

#include <math.h>
#include <string.h>

/* ---- shape rules ---- */

ht_status ht_result_like(const ht_array *x, ht_dtype dtype, ht_result_type *out) {
    out->dtype = dtype;
    out->n_dims = x->n_dims;
    memcpy(out->shape, x->shape, sizeof out->shape);
    return HT_OK;
}

ht_status ht_shape_same(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                        ht_error *err) {
    (void)op, (void)n_in, (void)params, (void)err;
    return ht_result_like(in[0], in[0]->dtype, out);
}

ht_status ht_shape_float(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                         ht_error *err) {
    (void)n_in, (void)params;
    if (!ht_dtype_is_float(in[0]->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a floating-point array, got %s; cast it first", op,
                       ht_dtype_name(in[0]->dtype));
    return ht_result_like(in[0], in[0]->dtype, out);
}

ht_status ht_shape_test(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                        ht_error *err) {
    (void)op, (void)n_in, (void)params, (void)err;
    return ht_result_like(in[0], HT_BOOL, out);
}

/* ---- any dtype to the same ---- */

static ht_array *apply(ht_scope *s, ht_op_id op, ht_array *x) { return ht_apply(s, op, NULL, &x, 1); }

static ht_array *refuse(ht_scope *s, ht_op_id op, const ht_array *x, const char *instead) {
    return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: not defined for %s; %s", ht_op_name(op), ht_dtype_name(x->dtype),
                         instead);
}

ht_array *ht_negative(ht_scope *s, ht_array *x) {
    if (x && x->dtype == HT_BOOL) return refuse(s, HT_OP_NEGATIVE, x, "use logical_not");
    return apply(s, HT_OP_NEGATIVE, x);
}

/* What is there already when a value cannot have a sign. */
static bool never_negative(const ht_array *x) { return !ht_dtype_is_float(x->dtype) && !ht_dtype_is_signed(x->dtype); }
ht_array *ht_abs(ht_scope *s, ht_array *x) { return x && never_negative(x) ? x : apply(s, HT_OP_ABS, x); }

ht_array *ht_sign(ht_scope *s, ht_array *x) { return apply(s, HT_OP_SIGN, x); }
ht_array *ht_square(ht_scope *s, ht_array *x) { return apply(s, HT_OP_SQUARE, x); }

static ht_array *to_whole(ht_scope *s, ht_op_id op, ht_array *x) {
    return x && !ht_dtype_is_float(x->dtype) ? x : apply(s, op, x);
}
ht_array *ht_floor(ht_scope *s, ht_array *x) { return to_whole(s, HT_OP_FLOOR, x); }
ht_array *ht_ceil(ht_scope *s, ht_array *x) { return to_whole(s, HT_OP_CEIL, x); }

ht_array *ht_round(ht_scope *s, ht_array *x, int decimals) {
    if (!x) return NULL;
    if (decimals == 0 || (decimals > 0 && !ht_dtype_is_float(x->dtype))) return to_whole(s, HT_OP_ROUND, x);
    ht_dtype dtype = ht_dtype_at_least_float(x->dtype);
    ht_array *factor = ht_full(s, pow(10.0, decimals < 0 ? -decimals : decimals), dtype, NULL, 0), *y;
    if (decimals > 0)
        y = ht_divide(s, apply(s, HT_OP_ROUND, ht_multiply(s, x, factor)), factor);
    else
        y = ht_multiply(s, apply(s, HT_OP_ROUND, ht_divide(s, x, factor)), factor);
    return ht_astype(s, y, x->dtype);
}

ht_array *ht_nan_to_num(ht_scope *s, ht_array *x, double nan, double posinf, double neginf) {
    if (x && !ht_dtype_is_float(x->dtype)) return x;
    const ht_nan_to_num_params p = {nan, posinf, neginf};
    return ht_apply(s, HT_OP_NAN_TO_NUM, &p, &x, 1);
}

ht_array *ht_bitwise_invert(ht_scope *s, ht_array *x) {
    if (!x) return NULL;
    if (x->dtype == HT_BOOL) return ht_logical_not(s, x);
    if (ht_dtype_is_float(x->dtype)) return refuse(s, HT_OP_BITWISE_INVERT, x, "it takes integers and bool");
    return apply(s, HT_OP_BITWISE_INVERT, x);
}

/* ---- to floating point ---- */

static ht_array *floating(ht_scope *s, ht_op_id op, ht_array *x) {
    return x ? apply(s, op, ht_astype(s, x, ht_dtype_at_least_float(x->dtype))) : NULL;
}

#define FLOATING(name, id)                                                                                             \
    ht_array *name(ht_scope *s, ht_array *x) { return floating(s, HT_OP_##id, x); }

FLOATING(ht_sqrt, SQRT)
FLOATING(ht_rsqrt, RSQRT)
FLOATING(ht_reciprocal, RECIPROCAL)
FLOATING(ht_exp, EXP)
FLOATING(ht_expm1, EXPM1)
FLOATING(ht_log, LOG)
FLOATING(ht_log2, LOG2)
FLOATING(ht_log10, LOG10)
FLOATING(ht_log1p, LOG1P)
FLOATING(ht_sin, SIN)
FLOATING(ht_cos, COS)
FLOATING(ht_tan, TAN)
FLOATING(ht_arcsin, ARCSIN)
FLOATING(ht_arccos, ARCCOS)
FLOATING(ht_arctan, ARCTAN)
FLOATING(ht_sinh, SINH)
FLOATING(ht_cosh, COSH)
FLOATING(ht_tanh, TANH)
FLOATING(ht_erf, ERF)
FLOATING(ht_erfinv, ERFINV)
FLOATING(ht_sigmoid, SIGMOID)
FLOATING(ht_silu, SILU)
FLOATING(ht_gelu, GELU)
FLOATING(ht_gelu_tanh, GELU_TANH)

/* ---- to bool ---- */

/* Integers are all finite. */
static ht_array *test(ht_scope *s, ht_op_id op, ht_array *x) {
    if (!x || ht_dtype_is_float(x->dtype)) return apply(s, op, x);
    return ht_full_like(s, x, op == HT_OP_IS_FINITE, HT_BOOL);
}
ht_array *ht_isnan(ht_scope *s, ht_array *x) { return test(s, HT_OP_IS_NAN, x); }
ht_array *ht_isinf(ht_scope *s, ht_array *x) { return test(s, HT_OP_IS_INF, x); }
ht_array *ht_isfinite(ht_scope *s, ht_array *x) { return test(s, HT_OP_IS_FINITE, x); }

ht_array *ht_logical_not(ht_scope *s, ht_array *x) { return apply(s, HT_OP_LOGICAL_NOT, ht_astype(s, x, HT_BOOL)); }

/* ---- with a constant ---- */

ht_array *ht_scale(ht_scope *s, ht_array *x, float value) {
    const ht_scale_params p = {value};
    return ht_apply(s, HT_OP_SCALE, &p, &x, 1);
}

ht_array *ht_softcap(ht_scope *s, ht_array *x, float value) {
    const ht_scale_params p = {value};
    return ht_apply(s, HT_OP_SOFTCAP, &p, &x, 1);
}

static ht_array *zero_of(ht_scope *s, const ht_array *x) { return x ? ht_full(s, 0.0, x->dtype, NULL, 0) : NULL; }

ht_array *ht_relu(ht_scope *s, ht_array *x) { return ht_maximum(s, x, zero_of(s, x)); }
ht_array *ht_softplus(ht_scope *s, ht_array *x) { return ht_logaddexp(s, x, zero_of(s, x)); }
