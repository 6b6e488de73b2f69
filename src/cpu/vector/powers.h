/* e^x of what lies below the largest. */
#ifndef HT_CPU_VECTOR_POWERS_H
#define HT_CPU_VECTOR_POWERS_H

#include "cpu/vector/math.h"

/* Powers of e as 2^(n / 8) e^r with integral n and |r| <= ln(2) / 16, so that few terms of a series are enough. Below the
 * lowest normal number 2^(n / 8) has bits that are none, with an exponent of 0: threads that compute take that for 0. */
#define POWERS_LOWEST 87.68337f /* n = -1012; exponents are in their field for n >= -1016 */

/* Adding it rounds to an integer, which is then in the low bits. */
#define POWERS_SHIFT 0x1.8p23f

/* 2^(n / 8) of n + POWERS_SHIFT. The table has those of n = 0 to 7 less n << 20, so that one addition brings in all of n. */
HT_INLINE v16f powers_of_eighths(v16f shifted) {
    static const int32_t table[8] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                     0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
    const v16i n = v16f_bits(shifted);
    return v16f_from_bits(v16i_add(v16i_choose(table, n), v16i_shl(n, 20)));
}

/* e^x of x that is at most 8, or NaN: off by less than 1.2 ulp, and 2.8e-9 x more, as ln(2) / 8 is rounded: a twentieth of
 * what rounds off where x is a difference. */
HT_INLINE v16f v16f_exp_falling(v16f x) {
    const v16f shift = v16f_set1(POWERS_SHIFT);
    x = v16f_max(v16f_set1(-POWERS_LOWEST), x);
    const v16f shifted = v16f_fma(x, v16f_set1(8.0f * HT_LOG2_E), shift);
    const v16f r = v16f_fnma(v16f_sub(shifted, shift), v16f_set1(HT_LN2_HIGH / 8.0f), x);
    const v16f q = v16f_fma(v16f_set1(0.16668228f), r, v16f_set1(0.50006471f));
    const v16f power = powers_of_eighths(shifted);
    return v16f_fma(power, v16f_fma(v16f_mul(r, r), q, r), power);
}

#endif
