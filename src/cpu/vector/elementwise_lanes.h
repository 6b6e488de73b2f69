/* Lane functions of one or two f32 operands, named after the operations and bit-identical to base/math.h; functions
 * named _half are for f16 operands (base/math_half.h). `p` is the operation's parameter, if any, in all lanes. */
#ifndef HT_CPU_VECTOR_ELEMENTWISE_LANES_H
#define HT_CPU_VECTOR_ELEMENTWISE_LANES_H

#include "cpu/vector/math.h"

#define HT_LANES_OF_ONE(name, expression)                                                                              \
    HT_INLINE v16f name##_lanes(v16f x, v16f p) {                                                                      \
        (void)p;                                                                                                       \
        return expression;                                                                                             \
    }
#define HT_LANES_OF_TWO(name, expression)                                                                              \
    HT_INLINE v16f name##_lanes(v16f a, v16f b) { return expression; }

HT_LANES_OF_ONE(negative, v16f_neg(x))
HT_LANES_OF_ONE(abs, v16f_abs(x))
HT_LANES_OF_ONE(square, v16f_mul(x, x))
HT_LANES_OF_ONE(sqrt, v16f_sqrt(x))
HT_LANES_OF_ONE(rsqrt, v16f_div(v16f_set1(1.0f), v16f_sqrt(x)))
HT_LANES_OF_ONE(reciprocal, v16f_div(v16f_set1(1.0f), x))
HT_LANES_OF_ONE(exp, v16f_exp(x))
HT_LANES_OF_ONE(log, v16f_log(x))
HT_LANES_OF_ONE(log_half, v16f_log_half(x))
HT_LANES_OF_ONE(tanh, v16f_tanh(x))
HT_LANES_OF_ONE(sigmoid, v16f_sigmoid(x))
HT_LANES_OF_ONE(silu, v16f_silu(x))
HT_LANES_OF_ONE(gelu_tanh, v16f_gelu_tanh(x))
HT_LANES_OF_ONE(expm1, v16f_expm1(x))
HT_LANES_OF_ONE(expm1_half, v16f_expm1_half(x))
HT_LANES_OF_ONE(log2, v16f_log2(x))
HT_LANES_OF_ONE(log2_half, v16f_log2_half(x))
HT_LANES_OF_ONE(log10, v16f_log10(x))
HT_LANES_OF_ONE(log10_half, v16f_log10_half(x))
HT_LANES_OF_ONE(log1p, v16f_log1p(x))
HT_LANES_OF_ONE(tan, v16f_tan(x))
HT_LANES_OF_ONE(tan_half, v16f_tan_half(x))
HT_LANES_OF_ONE(arcsin, v16f_asin(x))
HT_LANES_OF_ONE(arcsin_half, v16f_asin_half(x))
HT_LANES_OF_ONE(arccos, v16f_acos(x))
HT_LANES_OF_ONE(arccos_half, v16f_acos_half(x))
HT_LANES_OF_ONE(arctan, v16f_atan(x))
HT_LANES_OF_ONE(arctan_half, v16f_atan_half(x))
HT_LANES_OF_ONE(sinh, v16f_sinh(x))
HT_LANES_OF_ONE(sinh_half, v16f_sinh_half(x))
HT_LANES_OF_ONE(cosh, v16f_cosh(x))
HT_LANES_OF_ONE(cosh_half, v16f_cosh_half(x))
HT_LANES_OF_ONE(sin_half, v16f_sin_half(x))
HT_LANES_OF_ONE(cos_half, v16f_cos_half(x))
HT_LANES_OF_ONE(scale, v16f_mul(x, p))
HT_LANES_OF_ONE(softcap, v16f_mul(p, v16f_tanh(v16f_div(x, p))))
HT_LANES_OF_ONE(power_half, v16f_pow_half(x))

HT_LANES_OF_TWO(add, v16f_add(a, b))
HT_LANES_OF_TWO(subtract, v16f_sub(a, b))
HT_LANES_OF_TWO(multiply, v16f_mul(a, b))
HT_LANES_OF_TWO(divide, v16f_div(a, b))
/* v16f_min and v16f_max return b if either operand is NaN, so only a NaN in `a` needs a selection. */
HT_LANES_OF_TWO(minimum, v16f_select(v16f_is_nan(a), a, v16f_min(a, b)))
HT_LANES_OF_TWO(maximum, v16f_select(v16f_is_nan(a), a, v16f_max(a, b)))
HT_LANES_OF_TWO(arctan2, v16f_atan2(a, b))
HT_LANES_OF_TWO(power, v16f_pow(a, b))

#endif
