/* Coefficients of elementary functions of f32, e^x and the reduction of angles, independent of the C library's version. Each is
 * a fixed sequence of IEEE operations; base/math_lanes.h has the other functions, cpu/vector/math.h e^x on sixteen lanes with
 * the same bits. Largest error of exp over all f32 (tests/ops/test_math.c): 1.0 ulp. Denormal results are flushed to 0, as in
 * the threads of a pool. */
#ifndef HT_BASE_MATH_H
#define HT_BASE_MATH_H

#include "base/half.h"

#include <math.h>
#include <stdint.h>

/* Minimax coefficients, named after the power of the reduced argument that they multiply. */
#define HT_LOG2_E      1.442695041f
#define HT_LN2_HIGH    0.693147182f
#define HT_LN2_LOW     -1.904654212e-09f
#define HT_EXP_2       5.000000000e-01f
#define HT_EXP_3       1.666651815e-01f
#define HT_EXP_4       4.166620597e-02f
#define HT_EXP_5       8.368953131e-03f
#define HT_EXP_6       1.395060215e-03f
#define HT_EXP_LOWEST  -104.0f   /* exp(-104) is half of the smallest denormal */
#define HT_EXP_CLAMP   120.0f    /* beyond overflow, within the range of ht_scale_f32 */
#define HT_POWER_2     0.500024f /* of the series for |r| <= ln(2) / 32 */
#define HT_POWER_3     0.1667f
#define HT_POWER_SHIFT 0x1.8p19f /* x + shift - shift rounds a small x to a multiple of 1/16 */
#define HT_TANH_CLAMP  9.1f      /* from here on tanh rounds to 1 */

#define HT_LOG_3     3.333331645e-01f
#define HT_LOG_4     -2.500081062e-01f
#define HT_LOG_5     2.000228614e-01f
#define HT_LOG_6     -1.662455350e-01f
#define HT_LOG_7     1.418119222e-01f
#define HT_LOG_8     -1.312875450e-01f
#define HT_LOG_9     1.288164854e-01f
#define HT_LOG_10    -7.859615237e-02f
#define HT_SQRT_HALF 0x3f3504f3 /* bits of sqrt(1/2) */

#define HT_SIN_3 -1.666665524e-01f
#define HT_SIN_5 8.332177997e-03f
#define HT_SIN_7 -1.951723534e-04f
#define HT_COS_4 4.166664556e-02f
#define HT_COS_6 -1.388736651e-03f
#define HT_COS_8 2.443837911e-05f

#define HT_TWO_OVER_PI  0x1.45f306dc9c883p-1
#define HT_HALF_PI_HIGH 0x1.921fb54442d18p+0
#define HT_HALF_PI_LOW  0x1.1a62633145c07p-54
/* x + magic rounds x to an integer, held in the low bits of the sum. */
#define HT_ROUND_MAGIC 0x1.8p+52

#define HT_GELU_INNER 0.7978845608f /* sqrt(2 / pi) */
#define HT_GELU_CUBE  0.044715f

/* x * 2^floor(n), |n| <= 252, by two factors that are normal numbers. NaN when x is NaN, for any n. */
static inline float ht_scale_f32(float x, float n) {
    int32_t whole = isnan(n) ? 0 : (int32_t)floorf(n);
    int32_t half = (whole - (whole & 1)) / 2; /* rounds down, as an arithmetic shift does */
    float first = ht_float_from_bits((uint32_t)(half + 127) << 23);
    float second = ht_float_from_bits((uint32_t)(whole - half + 127) << 23);
    return x * first * second;
}

/* Bits of 2^(i / 16), i = 0 .. 15, minus i * step. */
#define HT_SIXTEENTH_POWERS(step)                                                                                      \
    {                                                                                                                  \
        0x3f800000, 0x3f85aac3 - (step), 0x3f8b95c2 - 2 * (step), 0x3f91c3d3 - 3 * (step), 0x3f9837f0 - 4 * (step),    \
            0x3f9ef532 - 5 * (step), 0x3fa5fed7 - 6 * (step), 0x3fad583f - 7 * (step), 0x3fb504f3 - 8 * (step),        \
            0x3fbd08a4 - 9 * (step), 0x3fc5672a - 10 * (step), 0x3fce248c - 11 * (step), 0x3fd744fd - 12 * (step),     \
            0x3fe0ccdf - 13 * (step), 0x3feac0c7 - 14 * (step), 0x3ff5257d - 15 * (step)                               \
    }

static inline const int32_t *ht_sixteenth_powers(void) {
    static const int32_t table[16] = HT_SIXTEENTH_POWERS(0);
    return table;
}

/* e^x = 2^n e^r with n a multiple of 1/16. A table gives 2^frac(n); |r| <= ln(2) / 32 keeps the series short. */
static inline float ht_exp_f32(float x) {
    if (isnan(x)) return x;
    if (x > HT_EXP_CLAMP) x = HT_EXP_CLAMP;
    if (x < HT_EXP_LOWEST) x = HT_EXP_LOWEST;
    const float shifted = fmaf(x, HT_LOG2_E, HT_POWER_SHIFT), n = shifted - HT_POWER_SHIFT;
    float r = fmaf(-n, HT_LN2_HIGH, x);
    r = fmaf(-n, HT_LN2_LOW, r);
    const float p = fmaf(r * r, fmaf(HT_POWER_3, r, HT_POWER_2), r);
    const float power = ht_float_from_bits((uint32_t)ht_sixteenth_powers()[ht_float_bits(shifted) & 15]);
    const float y = ht_scale_f32(fmaf(power, p, power), n);
    return y < 0x1p-126f ? 0.0f : y;
}

/* Cody-Waite reduction of |angle| < 2^40: angle = quarters * pi / 2 + *rest, |*rest| <= pi / 4. Returns quarters modulo
 * 2^32. */
static inline uint32_t ht_reduce_angle(double angle, float *rest) {
    double sum = fma(angle, HT_TWO_OVER_PI, HT_ROUND_MAGIC), n = sum - HT_ROUND_MAGIC;
    double r = fma(-n, HT_HALF_PI_HIGH, angle);
    *rest = (float)fma(-n, HT_HALF_PI_LOW, r);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return (uint32_t)bits;
}

/* Payne-Hanek reduction of an f32 of 2^25 or more. With x = m 2^e, m an integer, bits of 2 / pi of weight 2^(2 - e) and
 * above contribute whole turns; the 96 bits below them suffice. */
static inline uint32_t ht_reduce_huge_angle_wide(float x, double *rest) {
    static const uint32_t two_over_pi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                           0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
    uint32_t bits = ht_float_bits(fabsf(x)), m = (bits & 0x7fffff) | 0x800000;
    uint32_t e = (bits >> 23) - 150;
    uint32_t skip = e - 2; /* bits of 2 / pi before the window */
    unsigned __int128 window = 0, product;
    for (uint32_t word = skip / 32, i = 0; i < 4; i++) window = window << 32 | two_over_pi[word + i];
    window = window << skip % 32 >> 32;
    product = window * m; /* x * 2 / pi * 2^94, up to whole turns */
    uint64_t quarters = (uint64_t)(product >> 94);
    uint64_t fraction = (uint64_t)(product << 34 >> 64);
    double r = (double)(int64_t)fraction; /* as a signed fraction it is in [-1/2, 1/2) */
    if (fraction >> 63) quarters++;
    r *= 0x1p-64 * HT_HALF_PI_HIGH;
    *rest = x < 0.0f ? -r : r;
    return (uint32_t)(x < 0.0f ? 0 - quarters : quarters);
}

static inline uint32_t ht_reduce_huge_angle(float x, float *rest) {
    double r;
    uint32_t quarters = ht_reduce_huge_angle_wide(x, &r);
    *rest = (float)r;
    return quarters;
}

#endif
