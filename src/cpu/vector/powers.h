/* e^x of what lies below the largest; of contiguous f32 the largest, and sums of e^x. */
#ifndef HT_CPU_VECTOR_POWERS_H
#define HT_CPU_VECTOR_POWERS_H

#include "cpu/asking.h"
#include "cpu/vector/math.h"
#include "cpu/vector/rows.h"

/* e^x of x that is not positive, or NaN: off by less than 1 ulp, with three quarters of the instructions of v16f_exp. Adding
 * the large number rounds to an integer. A result that is no normal number is flushed, as in all threads that compute. */
HT_INLINE v16f v16f_exp_falling(v16f x) {
    const v16f shift = v16f_set1(0x1.8p23f);
    x = v16f_max(v16f_set1(-HT_EXP_CLAMP), x);
    v16f n = v16f_sub(v16f_fma(x, v16f_set1(HT_LOG2_E), shift), shift);
    v16f r = v16f_fnma(n, v16f_set1(HT_LN2_HIGH), x);
    r = v16f_fnma(n, v16f_set1(HT_LN2_LOW), r);
    v16f q = v16f_fma(v16f_set1(HT_EXP_6), r, v16f_set1(HT_EXP_5));
    q = v16f_fma(q, r, v16f_set1(HT_EXP_4));
    q = v16f_fma(q, r, v16f_set1(HT_EXP_3));
    q = v16f_fma(q, r, v16f_set1(HT_EXP_2));
    q = v16f_fma(q, r, v16f_set1(1.0f));
    return v16f_scale(v16f_fma(q, r, v16f_set1(1.0f)), n);
}

/* The largest of n values, those that are NaN left out; *nan: whether there are any. With `flip` INT32_MIN, all taken with
 * the other sign. What follows is asked for, also of the next row; `far` says that it has to come from memory. */
HT_INLINE v16f powers_max(const float *p, int64_t n, int32_t flip, bool far, m16 *nan) {
    const bool asks = ht_asks_near();
    v16f max[4];
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
            v16f v = v16f_from_bits(v16i_xor(v16f_bits(v16f_load(p + i + 16 * k)), sign));
            max[k] = v16f_max(v, max[k]);
            is_nan[k] = m16_or(is_nan[k], v16f_is_nan(v));
        }
    }
    for (; i < n; i += 16) {
        int lanes = lanes_of(n - i);
        v16f v = v16f_from_bits(v16i_xor(v16f_bits(v16f_load_n(p + i, lanes)), sign));
        max[0] = v16f_select(m16_first(lanes), v16f_max(v, max[0]), max[0]);
        is_nan[0] = m16_or(is_nan[0], v16f_is_nan(v));
    }
    *nan = m16_or(m16_or(is_nan[0], is_nan[1]), m16_or(is_nan[2], is_nan[3]));
    return v16f_max(v16f_max(max[0], max[1]), v16f_max(max[2], max[3]));
}

#endif
