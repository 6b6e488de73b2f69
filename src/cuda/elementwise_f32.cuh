/* Elementwise functions of f32, as the CPU has them. `half`: the operands came from 16 bits. */
#ifndef HT_CUDA_ELEMENTWISE_F32_CUH
#define HT_CUDA_ELEMENTWISE_F32_CUH

#include "cuda/kernel.cuh"
#include "device/op_id.h"

static __device__ float ht_unary_f32(int op, bool half, float x) {
    switch (op) {
    case HT_OP_NEGATIVE: return -x;
    case HT_OP_ABS: return fabsf(x);
    case HT_OP_SIGN: return (float)((x > 0.0f) - (x < 0.0f));
    case HT_OP_SQUARE: return x * x;
    case HT_OP_SQRT: return sqrtf(x);
    case HT_OP_RSQRT: return 1.0f / sqrtf(x);
    case HT_OP_RECIPROCAL: return 1.0f / x;
    case HT_OP_EXP: return ht_exp_f32(x);
    case HT_OP_EXPM1: return half ? ht_expm1_half(x) : ht_expm1_f32(x);
    case HT_OP_LOG: return half ? ht_log_half(x) : ht_log_f32(x);
    case HT_OP_LOG2: return half ? ht_log2_half(x) : ht_log2_f32(x);
    case HT_OP_LOG10: return half ? ht_log10_half(x) : ht_log10_f32(x);
    case HT_OP_LOG1P: return ht_log1p_f32(x);
    case HT_OP_SIN: return half ? ht_sin_half(x) : ht_sin_f32(x);
    case HT_OP_COS: return half ? ht_cos_half(x) : ht_cos_f32(x);
    case HT_OP_TAN: return half ? ht_tan_half(x) : ht_tan_f32(x);
    case HT_OP_ARCSIN: return half ? ht_asin_half(x) : ht_asin_f32(x);
    case HT_OP_ARCCOS: return half ? ht_acos_half(x) : ht_acos_f32(x);
    case HT_OP_ARCTAN: return half ? ht_atan_half(x) : ht_atan_f32(x);
    case HT_OP_SINH: return half ? ht_sinh_half(x) : ht_sinh_f32(x);
    case HT_OP_COSH: return half ? ht_cosh_half(x) : ht_cosh_f32(x);
    case HT_OP_TANH: return ht_tanh_f32(x);
    case HT_OP_ERF: return ht_erf_f32(x);
    case HT_OP_ERFINV: return ht_erfinv_f32(x);
    case HT_OP_SIGMOID: return ht_sigmoid_f32(x);
    case HT_OP_SILU: return ht_silu_f32(x);
    case HT_OP_GELU: return ht_gelu_f32(x);
    case HT_OP_GELU_TANH: return ht_gelu_tanh_f32(x);
    case HT_OP_FLOOR: return floorf(x);
    case HT_OP_CEIL: return ceilf(x);
    default: return rintf(x); /* ROUND */
    }
}

static __device__ float ht_binary_f32(int op, float a, float b) {
    switch (op) {
    case HT_OP_ADD: return a + b;
    case HT_OP_SUBTRACT: return a - b;
    case HT_OP_MULTIPLY: return a * b;
    case HT_OP_DIVIDE: return a / b;
    case HT_OP_MINIMUM: return isnan(a) || a < b ? a : b;
    case HT_OP_MAXIMUM: return isnan(a) || a > b ? a : b;
    case HT_OP_FLOOR_DIVIDE: return floorf(a / b);
    case HT_OP_REMAINDER: return ht_remainder_f32(a, b);
    case HT_OP_POWER: return ht_pow_f32(a, b);
    case HT_OP_LOGADDEXP: return ht_logaddexp_f32(a, b);
    default: return ht_atan2_f32(a, b); /* ARCTAN2 */
    }
}

#endif
