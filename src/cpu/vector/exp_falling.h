/* e^x of x that is at most 8, as softmax and logsumexp take it of differences from the largest element: one term of the
 * series and one step of the reduction less than v16f_exp. */
#ifndef HT_CPU_VECTOR_EXP_FALLING_H
#define HT_CPU_VECTOR_EXP_FALLING_H

#include "cpu/vector/math.h"

/* Below the lowest normal number the result has an exponent of 0, which threads that compute flush: n = -1012. */
#define EXP_FALLING_LOWEST -87.68337f

/* 2^(n / 8) e^r with integral n and |r| <= ln(2) / 16: off by less than 1.2 ulp, and 2.8e-9 x more, as ln(2) / 8 is rounded.
 * NaN for a NaN. */
HT_INLINE v16f v16f_exp_falling(v16f x) {
    /* 2^(n / 8) of n = 0 to 7 less n << 20, so that one addition brings in all of n. */
    static const int32_t table[8] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                     0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
    const v16f shift = v16f_set1(0x1.8p23f); /* adding it rounds to an integer, which is then in the low bits */
    x = v16f_max(v16f_set1(EXP_FALLING_LOWEST), x);
    const v16f shifted = v16f_fma(x, v16f_set1(8.0f * HT_LOG2_E), shift);
    const v16f r = v16f_fnma(v16f_sub(shifted, shift), v16f_set1(HT_LN2_HIGH / 8.0f), x);
    const v16f q = v16f_fma(v16f_set1(0.16668228f), r, v16f_set1(0.50006471f));
    const v16i n = v16f_bits(shifted);
    const v16f power = v16f_from_bits(v16i_add(v16i_choose(table, n), v16i_shl(n, 20)));
    return v16f_fma(power, v16f_fma(v16f_mul(r, r), q, r), power);
}

#endif
