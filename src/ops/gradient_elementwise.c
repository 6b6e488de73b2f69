/* Reverse rules of elementwise operations of one operand: the gradient times the derivative, written in x and y = f(x). */
#include "ops/gradient.h"

#include <math.h>

#define PI 3.14159265358979323846

bool ht_vjp_none(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    (void)s, (void)node, (void)grad, (void)grad_in;
    return true;
}

bool ht_vjp_copy(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    (void)s, (void)node;
    grad_in[0] = grad;
    return true;
}

bool ht_vjp_cast(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_array *x = node->in[0];
    if (ht_dtype_is_float(x->dtype) && ht_dtype_is_float(node->dtype)) grad_in[0] = ht_astype(s, grad, x->dtype);
    return grad_in[0] != NULL;
}

/* The gradient of the input is the expression, of g, x and y. */
#define RULE(name, expression)                                                                                         \
    bool ht_vjp_##name(ht_scope *s, const ht_array *node, ht_array *g, ht_array **grad_in) {                           \
        ht_array *x = node->in[0], *y = ht_output(node);                                                               \
        (void)x, (void)y;                                                                                              \
        grad_in[0] = (expression);                                                                                     \
        return grad_in[0] != NULL;                                                                                     \
    }

#define MUL(a, b)   ht_multiply(s, a, b)
#define DIV(a, b)   ht_divide(s, a, b)
#define TIMES(a, c) ht_times(s, a, c)
#define PLUS(a, c)  ht_plus(s, a, c)

/* 1 - a */
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

/* f'(x) of x sigma(x) is sigma + y (1 - sigma). */
static ht_array *silu_slope(ht_scope *s, ht_array *x, ht_array *y) {
    ht_array *sigma = ht_sigmoid(s, x);
    return ht_add(s, sigma, MUL(y, one_minus(s, sigma)));
}
RULE(silu, MUL(g, silu_slope(s, x, y)))

/* Of x Phi(x), Phi the normal distribution: Phi(x) + x phi(x). */
static ht_array *gelu_slope(ht_scope *s, ht_array *x) {
    ht_array *distribution = TIMES(PLUS(ht_erf(s, TIMES(x, sqrt(0.5))), 1.0), 0.5);
    ht_array *density = TIMES(ht_exp(s, TIMES(ht_square(s, x), -0.5)), 1.0 / sqrt(2.0 * PI));
    return ht_add(s, distribution, MUL(x, density));
}
RULE(gelu, MUL(g, gelu_slope(s, x)))

/* Of 0.5 x (1 + t), t = tanh(u), u = sqrt(2/pi) (x + 0.044715 x^3): 0.5 (1 + t) + 0.5 x (1 - t^2) u'. */
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
