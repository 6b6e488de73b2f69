/* base/math.h on sixteen lanes: the same operations in the same order, so bit-identical in threads that flush
 * denormals. */
#ifndef HT_CPU_VECTOR_MATH_H
#define HT_CPU_VECTOR_MATH_H

#include "base/math.h"
#include "cpu/vector/simd.h"

/* e^r - 1 of the reduced argument r = x - n ln 2; sets n = round(x log2 e). */
HT_INLINE v16f v16f_expm1_reduced(v16f x, v16f *n) {
    *n = v16f_round(v16f_mul(x, v16f_set1(HT_LOG2_E)));
    v16f r = v16f_fnma(*n, v16f_set1(HT_LN2_HIGH), x);
    r = v16f_fnma(*n, v16f_set1(HT_LN2_LOW), r);
    v16f q = v16f_fma(v16f_set1(HT_EXP_6), r, v16f_set1(HT_EXP_5));
    q = v16f_fma(q, r, v16f_set1(HT_EXP_4));
    q = v16f_fma(q, r, v16f_set1(HT_EXP_3));
    q = v16f_fma(q, r, v16f_set1(HT_EXP_2));
    return v16f_fma(v16f_mul(r, r), q, r);
}

/* power * e^(x - n ln 2), where n is x log2 e rounded to a multiple of 1 / 16. */
HT_INLINE v16f v16f_exp_near(v16f x, v16f n, v16f power) {
    v16f r = v16f_fnma(n, v16f_set1(HT_LN2_HIGH), x);
    r = v16f_fnma(n, v16f_set1(HT_LN2_LOW), r);
    const v16f q = v16f_fma(v16f_set1(HT_POWER_3), r, v16f_set1(HT_POWER_2));
    const v16f p = v16f_fma(v16f_mul(r, r), q, r);
    return v16f_fma(power, p, power);
}

HT_INLINE v16f v16f_exp_scaled(v16f x) {
    x = v16f_max(v16f_set1(HT_EXP_LOWEST), v16f_min(v16f_set1(HT_EXP_CLAMP), x));
    const v16f shift = v16f_set1(HT_POWER_SHIFT), shifted = v16f_fma(x, v16f_set1(HT_LOG2_E), shift);
    const v16f power = v16f_from_bits(v16i_choose_16(ht_sixteenth_powers(), v16f_bits(shifted)));
    const v16f n = v16f_sub(shifted, shift);
    return v16f_scale(v16f_exp_near(x, n, power), n);
}

#if defined(HT_ISA_YMM)
/* v16f_scale takes ten AVX2 instructions. Where 2^n is finite, adding n to the exponent bits takes one addition, as the
 * table entries are 2^(i / 16) minus i << 19. Arguments below -87.5 give 0; arguments above 88.7 and NaN fall back to
 * v16f_exp_scaled. */
#define HT_EXP_LEAST_UNSCALED -87.5f
#define HT_EXP_MOST_UNSCALED  88.7f
#define HT_UNSCALED_POWERS    HT_SIXTEENTH_POWERS(1 << 19)
HT_INLINE v16f v16f_exp(v16f x) {
    static const int32_t table[16] = HT_UNSCALED_POWERS;
    const v16f near = v16f_max(v16f_set1(HT_EXP_LEAST_UNSCALED), x), shift = v16f_set1(HT_POWER_SHIFT);
    const v16f shifted = v16f_fma(near, v16f_set1(HT_LOG2_E), shift);
    const v16i bits = v16f_bits(shifted);
    const v16f power = v16f_from_bits(v16i_add(v16i_choose_16(table, bits), v16i_shl(bits, 19)));
    const v16f y = v16f_exp_near(near, v16f_sub(shifted, shift), power);
    const m16 far = v16f_not_at_most(x, v16f_set1(HT_EXP_MOST_UNSCALED));
    return __builtin_expect(m16_any(far), 0) ? v16f_exp_scaled(x) : y;
}
#else
HT_INLINE v16f v16f_exp(v16f x) { return v16f_exp_scaled(x); }
#endif

HT_INLINE v16f v16f_one_plus_exp_neg(v16f x) { return v16f_add(v16f_set1(1.0f), v16f_exp(v16f_neg(x))); }
HT_INLINE v16f v16f_sigmoid(v16f x) { return v16f_div(v16f_set1(1.0f), v16f_one_plus_exp_neg(x)); }
HT_INLINE v16f v16f_silu(v16f x) { return v16f_div(x, v16f_one_plus_exp_neg(x)); }

HT_INLINE v16f v16f_tanh(v16f x) {
    v16f a = v16f_min(v16f_set1(HT_TANH_CLAMP), v16f_abs(x)), n;
    v16f p = v16f_expm1_reduced(v16f_mul(v16f_set1(2.0f), a), &n);
    v16f power = v16f_scale(v16f_set1(1.0f), n);
    v16f t = v16f_fma(power, p, v16f_sub(power, v16f_set1(1.0f)));
    return v16f_with_sign(v16f_div(t, v16f_add(t, v16f_set1(2.0f))), x);
}

HT_INLINE v16f v16f_gelu_tanh(v16f x) {
    v16f square = v16f_mul(v16f_mul(v16f_set1(HT_GELU_CUBE), x), x);
    v16f u = v16f_mul(v16f_set1(HT_GELU_INNER), v16f_fma(square, x, x));
    return v16f_div(x, v16f_add(v16f_set1(1.0f), v16f_exp(v16f_mul(v16f_set1(-2.0f), u))));
}

HT_INLINE v16f v16f_log(v16f x) {
    v16i bits = v16f_bits(x), e = v16i_sra(v16i_sub(bits, v16i_set1(HT_SQRT_HALF)), 23);
    v16f f = v16f_sub(v16f_from_bits(v16i_sub(bits, v16i_shl(e, 23))), v16f_set1(1.0f)), k = v16f_from_i(e);
    v16f q = v16f_fma(v16f_set1(HT_LOG_10), f, v16f_set1(HT_LOG_9));
    q = v16f_fma(q, f, v16f_set1(HT_LOG_8));
    q = v16f_fma(q, f, v16f_set1(HT_LOG_7));
    q = v16f_fma(q, f, v16f_set1(HT_LOG_6));
    q = v16f_fma(q, f, v16f_set1(HT_LOG_5));
    q = v16f_fma(q, f, v16f_set1(HT_LOG_4));
    q = v16f_fma(q, f, v16f_set1(HT_LOG_3));
    v16f square = v16f_mul(f, f);
    v16f small = v16f_fma(k, v16f_set1(HT_LN2_LOW), v16f_mul(square, v16f_fma(f, q, v16f_set1(-0.5f))));
    v16f y = v16f_fma(k, v16f_set1(HT_LN2_HIGH), v16f_add(f, small));
    v16f infinity = v16f_set1(INFINITY);
    y = v16f_select(v16f_eq(x, infinity), infinity, y);
    y = v16f_select(v16f_lt(x, v16f_zero()), v16f_set1(NAN), y);
    y = v16f_select(v16f_lt(v16f_abs(x), v16f_set1(0x1p-126f)), v16f_neg(infinity), y);
    return v16f_select(v16f_is_nan(x), x, y);
}

/* sin and cos of quarters * pi / 2 + r, |r| <= pi / 4. */
HT_INLINE void v16f_sincos_reduced(v16f r, v16i quarters, v16f *sine, v16f *cosine) {
    v16f s = v16f_mul(r, r);
    v16f q = v16f_fma(v16f_set1(HT_SIN_7), s, v16f_set1(HT_SIN_5));
    q = v16f_fma(q, s, v16f_set1(HT_SIN_3));
    v16f sin_r = v16f_fma(v16f_mul(s, r), q, r);
    q = v16f_fma(v16f_set1(HT_COS_8), s, v16f_set1(HT_COS_6));
    q = v16f_fma(q, s, v16f_set1(HT_COS_4));
    v16f cos_r = v16f_fma(v16f_mul(s, s), q, v16f_fma(v16f_set1(-0.5f), s, v16f_set1(1.0f)));
    v16i one = v16i_set1(1), two = v16i_set1(2);
    m16 odd = v16i_eq(v16i_and(quarters, one), one);
    v16i sin_sign = v16i_shl(v16i_and(quarters, two), 30);
    v16i cos_sign = v16i_shl(v16i_and(v16i_add(quarters, one), two), 30);
    *sine = v16f_from_bits(v16i_xor(v16f_bits(v16f_select(odd, cos_r, sin_r)), sin_sign));
    *cosine = v16f_from_bits(v16i_xor(v16f_bits(v16f_select(odd, sin_r, cos_r)), cos_sign));
}

#endif
