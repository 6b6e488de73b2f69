/* Functions of f32, f16 and bf16 in lanes: what inference is made of, with the bits of base/math.h. */
#include "cpu/vector/each.h"
#include "cpu/vector/math_lanes.h"

/* Four at a time where a function is few instructions, of which the loop's own would be a large part. */
#if defined(__clang__)
#define FOUR_TIMES _Pragma("clang loop unroll_count(4)")
#else
#define FOUR_TIMES _Pragma("GCC unroll 4")
#endif
#define ONCE
#define FOR_LANES(times, n)                                                                                            \
    int64_t i = 0;                                                                                                     \
    times for (; i + 16 <= n; i += 16)

#define UNARY_OF(name, kind, type, suffix, parameter, times)                                                           \
    static void name##_##kind(const void *const *in, void *out, int64_t n, const void *params) {                       \
        (void)params;                                                                                                  \
        const type *a = in[0];                                                                                         \
        type *y = out;                                                                                                 \
        v16f p = v16f_set1(parameter);                                                                                 \
        FOR_LANES(times, n) v16f_store##suffix(y + i, name##_lanes(v16f_load##suffix(a + i), p));                      \
        int left = (int)(n - i);                                                                                       \
        if (left) v16f_store##suffix##_n(y + i, name##_lanes(v16f_load##suffix##_n(a + i, left), p), left);            \
    }

#define BINARY_OF(name, kind, type, suffix, times)                                                                     \
    static void name##_##kind(const void *const *in, void *out, int64_t n, const void *params) {                       \
        (void)params;                                                                                                  \
        const type *a = in[0], *b = in[1];                                                                             \
        type *y = out;                                                                                                 \
        FOR_LANES(times, n)                                                                                            \
        v16f_store##suffix(y + i, name##_lanes(v16f_load##suffix(a + i), v16f_load##suffix(b + i)));                   \
        int left = (int)(n - i);                                                                                       \
        if (left)                                                                                                      \
            v16f_store##suffix##_n(                                                                                    \
                y + i, name##_lanes(v16f_load##suffix##_n(a + i, left), v16f_load##suffix##_n(b + i, left)), left);    \
    }

#define UNARY_TIMES(name, parameter, times, expression)                                                                \
    HT_INLINE v16f name##_lanes(v16f x, v16f p) {                                                                      \
        (void)p;                                                                                                       \
        return expression;                                                                                             \
    }                                                                                                                  \
    UNARY_OF(name, f32, float, , parameter, times)                                                                     \
    UNARY_OF(name, f16, uint16_t, _f16, parameter, times)                                                              \
    UNARY_OF(name, bf16, uint16_t, _bf16, parameter, times)
#define UNARY(name, parameter, expression)  UNARY_TIMES(name, parameter, ONCE, expression)
#define SIMPLE(name, parameter, expression) UNARY_TIMES(name, parameter, FOUR_TIMES, expression)

/* With a function of its own for f16. */
#define UNARY_HALF(name, half, expression)                                                                             \
    HT_INLINE v16f name##_lanes(v16f x, v16f p) { return (void)p, expression; }                                        \
    HT_INLINE v16f name##_half_lanes(v16f x, v16f p) { return (void)p, half; }                                         \
    UNARY_OF(name, f32, float, , 0.0f, ONCE)                                                                           \
    UNARY_OF(name##_half, f16, uint16_t, _f16, 0.0f, ONCE)                                                             \
    UNARY_OF(name, bf16, uint16_t, _bf16, 0.0f, ONCE)

#define BINARY_TIMES(name, times, expression)                                                                          \
    HT_INLINE v16f name##_lanes(v16f a, v16f b) { return expression; }                                                 \
    BINARY_OF(name, f32, float, , times)                                                                               \
    BINARY_OF(name, f16, uint16_t, _f16, times)                                                                        \
    BINARY_OF(name, bf16, uint16_t, _bf16, times)
#define BINARY(name, expression)        BINARY_TIMES(name, ONCE, expression)
#define SIMPLE_BINARY(name, expression) BINARY_TIMES(name, FOUR_TIMES, expression)

static float value_of(const void *params) { return ((const ht_scale_params *)params)->value; }

SIMPLE(negative, 0.0f, v16f_neg(x))
SIMPLE(abs, 0.0f, v16f_abs(x))
SIMPLE(square, 0.0f, v16f_mul(x, x))
SIMPLE(sqrt, 0.0f, v16f_sqrt(x))
UNARY(rsqrt, 1.0f, v16f_div(p, v16f_sqrt(x)))
UNARY(reciprocal, 1.0f, v16f_div(p, x))
UNARY(exp, 0.0f, v16f_exp(x))
UNARY_HALF(log, v16f_log_half(x), v16f_log(x))
UNARY(tanh, 0.0f, v16f_tanh(x))
UNARY(sigmoid, 0.0f, v16f_sigmoid(x))
UNARY(silu, 0.0f, v16f_silu(x))
UNARY(gelu_tanh, 0.0f, v16f_gelu_tanh(x))
UNARY_HALF(expm1, v16f_expm1_half(x), v16f_expm1(x))
UNARY_HALF(log2, v16f_log2_half(x), v16f_log2(x))
UNARY_HALF(log10, v16f_log10_half(x), v16f_log10(x))
UNARY(log1p, 0.0f, v16f_log1p(x))
UNARY_HALF(tan, v16f_tan_half(x), v16f_tan(x))
UNARY_HALF(arcsin, v16f_asin_half(x), v16f_asin(x))
UNARY_HALF(arccos, v16f_acos_half(x), v16f_acos(x))
UNARY_HALF(arctan, v16f_atan_half(x), v16f_atan(x))
UNARY_HALF(sinh, v16f_sinh_half(x), v16f_sinh(x))
UNARY_HALF(cosh, v16f_cosh_half(x), v16f_cosh(x))
HT_INLINE v16f sin_half_lanes(v16f x, v16f p) { return (void)p, v16f_sin_half(x); }
HT_INLINE v16f cos_half_lanes(v16f x, v16f p) { return (void)p, v16f_cos_half(x); }
UNARY_OF(sin_half, f16, uint16_t, _f16, 0.0f, ONCE)
UNARY_OF(cos_half, f16, uint16_t, _f16, 0.0f, ONCE)
SIMPLE(scale, value_of(params), v16f_mul(x, p))
UNARY(softcap, value_of(params), v16f_mul(p, v16f_tanh(v16f_div(x, p))))
SIMPLE_BINARY(add, v16f_add(a, b))
SIMPLE_BINARY(subtract, v16f_sub(a, b))
SIMPLE_BINARY(multiply, v16f_mul(a, b))
SIMPLE_BINARY(divide, v16f_div(a, b))
/* A NaN on the right comes out by itself, one on the left is put back. */
SIMPLE_BINARY(minimum, v16f_select(v16f_is_nan(a), a, v16f_min(a, b)))
SIMPLE_BINARY(maximum, v16f_select(v16f_is_nan(a), a, v16f_max(a, b)))

BINARY(arctan2, v16f_atan2(a, b))
BINARY(power, v16f_pow(a, b))

/* Exponents are mostly one number, and the two that have a way of their own are worth looking for it. */
static bool all_are(float value, const float *x, int64_t n) {
    uint32_t differ = 0;
    for (int64_t i = 0; i < n; i++) differ |= ht_float_bits(x[i]) ^ ht_float_bits(value);
    return !differ;
}
HT_INLINE v16f power_half_lanes(v16f x, v16f p) { return (void)p, v16f_pow_half(x); }
UNARY_OF(power_half, f32, float, , 0.0f, ONCE)
static void any_power_f32(const void *const *in, void *out, int64_t n, const void *params) {
    const float *b = in[1];
    if (b[0] == 2.0f && all_are(2.0f, b, n))
        square_f32(in, out, n, params);
    else if (b[0] == 0.5f && all_are(0.5f, b, n))
        power_half_f32(in, out, n, params);
    else
        power_f32(in, out, n, params);
}

#define ROW(id, name)                                                                                                  \
    case HT_OP_##id:                                                                                                   \
        return from == HT_F32 ? name##_f32 : from == HT_F16 ? name##_f16 : name##_bf16
#define ROW_HALF(id, name)                                                                                             \
    case HT_OP_##id: return from == HT_F32 ? name##_f32 : from == HT_F16 ? name##_half_f16 : name##_bf16

ht_each_fn *HT_ISA_NAME(ht_find_each_lanes)(ht_op_id op, ht_dtype from, ht_dtype to) {
    if (from != to || !lanes_take(from)) return NULL;
    switch (op) {
    case HT_OP_POWER: return from == HT_F32 ? any_power_f32 : from == HT_F16 ? power_f16 : power_bf16;
    case HT_OP_SIN: return from == HT_F16 ? sin_half_f16 : NULL;
    case HT_OP_COS:
        return from == HT_F16 ? cos_half_f16 : NULL;
        ROW(NEGATIVE, negative);
        ROW(ABS, abs);
        ROW(SQUARE, square);
        ROW(SQRT, sqrt);
        ROW(RSQRT, rsqrt);
        ROW(RECIPROCAL, reciprocal);
        ROW(EXP, exp);
        ROW_HALF(LOG, log);
        ROW(TANH, tanh);
        ROW(SIGMOID, sigmoid);
        ROW(SILU, silu);
        ROW(GELU_TANH, gelu_tanh);
        ROW(SCALE, scale);
        ROW(SOFTCAP, softcap);
        ROW_HALF(EXPM1, expm1);
        ROW_HALF(LOG2, log2);
        ROW_HALF(LOG10, log10);
        ROW(LOG1P, log1p);
        ROW_HALF(TAN, tan);
        ROW_HALF(ARCSIN, arcsin);
        ROW_HALF(ARCCOS, arccos);
        ROW_HALF(ARCTAN, arctan);
        ROW_HALF(SINH, sinh);
        ROW_HALF(COSH, cosh);
        ROW(ARCTAN2, arctan2);
        ROW(ADD, add);
        ROW(SUBTRACT, subtract);
        ROW(MULTIPLY, multiply);
        ROW(DIVIDE, divide);
        ROW(MINIMUM, minimum);
        ROW(MAXIMUM, maximum);
    default: return NULL;
    }
}
