/* e^x of what lies below the largest; of contiguous f32 the largest, and sums of e^x. */
#ifndef HT_CPU_VECTOR_POWERS_H
#define HT_CPU_VECTOR_POWERS_H

#include "cpu/asking.h"
#include "cpu/vector/math.h"
#include "cpu/vector/rows.h"

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

/* Whether numbers are compared with each other for NaN, two at a time, or with themselves. */
#if defined(HT_ISA_YMM)
enum { NANS_BY_TWO = 1 };
#else
enum { NANS_BY_TWO = 0 };
#endif

/* powers_max, where it is known whether what follows is asked for. */
HT_INLINE v16f powers_max_by(const float *p, int64_t n, int32_t flip, bool asks, bool far, m16 *nan) {
    v16f v[4], max[4];
    m16 is_nan[4];
    v16i sign = v16i_set1(flip);
    for (int k = 0; k < 4; k++) {
        max[k] = v16f_set1(-INFINITY);
        is_nan[k] = m16_first(0);
    }
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) {
            if (asks && far)
                HT_PREFETCH_ALONG(p + i + 16 * k);
            else if (asks)
                HT_PREFETCH(p + i + 16 * k + 1024);
            v[k] = v16f_from_bits(v16i_xor(v16f_bits(v16f_load(p + i + 16 * k)), sign));
            max[k] = v16f_max(v[k], max[k]);
            if (!NANS_BY_TWO)
                is_nan[k] = m16_or(is_nan[k], v16f_is_nan(v[k]));
            else if (k % 2 == 1)
                is_nan[0] = m16_or(is_nan[0], v16f_either_is_nan(v[k - 1], v[k]));
        }
    }
    for (; i < n; i += 16) {
        int lanes = lanes_of(n - i);
        const v16f x = v16f_from_bits(v16i_xor(v16f_bits(v16f_load_n(p + i, lanes)), sign));
        max[0] = v16f_select(m16_first(lanes), v16f_max(x, max[0]), max[0]);
        is_nan[0] = m16_or(is_nan[0], v16f_is_nan(x));
    }
    *nan = m16_or(m16_or(is_nan[0], is_nan[1]), m16_or(is_nan[2], is_nan[3]));
    return v16f_max(v16f_max(max[0], max[1]), v16f_max(max[2], max[3]));
}

/* The largest of n values, those that are NaN left out; *nan: whether there are any. With `flip` INT32_MIN, all taken with
 * the other sign. What follows is asked for, also of the next row; `far` says that it has to come from memory. */
HT_INLINE v16f powers_max(const float *p, int64_t n, int32_t flip, bool far, m16 *nan) {
    const bool asks = ht_asks_near();
    if (NANS_BY_TWO && !asks) return powers_max_by(p, n, flip, false, false, nan);
    return powers_max_by(p, n, flip, asks, far, nan);
}

#endif
