/* Elementwise floating-point functions, with the CPU's results. */
#ifndef HT_CUDA_ELEMENTWISE_CUH
#define HT_CUDA_ELEMENTWISE_CUH

#include "cuda/kernel.cuh"
#include "device/op_id.h"

/* X(operation, f32 function of x, f64 function): `half` says that x came from 16 bits. */
#define HT_UNARY_FUNCTIONS(X)                                                                                          \
    X(NEGATIVE, -x, -x)                                                                                                \
    X(ABS, fabsf(x), fabs(x))                                                                                          \
    X(SIGN, (float)((x > 0.0f) - (x < 0.0f)), (double)((x > 0.0) - (x < 0.0)))                                         \
    X(SQUARE, x *x, x *x)                                                                                              \
    X(SQRT, sqrtf(x), sqrt(x))                                                                                         \
    X(RSQRT, 1.0f / sqrtf(x), 1.0 / sqrt(x))                                                                           \
    X(RECIPROCAL, 1.0f / x, 1.0 / x)                                                                                   \
    X(EXP, ht_exp_f32(x), ht_exp_f64(x))                                                                               \
    X(EXPM1, half ? ht_expm1_half(x) : ht_expm1_f32(x), ht_expm1_f64(x))                                               \
    X(LOG, half ? ht_log_half(x) : ht_log_f32(x), ht_log_f64(x))                                                       \
    X(LOG2, half ? ht_log2_half(x) : ht_log2_f32(x), ht_log2_f64(x))                                                   \
    X(LOG10, half ? ht_log10_half(x) : ht_log10_f32(x), ht_log10_f64(x))                                               \
    X(LOG1P, ht_log1p_f32(x), ht_log1p_f64(x))                                                                         \
    X(SIN, half ? ht_sin_half(x) : ht_sin_f32(x), ht_sin_f64(x))                                                       \
    X(COS, half ? ht_cos_half(x) : ht_cos_f32(x), ht_cos_f64(x))                                                       \
    X(TAN, half ? ht_tan_half(x) : ht_tan_f32(x), ht_tan_f64(x))                                                       \
    X(ARCSIN, half ? ht_asin_half(x) : ht_asin_f32(x), ht_asin_f64(x))                                                 \
    X(ARCCOS, half ? ht_acos_half(x) : ht_acos_f32(x), ht_acos_f64(x))                                                 \
    X(ARCTAN, half ? ht_atan_half(x) : ht_atan_f32(x), ht_atan_f64(x))                                                 \
    X(SINH, half ? ht_sinh_half(x) : ht_sinh_f32(x), ht_sinh_f64(x))                                                   \
    X(COSH, half ? ht_cosh_half(x) : ht_cosh_f32(x), ht_cosh_f64(x))                                                   \
    X(TANH, ht_tanh_f32(x), ht_tanh_f64(x))                                                                            \
    X(ERF, ht_erf_f32(x), erf(x))                                                                                      \
    X(ERFINV, ht_erfinv_f32(x), ht_erfinv_f64(x))                                                                      \
    X(SIGMOID, ht_sigmoid_f32(x), ht_sigmoid_f64(x))                                                                   \
    X(SILU, ht_silu_f32(x), ht_silu_f64(x))                                                                            \
    X(GELU, ht_gelu_f32(x), 0.5 * x * erfc(-x * 0.70710678118654752440)) /* sqrt(1 / 2) */                             \
    X(GELU_TANH, ht_gelu_tanh_f32(x), ht_gelu_tanh_f64(x))                                                             \
    X(FLOOR, floorf(x), floor(x))                                                                                      \
    X(CEIL, ceilf(x), ceil(x))

/* Likewise of a and b. */
#define HT_BINARY_FUNCTIONS(X)                                                                                         \
    X(ADD, a + b, a + b)                                                                                               \
    X(SUBTRACT, a - b, a - b)                                                                                          \
    X(MULTIPLY, a *b, a *b)                                                                                            \
    X(DIVIDE, a / b, a / b)                                                                                            \
    X(MINIMUM, isnan(a) || a < b ? a : b, isnan(a) || a < b ? a : b)                                                   \
    X(MAXIMUM, isnan(a) || a > b ? a : b, isnan(a) || a > b ? a : b)                                                   \
    X(FLOOR_DIVIDE, floorf(a / b), floor(a / b))                                                                       \
    X(REMAINDER, ht_remainder_f32(a, b), ht_remainder_f64(a, b))                                                       \
    X(POWER, ht_pow_f32(a, b), ht_pow_f64(a, b))                                                                       \
    X(LOGADDEXP, ht_logaddexp_f32(a, b), ht_logaddexp_f64(a, b))

#define HT_CASE_F32(op, of_f32, of_f64)                                                                                \
    case HT_OP_##op: return of_f32;

static __device__ float ht_unary_f32(int op, bool half, float x) {
    switch (op) {
        HT_UNARY_FUNCTIONS(HT_CASE_F32)
    default: return rintf(x); /* ROUND */
    }
}

static __device__ float ht_binary_f32(int op, float a, float b) {
    switch (op) {
        HT_BINARY_FUNCTIONS(HT_CASE_F32)
    default: return ht_atan2_f32(a, b); /* ARCTAN2 */
    }
}

#endif
