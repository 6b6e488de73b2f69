/* Elementary functions of f64 in lanes, with the bits of base/math_double.h. */
#include "cpu/vector/each.h"
#include "cpu/vector/math_double.h"

#define UNARY(name, parameter, expression)                                                                             \
    HT_INLINE v8d name##_lanes(v8d x, v8d p) {                                                                         \
        (void)p;                                                                                                       \
        return expression;                                                                                             \
    }                                                                                                                  \
    static void name(const void *const *in, void *out, int64_t n, const void *params) {                                \
        (void)params;                                                                                                  \
        const double *a = in[0];                                                                                       \
        double *y = out;                                                                                               \
        const v8d p = v8d_set1(parameter);                                                                             \
        int64_t i = 0;                                                                                                 \
        for (; i + 8 <= n; i += 8) v8d_store(y + i, name##_lanes(v8d_load(a + i), p));                                 \
        const int left = (int)(n - i);                                                                                 \
        if (left) v8d_store_n(y + i, name##_lanes(v8d_load_n(a + i, left), p), left);                                  \
    }

#define BINARY(name, expression)                                                                                       \
    HT_INLINE v8d name##_lanes(v8d a, v8d b) { return expression; }                                                    \
    static void name(const void *const *in, void *out, int64_t n, const void *params) {                                \
        (void)params;                                                                                                  \
        const double *a = in[0], *b = in[1];                                                                           \
        double *y = out;                                                                                               \
        int64_t i = 0;                                                                                                 \
        for (; i + 8 <= n; i += 8) v8d_store(y + i, name##_lanes(v8d_load(a + i), v8d_load(b + i)));                   \
        const int left = (int)(n - i);                                                                                 \
        if (left) v8d_store_n(y + i, name##_lanes(v8d_load_n(a + i, left), v8d_load_n(b + i, left)), left);            \
    }

static double value_of(const void *params) { return (double)((const ht_scale_params *)params)->value; }

UNARY(exponential, 0.0, v8d_exp(x))
UNARY(exponential_less_one, 0.0, v8d_expm1(x))
UNARY(hyperbolic_sine, 0.0, v8d_sinh(x))
UNARY(hyperbolic_cosine, 0.0, v8d_cosh(x))
UNARY(hyperbolic_tangent, 0.0, v8d_tanh(x))
UNARY(softcap, value_of(params), v8d_mul(p, v8d_tanh(v8d_div(x, p))))
UNARY(sigmoid, 0.0, v8d_sigmoid(x))
UNARY(silu, 0.0, v8d_silu(x))
UNARY(gelu_tanh, 0.0, v8d_gelu_tanh(x))
UNARY(logarithm, 0.0, v8d_log(x))
UNARY(logarithm_2, 0.0, v8d_log2(x))
UNARY(logarithm_10, 0.0, v8d_log10(x))
UNARY(logarithm_of_one_more, 0.0, v8d_log1p(x))
UNARY(sine, 0.0, v8d_sin(x))
UNARY(cosine, 0.0, v8d_cos(x))
UNARY(tangent, 0.0, v8d_tan(x))
UNARY(arcsine, 0.0, v8d_asin(x))
UNARY(arccosine, 0.0, v8d_acos(x))
UNARY(arctangent, 0.0, v8d_atan(x))
BINARY(sum_of_exponentials, v8d_logaddexp(a, b))
BINARY(arctangent_of_two, v8d_atan2(a, b))
BINARY(power, v8d_pow(a, b))
UNARY(square, 0.0, v8d_mul(x, x))
UNARY(power_half, 0.0, v8d_pow_half(x))

/* Exponents are mostly one number, and the two that have a way of their own are worth looking for it. */
static bool all_are(double value, const double *x, int64_t n) {
    uint64_t differ = 0;
    for (int64_t i = 0; i < n; i++) differ |= ht_double_bits(x[i]) ^ ht_double_bits(value);
    return !differ;
}
static void any_power(const void *const *in, void *out, int64_t n, const void *params) {
    const double *b = in[1];
    if (b[0] == 2.0 && all_are(2.0, b, n))
        square(in, out, n, params);
    else if (b[0] == 0.5 && all_are(0.5, b, n))
        power_half(in, out, n, params);
    else
        power(in, out, n, params);
}

#define ROW(id, name)                                                                                                  \
    case HT_OP_##id: return name

ht_each_fn *HT_ISA_NAME(ht_find_each_double)(ht_op_id op, ht_dtype from, ht_dtype to) {
    if (from != HT_F64 || to != HT_F64) return NULL;
    switch (op) {
        ROW(EXP, exponential);
        ROW(EXPM1, exponential_less_one);
        ROW(SINH, hyperbolic_sine);
        ROW(COSH, hyperbolic_cosine);
        ROW(TANH, hyperbolic_tangent);
        ROW(SOFTCAP, softcap);
        ROW(SIGMOID, sigmoid);
        ROW(SILU, silu);
        ROW(GELU_TANH, gelu_tanh);
        ROW(LOG, logarithm);
        ROW(LOG2, logarithm_2);
        ROW(LOG10, logarithm_10);
        ROW(LOG1P, logarithm_of_one_more);
        ROW(SIN, sine);
        ROW(COS, cosine);
        ROW(TAN, tangent);
        ROW(ARCSIN, arcsine);
        ROW(ARCCOS, arccosine);
        ROW(ARCTAN, arctangent);
        ROW(LOGADDEXP, sum_of_exponentials);
        ROW(ARCTAN2, arctangent_of_two);
        ROW(POWER, any_power);
    default: return NULL;
    }
}
