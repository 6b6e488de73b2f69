/* base/math_lanes.h and e^x of base/math.h on sixteen lanes: the same operations in the same order, so bit-identical in
 * threads that flush denormals. */
#ifndef HT_CPU_VECTOR_MATH_H
#define HT_CPU_VECTOR_MATH_H

#include "base/math_wide.h"
#include "cpu/vector/simd.h"

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

#define HT_V(thing)     v16##thing
#define HT_MASK         m16
#define HT_M(thing)     m16_##thing
#define HT_LANES_INLINE HT_INLINE
#include "base/math_lanes.h"
#undef HT_V
#undef HT_MASK
#undef HT_M
#undef HT_LANES_INLINE

HT_INLINE v16f v16f_tan(v16f x) {
    v16f y = v16f_tan_near(x);
    const m16 far = v16f_gt(v16f_abs(x), v16f_set1(0x1.fffffep+16f));
    if (m16_any(far)) {
        float one[16];
        v16f_store(one, x);
        for (int i = 0; i < 16; i++) one[i] = ht_tan_f32(one[i]);
        y = v16f_select(far, v16f_load(one), y);
    }
    return y;
}

#endif
