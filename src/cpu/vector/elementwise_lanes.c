/* Elementwise functions of f32, f16 and bf16 in lanes, bit-identical to base/math.h. */
#include "cpu/vector/elementwise_lanes.h"

#include "cpu/vector/elementwise.h"

/* Unrolls loops over short functions four times, to amortise the loop overhead. */
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

#define UNARY_TIMES(name, parameter, times)                                                                            \
    UNARY_OF(name, f32, float, , parameter, times)                                                                     \
    UNARY_OF(name, f16, uint16_t, _f16, parameter, times)                                                              \
    UNARY_OF(name, bf16, uint16_t, _bf16, parameter, times)
#define SIMPLE(id, name) UNARY_TIMES(name, 0.0f, FOUR_TIMES)
#define UNARY(id, name)                                                                                                \
    UNARY_OF(name, f32, float, , 0.0f, ONCE)                                                                           \
    THROUGH_F32(name, 1, HT_F32)

/* UNARY with a separate f16 function. */
#define UNARY_HALF(id, name)                                                                                           \
    UNARY_OF(name, f32, float, , 0.0f, ONCE)                                                                           \
    UNARY_OF(name##_half, f16, uint16_t, _f16, 0.0f, ONCE)                                                             \
    BF16_THROUGH_F32(name, 1, HT_F32)

#define SIMPLE_BINARY(id, name)                                                                                        \
    BINARY_OF(name, f32, float, , FOUR_TIMES)                                                                          \
    BINARY_OF(name, f16, uint16_t, _f16, FOUR_TIMES)                                                                   \
    BINARY_OF(name, bf16, uint16_t, _bf16, FOUR_TIMES)
#define BINARY(id, name)                                                                                               \
    BINARY_OF(name, f32, float, , ONCE)                                                                                \
    THROUGH_F32(name, 2, HT_F32)

static float value_of(const void *params) { return ((const ht_scale_params *)params)->value; }

/* X(id, name): operations, and their functions of lanes. */
#define FUNCTIONS(SIMPLE, UNARY, UNARY_HALF, SIMPLE_BINARY, BINARY)                                                    \
    SIMPLE(NEGATIVE, negative)                                                                                         \
    SIMPLE(ABS, abs)                                                                                                   \
    SIMPLE(SQUARE, square)                                                                                             \
    SIMPLE(SQRT, sqrt)                                                                                                 \
    UNARY(RSQRT, rsqrt)                                                                                                \
    UNARY(RECIPROCAL, reciprocal)                                                                                      \
    UNARY(EXP, exp)                                                                                                    \
    UNARY_HALF(LOG, log)                                                                                               \
    UNARY(TANH, tanh)                                                                                                  \
    UNARY(SIGMOID, sigmoid)                                                                                            \
    UNARY(SILU, silu)                                                                                                  \
    UNARY(GELU_TANH, gelu_tanh)                                                                                        \
    UNARY_HALF(EXPM1, expm1)                                                                                           \
    UNARY_HALF(LOG2, log2)                                                                                             \
    UNARY_HALF(LOG10, log10)                                                                                           \
    UNARY(LOG1P, log1p)                                                                                                \
    UNARY_HALF(TAN, tan)                                                                                               \
    UNARY_HALF(ARCSIN, arcsin)                                                                                         \
    UNARY_HALF(ARCCOS, arccos)                                                                                         \
    UNARY_HALF(ARCTAN, arctan)                                                                                         \
    UNARY_HALF(SINH, sinh)                                                                                             \
    UNARY_HALF(COSH, cosh)                                                                                             \
    SIMPLE_BINARY(ADD, add)                                                                                            \
    SIMPLE_BINARY(SUBTRACT, subtract)                                                                                  \
    SIMPLE_BINARY(MULTIPLY, multiply)                                                                                  \
    SIMPLE_BINARY(DIVIDE, divide)                                                                                      \
    SIMPLE_BINARY(MINIMUM, minimum)                                                                                    \
    SIMPLE_BINARY(MAXIMUM, maximum)                                                                                    \
    BINARY(ARCTAN2, arctan2)
FUNCTIONS(SIMPLE, UNARY, UNARY_HALF, SIMPLE_BINARY, BINARY)
UNARY_OF(sin_half, f16, uint16_t, _f16, 0.0f, ONCE)
UNARY_OF(cos_half, f16, uint16_t, _f16, 0.0f, ONCE)
UNARY_TIMES(scale, value_of(params), FOUR_TIMES)
UNARY_TIMES(softcap, value_of(params), ONCE)
BINARY(POWER, power)

/* Whether the block's exponents are all `value`: power has fast paths for constant exponents. */
static bool all_are(float value, const float *x, int64_t n) {
    uint32_t differ = 0;
    for (int64_t i = 0; i < n; i++) differ |= ht_float_bits(x[i]) ^ ht_float_bits(value);
    return !differ;
}
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
        return from == HT_F32 ? name##_f32 : from == HT_F16 ? name##_f16 : name##_bf16;
#define ROW_HALF(id, name)                                                                                             \
    case HT_OP_##id: return from == HT_F32 ? name##_f32 : from == HT_F16 ? name##_half_f16 : name##_bf16;

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_lanes)(ht_op_id op, ht_dtype from, ht_dtype to) {
    if (from != to || !lanes_supports(from)) return NULL;
    switch (op) {
    case HT_OP_POWER: return from == HT_F32 ? any_power_f32 : from == HT_F16 ? power_f16 : power_bf16;
    case HT_OP_SIN: return from == HT_F16 ? sin_half_f16 : NULL;
    case HT_OP_COS:
        return from == HT_F16 ? cos_half_f16 : NULL;
        FUNCTIONS(ROW, ROW, ROW_HALF, ROW, ROW)
        ROW(SCALE, scale)
        ROW(SOFTCAP, softcap)
    default: return NULL;
    }
}
