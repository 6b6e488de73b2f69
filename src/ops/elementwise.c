/* Unary elementwise operations; result dtypes are MLX's. */
#include "array/op.h"
#include "base/error.h"
#include "ops/gradient.h"

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

ht_status ht_shape_same(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    (void)err;
    return ht_result_like(c->in[0], c->in[0]->dtype, out);
}

ht_status ht_shape_float(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    if (!ht_dtype_is_float(c->in[0]->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a floating-point array, got %s; cast it first", c->op,
                       ht_dtype_name(c->in[0]->dtype));
    return ht_result_like(c->in[0], c->in[0]->dtype, out);
}

ht_status ht_shape_test(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    (void)err;
    return ht_result_like(c->in[0], HT_BOOL, out);
}

/* ---- operations that keep the dtype ---- */

static ht_array *apply(ht_scope *s, ht_op_id op, ht_array *x) { return ht_apply(s, op, NULL, &x, 1); }

static ht_array *refuse(ht_scope *s, ht_op_id op, const ht_array *x, const char *instead) {
    return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: not defined for %s; %s", ht_op_name(op), ht_dtype_name(x->dtype),
                         instead);
}

ht_array *ht_negative(ht_scope *s, ht_array *x) {
    if (x && x->dtype == HT_BOOL) return refuse(s, HT_OP_NEGATIVE, x, "use logical_not");
    return apply(s, HT_OP_NEGATIVE, x);
}

/* True for dtypes without negative values: bool and unsigned integers. */
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

/* ---- operations with floating-point results ---- */

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

/* ---- predicates ---- */

/* A predicate on floating-point numbers; constant for integers, which are all finite. */
static ht_array *test(ht_scope *s, ht_op_id op, ht_array *x) {
    if (!x || ht_dtype_is_float(x->dtype)) return apply(s, op, x);
    return ht_full_like(s, x, op == HT_OP_IS_FINITE, HT_BOOL);
}
ht_array *ht_isnan(ht_scope *s, ht_array *x) { return test(s, HT_OP_IS_NAN, x); }
ht_array *ht_isinf(ht_scope *s, ht_array *x) { return test(s, HT_OP_IS_INF, x); }
ht_array *ht_isfinite(ht_scope *s, ht_array *x) { return test(s, HT_OP_IS_FINITE, x); }

ht_array *ht_logical_not(ht_scope *s, ht_array *x) { return apply(s, HT_OP_LOGICAL_NOT, ht_astype(s, x, HT_BOOL)); }

/* ---- operations with a constant ---- */

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

/* ---- reverse rules ---- */

/* The gradient of x is the gradient g of y = f(x) times f'(x), written in x and y. */

#define PI 3.14159265358979323846

void ht_vjp_none(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    (void)s, (void)node, (void)grad, (void)grad_in;
}

void ht_vjp_copy(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    (void)s, (void)node;
    grad_in[0] = grad;
}

void ht_vjp_cast(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_array *x = node->in[0];
    if (ht_dtype_is_float(x->dtype) && ht_dtype_is_float(node->dtype)) grad_in[0] = ht_astype(s, grad, x->dtype);
}

/* Defines a rule by the input's gradient, an expression of g, x and y. */
#define RULE(name, expression)                                                                                         \
    void ht_vjp_##name(ht_scope *s, const ht_array *node, ht_array *g, ht_array **grad_in) {                           \
        ht_array *x = node->in[0], *y = ht_node_output(node);                                                          \
        (void)x, (void)y;                                                                                              \
        grad_in[0] = (expression);                                                                                     \
    }

#define MUL(a, b)   ht_multiply(s, a, b)
#define DIV(a, b)   ht_divide(s, a, b)
#define TIMES(a, c) ht_times(s, a, c)
#define PLUS(a, c)  ht_plus(s, a, c)

static ht_array *one_minus(ht_scope *s, ht_array *a) { return ht_plus(s, ht_negative(s, a), 1.0); }

RULE(negative, ht_negative(s, g))
RULE(abs, MUL(g, ht_sign(s, x)))
RULE(square, MUL(g, TIMES(x, 2.0)))
RULE(sqrt, DIV(TIMES(g, 0.5), y))
RULE(rsqrt, DIV(MUL(TIMES(g, -0.5), y), x))
RULE(reciprocal, ht_negative(s, MUL(g, ht_square(s, y))))
RULE(exp, MUL(g, y))
RULE(expm1, MUL(g, PLUS(y, 1.0)))
RULE(log, DIV(g, x))
RULE(log2, DIV(g, TIMES(x, log(2.0))))
RULE(log10, DIV(g, TIMES(x, log(10.0))))
RULE(log1p, DIV(g, PLUS(x, 1.0)))
RULE(sin, MUL(g, ht_cos(s, x)))
RULE(cos, ht_negative(s, MUL(g, ht_sin(s, x))))
RULE(tan, MUL(g, PLUS(ht_square(s, y), 1.0)))
RULE(arcsin, MUL(g, ht_rsqrt(s, one_minus(s, ht_square(s, x)))))
RULE(arccos, ht_negative(s, MUL(g, ht_rsqrt(s, one_minus(s, ht_square(s, x))))))
RULE(arctan, DIV(g, PLUS(ht_square(s, x), 1.0)))
RULE(sinh, MUL(g, ht_cosh(s, x)))
RULE(cosh, MUL(g, ht_sinh(s, x)))
RULE(tanh, MUL(g, one_minus(s, ht_square(s, y))))
RULE(erf, MUL(g, TIMES(ht_exp(s, ht_negative(s, ht_square(s, x))), 2.0 / sqrt(PI))))
RULE(erfinv, MUL(g, TIMES(ht_exp(s, ht_square(s, y)), sqrt(PI) / 2.0)))
RULE(sigmoid, MUL(g, MUL(y, one_minus(s, y))))
RULE(nan_to_num, ht_where(s, ht_isfinite(s, x), g, ht_constant_like(s, g, 0.0)))

/* Derivative of y = x sigma(x): sigma + y (1 - sigma). */
static ht_array *silu_slope(ht_scope *s, ht_array *x, ht_array *y) {
    ht_array *sigma = ht_sigmoid(s, x);
    return ht_add(s, sigma, MUL(y, one_minus(s, sigma)));
}
RULE(silu, MUL(g, silu_slope(s, x, y)))

/* Derivative of x Phi(x): Phi(x) + x phi(x), Phi and phi the normal distribution and its density. */
static ht_array *gelu_slope(ht_scope *s, ht_array *x) {
    ht_array *distribution = TIMES(PLUS(ht_erf(s, TIMES(x, sqrt(0.5))), 1.0), 0.5);
    ht_array *density = TIMES(ht_exp(s, TIMES(ht_square(s, x), -0.5)), 1.0 / sqrt(2.0 * PI));
    return ht_add(s, distribution, MUL(x, density));
}
RULE(gelu, MUL(g, gelu_slope(s, x)))

/* Derivative of 0.5 x (1 + t), t = tanh(u), u = sqrt(2/pi) (x + 0.044715 x^3): 0.5 (1 + t) + 0.5 x (1 - t^2) u'. */
static ht_array *gelu_tanh_slope(ht_scope *s, ht_array *x) {
    const double a = sqrt(2.0 / PI), b = 0.044715;
    ht_array *square = ht_square(s, x);
    ht_array *t = ht_tanh(s, MUL(x, PLUS(TIMES(square, a * b), a)));
    ht_array *slope_u = PLUS(TIMES(square, 3.0 * a * b), a);
    ht_array *bent = MUL(MUL(x, one_minus(s, ht_square(s, t))), slope_u);
    return TIMES(ht_add(s, PLUS(t, 1.0), bent), 0.5);
}
RULE(gelu_tanh, MUL(g, gelu_tanh_slope(s, x)))

static float factor_of(const ht_array *node) { return ((const ht_scale_params *)(const void *)node->params)->value; }
RULE(scale, ht_scale(s, g, factor_of(node)))

static ht_array *drawn_slope(ht_scope *s, const ht_array *node, ht_array *x, ht_array *y) {
    switch (((const ht_drawn_params *)(const void *)node->params)->function) {
    case HT_DRAWN_LOG: return ht_reciprocal(s, x);
    case HT_DRAWN_LOG1P: return ht_reciprocal(s, PLUS(x, 1.0));
    case HT_DRAWN_ERF: return TIMES(ht_exp(s, ht_negative(s, ht_square(s, x))), 2.0 / sqrt(PI));
    case HT_DRAWN_ERFINV: return TIMES(ht_exp(s, ht_square(s, y)), sqrt(PI) / 2.0);
    }
    return NULL;
}
RULE(drawn, MUL(g, drawn_slope(s, node, x, y)))
RULE(softcap, MUL(g, one_minus(s, ht_square(s, ht_scale(s, y, 1.0f / factor_of(node))))))
