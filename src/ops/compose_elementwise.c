/* Compositions of elementwise operations. */
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <float.h>
#include <math.h>

#define PI 3.14159265358979323846

ht_array *ht_widened(ht_scope *s, ht_array *x) {
    bool narrow = x && x != HT_NONE && (x->dtype == HT_F16 || x->dtype == HT_BF16);
    return narrow ? ht_astype(s, x, HT_F32) : x;
}

/* Defines a composition of one operand by an expression of x, the operand in f32 or better. */
#define RULE(name, expression)                                                                                         \
    ht_array *ht_compose_##name(ht_scope *s, const void *params, ht_array *const *in) {                                \
        ht_array *x = ht_widened(s, in[0]);                                                                            \
        (void)params;                                                                                                  \
        return x ? ht_astype(s, (expression), in[0]->dtype) : NULL;                                                    \
    }

#define MUL(a, b)   ht_multiply(s, a, b)
#define TIMES(a, c) ht_times(s, a, c)
#define PLUS(a, c)  ht_plus(s, a, c)
#define CONSTANT(c) ht_constant_like(s, x, c)

/* ---- numbers ---- */

static ht_array *sign(ht_scope *s, ht_array *x) {
    if (!ht_dtype_is_float(x->dtype) && !ht_dtype_is_signed(x->dtype)) return ht_not_equal(s, x, CONSTANT(0));
    ht_array *below = ht_where(s, ht_less(s, x, CONSTANT(0)), CONSTANT(-1), CONSTANT(0));
    return ht_where(s, ht_less(s, CONSTANT(0), x), CONSTANT(1), below);
}

RULE(sign, sign(s, x))
RULE(square, MUL(x, x))
RULE(reciprocal, ht_divide(s, CONSTANT(1), x))
RULE(rsqrt, ht_reciprocal(s, ht_sqrt(s, x)))

/* ---- activations ---- */

/* e^-|x| / (1 + e^-|x|) or 1 / (1 + e^-|x|), as 1 / (1 + e^-x) would have no finite derivative where e^-x overflows. */
static ht_array *sigmoid(ht_scope *s, ht_array *x) {
    ht_array *right = ht_greater_equal(s, x, CONSTANT(0));
    ht_array *e = ht_exp(s, ht_where(s, right, ht_negative(s, x), x));
    return ht_divide(s, ht_where(s, right, CONSTANT(1), e), PLUS(e, 1.0));
}

/* 0.5 (1 + tanh u) = sigmoid(2 u), which loses no digits for u < 0. */
static ht_array *gelu_tanh(ht_scope *s, ht_array *x) {
    const double a = 2.0 * sqrt(2.0 / PI);
    return MUL(x, ht_sigmoid(s, MUL(x, PLUS(TIMES(ht_square(s, x), a * 0.044715), a))));
}

RULE(sigmoid, sigmoid(s, x))
RULE(silu, MUL(x, ht_sigmoid(s, x)))
RULE(gelu, MUL(TIMES(x, 0.5), PLUS(ht_erf(s, TIMES(x, sqrt(0.5))), 1.0)))
RULE(gelu_tanh, gelu_tanh(s, x))

static double value_of(const void *params) { return (double)((const ht_scale_params *)params)->value; }
RULE(scale, TIMES(x, value_of(params)))
RULE(softcap, TIMES(ht_tanh(s, ht_divide(s, x, CONSTANT(value_of(params)))), value_of(params)))

/* With high >= low: high + log(1 + e^(low - high)), a function of both for derivatives of any order, also where they are
 * equal. Equal infinities, which have no difference, are the result. */
ht_array *ht_compose_logaddexp(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *a = ht_widened(s, in[0]), *b = ht_widened(s, in[1]);
    (void)params;
    if (!a || !b) return NULL;
    ht_array *ordered = ht_greater_equal(s, a, b);
    ht_array *high = ht_where(s, ordered, a, b), *low = ht_where(s, ordered, b, a), *gap = ht_subtract(s, low, high);
    ht_array *infinite = ht_logical_and(s, ht_isnan(s, gap), ht_equal(s, low, high));
    gap = ht_where(s, infinite, ht_constant_like(s, a, 0), gap);
    return ht_astype(s, ht_add(s, high, ht_log1p(s, ht_exp(s, gap))), in[0]->dtype);
}

/* ---- tests ---- */

ht_array *ht_compose_is_inf(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *x = in[0];
    (void)params;
    if (!ht_dtype_is_float(x->dtype)) return ht_full_like(s, x, 0, HT_BOOL);
    return ht_equal(s, ht_abs(s, x), CONSTANT((double)INFINITY));
}

ht_array *ht_compose_is_finite(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *x = in[0];
    (void)params;
    if (!ht_dtype_is_float(x->dtype)) return ht_full_like(s, x, 1, HT_BOOL);
    return ht_less(s, ht_abs(s, x), CONSTANT((double)INFINITY));
}

static double largest_of(ht_dtype t) {
    return t == HT_F16 ? 65504.0 : t == HT_BF16 ? 0x1.fep+127 : t == HT_F32 ? (double)FLT_MAX : DBL_MAX;
}

/* In the dtype of x itself: finite elements keep their bits. */
ht_array *ht_compose_nan_to_num(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_nan_to_num_params *p = params;
    ht_array *x = in[0];
    const double infinity = (double)INFINITY, largest = largest_of(x->dtype);
    const double high = isnan(p->posinf) ? largest : p->posinf, low = isnan(p->neginf) ? -largest : p->neginf;
    ht_array *y = ht_where(s, ht_isnan(s, x), CONSTANT(p->nan), x);
    y = ht_where(s, ht_equal(s, x, CONSTANT(infinity)), CONSTANT(high), y);
    return ht_where(s, ht_equal(s, x, CONSTANT(-infinity)), CONSTANT(low), y);
}
