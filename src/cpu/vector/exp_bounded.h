/* Fast e^x for x <= 8, as in softmax and logsumexp, where x is a difference from the maximum. Shorter than v16f_exp by
 * one polynomial term and one reduction step. */
#ifndef HT_CPU_VECTOR_EXP_BOUNDED_H
#define HT_CPU_VECTOR_EXP_BOUNDED_H

#include "cpu/vector/math.h"

/* Clamp n = -1012: results below the smallest normal number get exponent 0, and computing threads flush denormals. */
#define EXP_BOUNDED_LOWEST -87.68337f

/* e^x = 2^(n / 8) e^r with integer n and |r| <= ln(2) / 16. Error below 1.2 ulp, plus a relative 2.8e-9 |x| from
 * rounding ln(2) / 8. NaN gives NaN. */
HT_INLINE v16f v16f_exp_bounded(v16f x) {
    /* 2^(i / 8) minus i << 20 as bits, so that adding n << 20 adds floor(n / 8) to the exponent */
    static const int32_t table[8] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                     0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
    const v16f shift = v16f_set1(0x1.8p23f); /* adding 1.5 * 2^23 rounds to an integer in the low mantissa bits */
    x = v16f_max(v16f_set1(EXP_BOUNDED_LOWEST), x);
    const v16f shifted = v16f_fma(x, v16f_set1(8.0f * HT_LOG2_E), shift);
    const v16f r = v16f_fnma(v16f_sub(shifted, shift), v16f_set1(HT_LN2_HIGH / 8.0f), x);
    const v16f q = v16f_fma(v16f_set1(0.16668228f), r, v16f_set1(0.50006471f));
    const v16i n = v16f_bits(shifted);
    const v16f power = v16f_from_bits(v16i_add(v16i_choose(table, n), v16i_shl(n, 20)));
    return v16f_fma(power, v16f_fma(v16f_mul(r, r), q, r), power);
}

#endif
