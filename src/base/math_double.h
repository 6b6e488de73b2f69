/* Elementary functions of f64, independent of the C library's version.
 *
 * Errors are at most about 1 ulp, more for silu and gelu_tanh (tests/ops/test_math_double.c). Values that need more
 * precision are double-word numbers x + x_low, x_low being the rounding error of x. Denormal arguments and results may
 * be flushed to 0. Coefficients are minimax fits, lowest power first. */
#ifndef HT_BASE_MATH_DOUBLE_H
#define HT_BASE_MATH_DOUBLE_H

#include "base/math_wide.h"

/* Tables of logarithms: x = 2^k m, m >= 45/64, with sixteen intervals of m, one of them around 1. ht_log_factors has a
 * short factor f per interval, m f = 1 + r; r is exact around 1, nearly exact elsewhere. ht_log_table[base][0 or 1] has
 * the high and low part of -log(f) to base e, 2 and 10. High parts have 42 fraction bits, as the high part of log(2)
 * has, so that k log(2) plus a high part is exact. */
#define HT_LOG_START UINT64_C(0x3fe6800000000000)
static const double ht_log_factors[16] = {1.40625, 1.34375, 1.28125, 1.21875,  1.1875,  1.15625,  1.09375,  1.0625,
                                          1.03125, 1.0,     0.9375,  0.890625, 0.84375, 0.796875, 0.765625, 0.734375};
static const double ht_log_table[3][2][16] = {
    {{-0x1.5d1bdbf581000p-2, -0x1.2e8e2bae12000p-2, -0x1.fb9186d5e4000p-3, -0x1.9525a9cf46000p-3, -0x1.5ff3070a7a000p-3,
      -0x1.29552f8200000p-3, -0x1.6f0d28ae58000p-4, -0x1.f0a30c0118000p-5, -0x1.f829b0e780000p-6, 0x0.0p+0,
      0x1.08598b59e4000p-4, 0x1.da72763844000p-4, 0x1.5bf406b544000p-3, 0x1.d1037f2656000p-3, 0x1.1178e8227e000p-2,
      0x1.3c25277333000p-2},
     {0x1.8d6bdc9c7c238p-44, 0x1.67b1e99b72bd8p-45, 0x1.d572aab993c87p-47, 0x1.297137d9f158fp-44, 0x1.8586f183bebf2p-44,
      0x1.5b967f4471dfcp-44, 0x1.4b4641b664613p-44, 0x1.d599e83368e91p-45, -0x1.980267c7e09e4p-45, 0x0.0p+0,
      -0x1.7e5dd7009902cp-46, 0x1.a89401fa71733p-46, -0x1.27023eb68981cp-46, -0x1.84a7e75b6f6e4p-47,
      0x1.1ef78ce2d07f2p-44, 0x1.83b54b606bd5cp-46}},
    {{-0x1.f7a8568cb0000p-2, -0x1.b47ebf7388000p-2, -0x1.6e221cd9d1000p-2, -0x1.24407ab0e0000p-2, -0x1.fbc16b9026000p-3,
      -0x1.acf5e2db4e000p-3, -0x1.08c588cda8000p-3, -0x1.663f6fac90000p-4, -0x1.6bad3758f0000p-5, 0x0.0p+0,
      0x1.7d60496cfc000p-4, 0x1.563dc29ffa000p-3, 0x1.f5fd8a9064000p-3, 0x1.4f6fbb2cec000p-2, 0x1.8a8980abfc000p-2,
      0x1.c819dc2d46000p-2},
     {-0x1.b3b3864c60011p-44, -0x1.50520a377c7ecp-45, 0x1.90d43956fa5d8p-45, -0x1.ce60916e52e91p-44,
      -0x1.0144751b3314fp-44, -0x1.927dfc23d9780p-44, 0x1.871a7610e40bdp-45, -0x1.3167ccc538261p-44,
      0x1.3c6764fc87b4ap-48, 0x0.0p+0, -0x1.2ce6312ebb81dp-46, 0x1.964190e41bca7p-44, -0x1.cb6f70109b0f1p-47,
      0x1.661e393a16b95p-44, -0x1.66cccab240e90p-45, -0x1.bc76a2753b99bp-50}},
    {{-0x1.2f3b691c5a000p-3, -0x1.06cbd67a6c000p-3, -0x1.b8de4d3ab4000p-4, -0x1.5fe80488b0000p-4, -0x1.31b3055c48000p-4,
      -0x1.02428c1f08000p-4, -0x1.3ed1199a60000p-5, -0x1.af5f92b010000p-6, -0x1.b5e908eb20000p-7, 0x0.0p+0,
      0x1.cb38fccd90000p-6, 0x1.9c197abf00000p-5, 0x1.2e3a740b78000p-4, 0x1.93e7de0fc4000p-4, 0x1.db11ed766c000p-4,
      0x1.1299a4fb3e000p-3},
     {-0x1.7c697e103ceaap-56, -0x1.db2a2c6287ec0p-46, 0x1.340511b402e0ap-47, 0x1.606adb567e739p-45,
      0x1.dcffc97be8c9cp-45, -0x1.5ea6bc2bc8c2cp-52, 0x1.bdafc8ad828b8p-45, 0x1.9f05921f59258p-46,
      0x1.90dfe0d1601cap-44, 0x0.0p+0, -0x1.00925a535ae72p-44, 0x1.badcf3d6e4566p-46, 0x1.d288560689912p-53,
      -0x1.80743406505e6p-48, -0x1.40bcd23c3e44cp-44, 0x1.82c6326f70b35p-46}},
};

/* Payne-Hanek reduction of an f64 of 2^30 or more: x = quarters * pi / 2 + r + *r_low, quarters in the low bits of *n.
 * With x = m 2^e, m an integer, bits of 2 / pi of weight 2^(2 - e) and above contribute whole turns; the 192 bits below
 * them suffice. */
static inline double ht_far_angle_parts(double x, double *n, double *r_low) {
    static const uint64_t two_over_pi[] = {0,
                                           0xa2f9836e4e441529,
                                           0xfc2757d1f534ddc0,
                                           0xdb6295993c439041,
                                           0xfe5163abdebbc561,
                                           0xb7246e3a424dd2e0,
                                           0x06492eea09d1921c,
                                           0xfe1deb1cb129a73e,
                                           0xe88235f52ebb4484,
                                           0xe99c7026b45f7e41,
                                           0x3991d639835339f4,
                                           0x9c845f8bbdf9283b,
                                           0x1ff897ffde05980f,
                                           0xef2f118b5a0a6d1f,
                                           0x6d367ecf27cb09b7,
                                           0x4f463f669e5fea2d,
                                           0x7527bac7ebe5f17b,
                                           0x3d0739f78a5292ea,
                                           0x6bfb5fb11f8d5d08,
                                           0x56033046fc7b6bab,
                                           0xf0cfbc209af4361d};
    const uint64_t bits = ht_double_bits(fabs(x)), m = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x10000000000000);
    if (!(fabs(x) < (double)INFINITY)) return *n = *r_low = (double)NAN;
    const unsigned skip = (unsigned)((int)(bits >> 52) - 1075 - 2 + 64), shift = skip % 64;
    uint64_t window[3], product[3], carry = 0;
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t *word = two_over_pi + skip / 64 + i;
        window[i] = shift ? word[0] << shift | word[1] >> (64 - shift) : word[0];
    }
    for (int i = 2; i >= 0; i--) { /* x * 2 / pi * 2^190, up to whole turns */
        const unsigned __int128 sum = (unsigned __int128)window[i] * m + carry;
        product[i] = (uint64_t)sum, carry = (uint64_t)(sum >> 64);
    }
    uint64_t quarters = product[0] >> 62;
    unsigned __int128 fraction = (unsigned __int128)(product[0] << 2 | product[1] >> 62) << 64;
    fraction |= product[1] << 2 | product[2] >> 62;
    const bool below = fraction >> 127; /* as a signed fraction it is in [-1/2, 1/2) */
    if (below) quarters++, fraction = -fraction;
    const int zeros = fraction >> 64 ? __builtin_clzll((uint64_t)(fraction >> 64)) : 64;
    fraction <<= zeros; /* now one of the upper 64 bits is set */
    const uint64_t first = (uint64_t)(fraction >> 75), second = (uint64_t)(fraction >> 22) & UINT64_C(0x1fffffffffffff);
    const double unit = ldexp(1.0, -53 - zeros), high = (double)first * unit, low = (double)second * (unit * 0x1p-53);
    double r = high * HT_HALF_PI_HIGH;
    double rest = fma(high, HT_HALF_PI_HIGH, -r) + fma(high, HT_HALF_PI_LOW, low * HT_HALF_PI_HIGH);
    if (below != (x < 0.0)) r = -r, rest = -rest;
    *n = HT_ROUND_MAGIC + (double)(x < 0.0 ? (0 - quarters) & 3 : quarters & 3);
    *r_low = rest;
    return r;
}

/* ---- building blocks ---- */

/* A NaN in either operand gives b. */
static inline double ht_min_f64(double a, double b) { return a < b ? a : b; }
static inline double ht_max_f64(double a, double b) { return a > b ? a : b; }

/* x * 2^n by two factors that are normal numbers. */
static inline double ht_scale_f64(double x, double n) {
    const uint64_t biased = ht_double_bits(n + (0x1p+52 + 2048.0)) & 0x1fff, half = biased >> 1;
    return x * ht_double_from_bits((half - 1) << 52) * ht_double_from_bits((biased - half - 1) << 52);
}

/* Rounding error of sum = a + b, for |a| >= |b| or a = 0 (Dekker's Fast2Sum). */
static inline double ht_sum_low_f64(double a, double b, double sum) { return a - sum + b; }

/* ---- exponentials ---- */

/* Argument reduction x = n ln 2 + r + *r_low for |x| < 2^11; *n = n + HT_ROUND_MAGIC. */
static inline double ht_exp_parts_f64(double x, double *n, double *r_low) {
    *n = fma(x, HT_WIDE_LOG2_E, HT_ROUND_MAGIC);
    double whole = *n - HT_ROUND_MAGIC, low = 0x1.ef35793c76730p-45;
    double first = fma(-whole, 0x1.62e42fefa3800p-1, x), r = fma(-whole, low, first); /* `first` is exact */
    *r_low = fma(-whole, low, first - r);
    return r;
}

/* (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2 */
static inline double ht_exp_rest_f64(double r) {
    double q = fma(fma(0x1.1f8c1a2001cd0p-29, r, 0x1.af6f5d0260854p-26), r, 0x1.27e4cbf185c63p-22);
    q = ht_below4_f64(q, r, 0x1.6c16c16c14fedp-10, 0x1.a01a01b46851dp-13, 0x1.a01a01ad88c54p-16, 0x1.71ddee03d3022p-19);
    return ht_below4_f64(q, r, 0x1p-1, 0x1.555555555555cp-3, 0x1.5555555555558p-5, 0x1.111111110e9c1p-7);
}

/* 2^(n + shift), for n + HT_ROUND_MAGIC as ht_exp_parts_f64 returns it. */
static inline double ht_power_of_f64(double n, int shift) {
    return ht_double_from_bits((ht_double_bits(n) << 52) + ((uint64_t)(1023 + shift) << 52));
}

/* e^x, without r_low: it would save 0.2 ulp and cost a tenth of the time. */
static inline double ht_exp_f64(double x) {
    double near = ht_max_f64(-746.0, ht_min_f64(711.0, x)), n, r_low, r = ht_exp_parts_f64(near, &n, &r_low);
    double y = 1.0 + fma(r * r, ht_exp_rest_f64(r), r);
    return ht_scale_f64(y, n - HT_ROUND_MAGIC);
}

/* (e^x - 1) / 2 = 2^(n - 1) - 1/2 + 2^(n - 1) (e^r - 1), then doubled: 2^n itself may overflow. */
static inline double ht_expm1_f64(double x) {
    double near = ht_max_f64(-40.0, ht_min_f64(709.9, x)), n, r_low, r = ht_exp_parts_f64(near, &n, &r_low);
    double power = ht_power_of_f64(n, -1), rest = fma(r * r, ht_exp_rest_f64(r), r_low);
    double whole = power - 0.5, whole_low = power - whole - 0.5, part = power * r;
    double sum = whole + part, low = ht_sum_low_f64(whole, part, sum) + fma(power, rest, whole_low);
    return fabs(x) < 0x1p-54 ? x : 2.0 * (sum + low);
}

/* For x = n ln 2 + r >= 0: *up = 2^n / 4, *down = 2^-n / 4, sinh r = r + *odd, cosh r = 1 + *even. Returns r. */
static inline double ht_both_powers_f64(double x, double *up, double *down, double *odd, double *even) {
    double n, r_low, r = ht_exp_parts_f64(ht_min_f64(710.6, x), &n, &r_low), z = r * r;
    *up = ht_power_of_f64(n, -2);
    double least = ht_min_f64(n, HT_ROUND_MAGIC + 64.0); /* keeps 2^-n normal where e^-x is negligible */
    uint64_t bits = ht_double_bits(least) << 52;
    *down = ht_double_from_bits((UINT64_C(1021) << 52) - bits);
    double q = ht_below4_f64(0x1.af6f5d30077f0p-26, z, 0x1.555555555555cp-3, 0x1.111111110e9c1p-7,
                             0x1.a01a01b46851dp-13, 0x1.71ddee03d3022p-19);
    *odd = fma(z * r, q, r_low);
    q = fma(0x1.1f8c1ce5f19b9p-29, z, 0x1.27e4cbf185c52p-22);
    q = ht_below4_f64(q, z, 0x1p-1, 0x1.5555555555558p-5, 0x1.6c16c16c14fedp-10, 0x1.a01a01ad88c54p-16);
    *even = z * q;
    return r;
}

/* sinh(n ln 2 + r) = sinh(n ln 2) cosh r + cosh(n ln 2) sinh r, and cosh likewise. */
static inline double ht_sinh_f64(double x) {
    double a = fabs(x), up, down, odd, even, r = ht_both_powers_f64(a, &up, &down, &odd, &even);
    double s = up - down, c = up + down, s_low = up - s - down;
    double sum = fma(c, r, s), low = fma(c, r, s - sum + s_low);
    double y = 2.0 * (sum + fma(s, even, fma(c, odd, low)));
    return a < 0x1p-28 ? x : copysign(fabs(y), x);
}
static inline double ht_cosh_f64(double x) {
    double up, down, odd, even, r = ht_both_powers_f64(fabs(x), &up, &down, &odd, &even);
    double s = up - down, c = up + down, sum = fma(s, r, c), low = fma(s, r, up - sum + down);
    return 2.0 * (sum + fma(s, odd, fma(c, even, low)));
}

/* 1 + e^x as the double-word result + *low, for x in [-142, 709]. */
static inline double ht_one_and_power_f64(double x, double *low) {
    double n, r_low, r = ht_exp_parts_f64(x, &n, &r_low), power = ht_power_of_f64(n, 0);
    double rest = fma(r * r, ht_exp_rest_f64(r), r_low), one = 1.0, whole = power + one;
    bool up = power < one;
    double first = up ? one : power, second = up ? power : one, part = power * r, sum = whole + part;
    double left = fma(power, rest, ht_sum_low_f64(first, second, whole));
    left = ht_sum_low_f64(whole, part, sum) + left;
    double y = sum + left;
    *low = ht_sum_low_f64(sum, left, y);
    return y;
}

/* 1 / x with a relative error of up to 1/8, for x in [2^-1000, 2^1000]: enough to correct a rounding error. */
static inline double ht_about_inverse_f64(double x) {
    return ht_double_from_bits(UINT64_C(0x7fde623822fc16e6) - ht_double_bits(x));
}
/* tanh x = t / (t + 2) with t = e^2x - 1 as a double-word number. The remainder of the quotient is divided by t + 2
 * too, using 1 / (t + 2) = (1 - tanh x) / 2. */
static inline double ht_tanh_f64(double x) {
    double size = fabs(x), a = ht_min_f64(18.7, size), n, r_low, r = ht_exp_parts_f64(a + a, &n, &r_low);
    double power = ht_power_of_f64(n, 0), whole = power - 1.0, sum = fma(power, r, whole);
    double low = fma(power, fma(r * r, ht_exp_rest_f64(r), r_low), fma(power, r, whole - sum));
    double t = sum + low, t_low = ht_sum_low_f64(sum, low, t);
    double d = t + 2.0, d_low = t - (d - 2.0) + t_low, y = t / d;
    y = fma(fma(-y, d_low, fma(-y, d, t) + t_low), fma(-y, 0.5, 0.5), y);
    return copysign(size > 19.0 ? 1.0 : y, x);
}

/* 1 / (1 + e^x) = y + y * *left for x in [-142, 709]; y is unspecified for a larger x. */
static inline double ht_sigmoid_in_two_f64(double x, double *left) {
    double low, d = ht_one_and_power_f64(x, &low), y = 1.0 / d;
    *left = fma(-y, low, fma(-y, d, 1.0));
    return y;
}
/* y + y * left, flushed to 0 where it is denormal. */
static inline double ht_sigmoid_from_f64(double x, double y, double left) {
    return x < -708.396418532264 ? 0.0 : fma(left, y, y);
}
static inline double ht_sigmoid_f64(double x) {
    double near = ht_max_f64(-45.0, ht_min_f64(708.5, -x)), left;
    double y = ht_sigmoid_in_two_f64(near, &left);
    return ht_sigmoid_from_f64(x, y, left);
}

/* x * sigmoid(v), given as y: recomputed where sigmoid(v) is flushed to 0 but the product is a normal number. */
static inline double ht_times_far_sigmoid_f64(double x, double v, double y) {
    return v < -700.0 ? x * ht_exp_f64(v + 40.0) * 0x1.39792499b1a24p-58 : y; /* e^-40 */
}
static inline double ht_silu_f64(double x) { return ht_times_far_sigmoid_f64(x, x, x * ht_sigmoid_f64(x)); }

/* 0.5 x (1 + tanh u) = x / (1 + e^-2u) with 2 u = x (c + 0.044715 c x^2), c = sqrt(8 / pi). For negative x the absolute
 * error of 2 u is the relative error of the result, so 2 u is the double-word v + v_low, and v_low enters to first
 * order. c is given to 46 fraction bits, so that c - sum is exact for sum < 128. */
static inline double ht_gelu_tanh_f64(double x) {
    double near = ht_max_f64(-24.0, ht_min_f64(12.0, x)), z = near * near, z_low = fma(near, near, -z);
    double cubic = 0x1.2444f2a4d8b4bp-4, c = 0x1.9884533d43640p+0, sum = fma(z, cubic, c);
    double low = fma(z, cubic, c - sum);
    low += fma(z_low, cubic, fma(z, -0x1.6c843a29d1c70p-61, 0x1.08d0fcb3c500cp-48));
    double v = near * sum, v_low = fma(near, low, fma(near, sum, -v));
    double left, y = ht_sigmoid_in_two_f64(-v, &left);
    y = ht_sigmoid_from_f64(v, y, fma(1.0 - y, v_low, left));
    return ht_times_far_sigmoid_f64(fma(x, v_low, x), v, x * y);
}

/* ---- logarithms ---- */

/* x = 2^k m (ht_log_factors). Returns m and *k = k; *place has k + 1023 from bit 52 up and the interval in bits 48 to
 * 51. */
static inline double ht_log_parts_f64(double x, double *k, uint64_t *place) {
    uint64_t bits = ht_double_bits(x) + ((UINT64_C(1023) << 52) - HT_LOG_START);
    *place = bits;
    double e = ht_double_from_bits((bits >> 52) | UINT64_C(0x4330000000000000));
    *k = e - (0x1p+52 + 1023.0);
    return ht_double_from_bits((bits & UINT64_C(0xfffffffffffff)) + HT_LOG_START);
}
/* r of ht_log_factors: exact, or, above 1/32, with an error of 2^-58. */
static inline double ht_log_reduced_f64(double x, double *k, uint64_t *place) {
    double m = ht_log_parts_f64(x, k, place);
    return fma(m, ht_log_factors[(*place >> 48) & 15], -1.0);
}

/* log(1 + r) - r for |r| < 1/30 */
static inline double ht_log_rest_f64(double r) {
    double q = ht_below4_f64(-0x1.9b17c2ba36c70p-4, r, -0x1.5555556215a10p-3, 0x1.2491fe7852f27p-3,
                             -0x1.ffff673c06548p-4, 0x1.c8a9e848f8209p-4);
    q = ht_below4_f64(q, r, -0x1p-1, 0x1.55555555550a2p-2, -0x1.ffffffffff43fp-3, 0x1.999999a512e49p-3);
    return r * r * q;
}

/* True when x is not a positive, normal, finite number. */
static inline bool ht_is_special_f64(double x) {
    const uint64_t least = UINT64_C(0x10000000000000), end = UINT64_C(0x7ff0000000000000);
    return ht_double_bits(x) - least >= end - least;
}
/* Logarithm of x: y, or the special result for x <= 0, infinite or NaN. */
static inline double ht_log_special_f64(double x, double y) {
    y = x > 0x1.fffffffffffffp+1023 ? x : y;
    y = x < 0.0 ? (double)NAN : y;
    y = fabs(x) < 0x1p-1022 ? -(double)INFINITY : y;
    return isnan(x) ? x : y;
}

/* Logarithm to base b with its table: two + two_low = log_b(2), scale + scale_low = log_b(e). */
static inline double ht_log_of_f64(double x, const double table[2][16], double two, double two_low, double scale,
                                   double scale_low) {
    uint64_t place;
    double k, r = ht_log_reduced_f64(x, &k, &place);
    place >>= 48;
    double whole = fma(k, two, table[0][place & 15]), low = fma(k, two_low, table[1][place & 15]);
    double part = r * scale, sum = whole + part;
    low += fma(r, scale_low, fma(r, scale, -part));
    low = fma(ht_log_rest_f64(r), scale, low) + ht_sum_low_f64(whole, part, sum);
    double y = sum + low;
    return ht_is_special_f64(x) ? ht_log_special_f64(x, y) : y;
}
static inline double ht_log_f64(double x) {
    uint64_t place;
    double k, r = ht_log_reduced_f64(x, &k, &place);
    place >>= 48;
    double whole = fma(k, 0x1.62e42fefa3800p-1, ht_log_table[0][0][place & 15]), sum = whole + r;
    double low = fma(k, 0x1.ef35793c76730p-45, ht_log_table[0][1][place & 15]);
    low += ht_log_rest_f64(r) + ht_sum_low_f64(whole, r, sum);
    double y = sum + low;
    return ht_is_special_f64(x) ? ht_log_special_f64(x, y) : y;
}
static inline double ht_log2_f64(double x) {
    return ht_log_of_f64(x, ht_log_table[1], 1.0, 0.0, HT_WIDE_LOG2_E, 0x1.777d0ffda0d24p-56);
}
static inline double ht_log10_f64(double x) {
    return ht_log_of_f64(x, ht_log_table[2], 0x1.34413509f8000p-2, -0x1.80433b83b532ap-44, 0x1.bcb7b1526e50ep-2,
                         0x1.95355baaafad3p-57);
}

/* log(1 + x): the rounding error of 1 + x is corrected to first order. */
static inline double ht_log1p_f64(double x) {
    uint64_t place;
    double u = 1.0 + x, back = u - 1.0, lost = 1.0 - (u - back) + (x - back);
    double k, r = ht_log_reduced_f64(u, &k, &place);
    uint64_t down = UINT64_C(0x7ff0000000000000) - (place & UINT64_C(0x7ff0000000000000)); /* 2^(1 - k) */
    place >>= 48;
    double r_low = lost * ht_double_from_bits(down) * ht_log_factors[place & 15];
    double whole = fma(k, 0x1.62e42fefa3800p-1, ht_log_table[0][0][place & 15]), sum = whole + r;
    double low = fma(k, 0x1.ef35793c76730p-45, ht_log_table[0][1][place & 15]);
    low = fma(r_low, fma(-r, 0.5, 0.5), low) + (ht_log_rest_f64(r) + ht_sum_low_f64(whole, r, sum));
    double y = sum + low;
    if (ht_is_special_f64(u)) y = ht_log_special_f64(u, y);
    return fabs(x) < 0x1p-54 ? x : y;
}

/* log(e^a + e^b) without overflow; an infinite maximum is the result. */
static inline double ht_logaddexp_f64(double a, double b) {
    double high = ht_max_f64(a, b), low = ht_min_f64(b, a); /* a NaN operand reaches high or low */
    double y = high + ht_log1p_f64(ht_exp_f64(low - high));
    bool endless = fabs(high) == (double)INFINITY || low == -(double)INFINITY;
    y = endless ? high : y;
    double sum = a + b;
    return isnan(a) || isnan(b) ? sum : y;
}

/* ---- sin, cos, tan ---- */

/* Cody-Waite reduction x = quarters * pi / 2 + r + *r_low, quarters in the low bits of *n. Beyond 2^30 ht_far_angle_parts
 * reduces. */
static inline double ht_angle_parts_f64(double x, double *n, double *r_low) {
    *n = fma(x, HT_TWO_OVER_PI, HT_ROUND_MAGIC);
    double whole = *n - HT_ROUND_MAGIC, first = fma(-whole, HT_HALF_PI_HIGH, x); /* exact */
    double piece = whole * HT_HALF_PI_LOW, piece_low = fma(whole, HT_HALF_PI_LOW, -piece), r = first - piece;
    *r_low = fma(-whole, -0x1.f1976b7ed8fbcp-110, first - r - piece - piece_low);
    return fabs(x) > 0x1p+30 ? ht_far_angle_parts(x, n, r_low) : r;
}

/* sin and cos of r + r_low, |r| <= pi / 4, as double-word numbers. */
static inline double ht_sin_reduced_f64(double r, double r_low, double *low) {
    double z = r * r, q = fma(fma(-0x1.a7257c29d137ap-41, z, 0x1.611864a1260c4p-33), z, -0x1.ae6443538e000p-26);
    q = ht_below4_f64(q, z, -0x1.5555555555555p-3, 0x1.111111111109ap-7, -0x1.a01a01a00a482p-13, 0x1.71de3a44ca76dp-19);
    double rest = fma(z * r, q, fma(-(0.5 * z), r_low, r_low)), y = r + rest;
    *low = ht_sum_low_f64(r, rest, y);
    return y;
}
static inline double ht_cos_reduced_f64(double r, double r_low, double *low) {
    double z = r * r, half = 0.5 * z, first = 1.0 - half;
    double q = fma(-0x1.8fa99010a4425p-37, z, 0x1.1ee9e1583270bp-29);
    q = ht_below4_f64(q, z, 0x1.555555555554bp-5, -0x1.6c16c16c1504bp-10, 0x1.a01a019c9773cp-16,
                      -0x1.27e4f7f8e48edp-22);
    double rest = 1.0 - first - half + fma(z * z, q, fma(-r, r_low, fma(r, r, -z) * -0.5));
    double y = first + rest;
    *low = ht_sum_low_f64(first, rest, y);
    return y;
}

/* True where the number of quarters is even. */
static inline bool ht_is_even_f64(double n) { return !(ht_double_bits(n) & 1); }
/* y with its sign flipped where bit 1 of n + shift is set. */
static inline double ht_turned_by_f64(double y, double n, uint64_t shift) {
    uint64_t sign = ((ht_double_bits(n) + shift) & 2) << 62;
    return ht_double_from_bits(ht_double_bits(y) ^ sign);
}

static inline double ht_sin_f64(double x) {
    double n, r_low, low, r = ht_angle_parts_f64(x, &n, &r_low);
    double s = ht_sin_reduced_f64(r, r_low, &low), c = ht_cos_reduced_f64(r, r_low, &low);
    double y = ht_turned_by_f64(ht_is_even_f64(n) ? s : c, n, 0);
    return fabs(x) < 0x1p-27 ? x : y;
}
static inline double ht_cos_f64(double x) {
    double n, r_low, low, r = ht_angle_parts_f64(x, &n, &r_low);
    double s = ht_sin_reduced_f64(r, r_low, &low), c = ht_cos_reduced_f64(r, r_low, &low);
    return ht_turned_by_f64(ht_is_even_f64(n) ? c : s, n, 1);
}

/* sin / cos, or -cos / sin after an odd number of quarters. */
static inline double ht_tan_f64(double x) {
    double n, r_low, s_low, c_low, r = ht_angle_parts_f64(x, &n, &r_low);
    double s = ht_sin_reduced_f64(r, r_low, &s_low), c = ht_cos_reduced_f64(r, r_low, &c_low);
    bool even = ht_is_even_f64(n);
    double top = even ? s : -c, top_low = even ? s_low : -c_low;
    double bottom = even ? c : s, bottom_low = even ? c_low : s_low, y = top / bottom;
    double left = fma(-y, bottom_low, fma(-y, bottom, top) + top_low);
    return fabs(x) < 0x1p-27 ? x : fma(left, ht_about_inverse_f64(bottom), y);
}

/* ---- inverse functions ---- */

/* atan(t + t_low) - t for 0 <= t <= 1; the slope of atan is about 1 - t^2 / 2. */
static inline double ht_atan_rest_f64(double t, double t_low) {
    double z = t * t, low = fma(z * -0.5, t_low, t_low), q = -0x1.1f9e8f715423bp-17;
    q = ht_below4_f64(q, z, -0x1.6e0d17d8f213ap-8, 0x1.1852aeeb9a8bap-9, -0x1.349c22b751ae8p-11, 0x1.b004f7d6108e4p-14);
    q = ht_below4_f64(q, z, -0x1.0c558792bc6c7p-5, 0x1.abc5c237b3655p-6, -0x1.30326c247ae79p-6, 0x1.7182f4733ae39p-7);
    q = ht_below4_f64(q, z, -0x1.aed8f06ab5664p-5, 0x1.84af263535c22p-5, -0x1.5f15131c27296p-5, 0x1.38e1c6e214756p-5);
    q = ht_below4_f64(q, z, -0x1.745d15c2a649ap-4, 0x1.3b139b27f4b3ap-4, -0x1.11102cbb81addp-4, 0x1.e1d43e3b82b16p-5);
    q = ht_below4_f64(q, z, -0x1.555555555554cp-2, 0x1.9999999998b43p-3, -0x1.2492492453831p-3, 0x1.c71c71b56c452p-4);
    return fma(z * t, q, low);
}

/* base + sign * (t + rest) for a base that is a multiple of pi / 2. */
static inline double ht_turned_f64(double base, double sign, double t, double rest) {
    double part = sign * t, sum = base + part;
    double low = fma(sign, rest, base * 0x1.678afae35cdd1p-55); /* relative error of pi in f64 */
    return sum + (ht_sum_low_f64(base, part, sum) + low);
}

static inline double ht_atan_f64(double x) {
    double a = ht_min_f64(0x1p+80, fabs(x)), one = 1.0;
    bool steep = a > one;
    double above = steep ? one : a, below = steep ? a : one, t = above / below;
    double t_low = t * fma(-t, below, above); /* t is a, exactly, or 1 / below */
    double y = ht_turned_f64(steep ? HT_HALF_PI_HIGH : 0.0, steep ? -1.0 : one, t, ht_atan_rest_f64(t, t_low));
    return copysign(fabs(y), x);
}

static inline double ht_atan2_f64(double y, double x) {
    const double zero = 0.0, one = 1.0;
    double a = fabs(y), b = fabs(x);
    double big = ht_max_f64(a, b), small = ht_min_f64(b, a); /* a NaN operand reaches big or small */
    if (big > 0x1p+900 || big < 0x1p-900) {
        double factor = big > one ? 0x1p-400 : 0x1p+400, infinity = (double)INFINITY;
        bool endless = big == infinity, both = endless && small == infinity;
        double scaled = isnan(small) ? small : endless ? zero : small * factor;
        small = both ? one : scaled;
        big = both ? one : ht_min_f64(0x1p+700, ht_max_f64(0x1p-700, big * factor));
    }
    double t = small / big, t_low = fma(-t, big, small) * ht_about_inverse_f64(big);
    bool steep = a > b, left = copysign(one, x) < zero;
    double base = steep ? HT_HALF_PI_HIGH : left ? 2.0 * HT_HALF_PI_HIGH : zero;
    double sign = left ? (steep ? one : -1.0) : steep ? -1.0 : one;
    double angle = ht_turned_f64(base, sign, t, ht_atan_rest_f64(t, t_low));
    return copysign(fabs(angle), y);
}

/* asin(s) = s + *rest; for |x| > 1/2 the result is turned: s^2 = (1 - |x|) / 2, asin |x| = pi / 2 - 2 asin s. */
static inline double ht_asin_parts_f64(double a, bool far, double *rest) {
    double z = far ? (1.0 - a) * 0.5 : a * a, root = sqrt(z), s = far ? root : a;
    double root_low = fma(-root, root, z) * (0.5 * ht_about_inverse_f64(root));
    double q = 0x1.0af379b092117p-5;
    q = ht_below4_f64(q, z, 0x1.6111c74a88316p-7, 0x1.e878ce55107aep-9, 0x1.62daa95076b68p-6, -0x1.56eedd3e5c88ep-6);
    q = ht_below4_f64(q, z, 0x1.6e8bde5eef66dp-6, 0x1.1c49f9e9a13dep-6, 0x1.ca1ea227054eep-7, 0x1.758d268ee4417p-7);
    q = ht_below4_f64(q, z, 0x1.5555555555577p-3, 0x1.333333332e1b5p-4, 0x1.6db6db7209136p-5, 0x1.f1c71a992177dp-6);
    *rest = fma(z * s, q, far ? root_low : 0.0);
    return s;
}
static inline double ht_asin_f64(double x) {
    double a = fabs(x), rest;
    bool far = a > 0.5;
    double s = ht_asin_parts_f64(a, far, &rest);
    double y = ht_turned_f64(far ? HT_HALF_PI_HIGH : 0.0, far ? -2.0 : 1.0, s, rest);
    return copysign(fabs(y), x);
}
static inline double ht_acos_f64(double x) {
    double a = fabs(x), rest, zero = 0.0, one = 1.0;
    bool far = a > 0.5, left = x < zero;
    double s = ht_asin_parts_f64(a, far, &rest);
    double base = far ? (left ? 2.0 * HT_HALF_PI_HIGH : zero) : HT_HALF_PI_HIGH;
    double size = far ? 2.0 : one, turn = far ? (left ? -1.0 : one) : left ? one : -1.0;
    return ht_turned_f64(base, size * turn, s, rest);
}

/* ---- powers ---- */

/* log(x) as a double-word number, with a relative error of 2^-63, for positive, normal, finite x. r_low is the rounding
 * error of r: log(1 + r + r_low) = log(1 + r) + r_low (1 - r). The coefficient 1/3 of r^3 is split into 1/4 and the
 * rest, which is part of q, to keep the rounding errors of q small. */
static inline double ht_log_in_two_f64(double x, double *low) {
    uint64_t place;
    double k, m = ht_log_parts_f64(x, &k, &place);
    place >>= 48;
    double factor = ht_log_factors[place & 15], product = m * factor, one = 1.0, r = fma(m, factor, -one);
    double r_low = product - one - r + fma(m, factor, -product);
    double whole = fma(k, 0x1.62e42fefa3800p-1, ht_log_table[0][0][place & 15]);
    double whole_low = fma(k, 0x1.ef35793c76730p-45, ht_log_table[0][1][place & 15]);
    double z = r * r, z_low = fma(r, r, -z), minus_half = -0.5, square = minus_half * z, cube = z * r;
    double q = ht_below4_f64(0x1.7507cf779736ep-4, r, 0x1.249249202559ep-3, -0x1.ffffb66669acbp-4, 0x1.c71c6891dcb73p-4,
                             -0x1.9aa2d6520e8dbp-4);
    q = ht_below4_f64(q, r, 0x1.5555555555555p-4, -0x1.ffffffffffd45p-3, 0x1.999999999a718p-3, -0x1.55555559995acp-3);
    double first = whole + r, sum = first + square;
    double rest = ht_sum_low_f64(whole, r, first) + ht_sum_low_f64(first, square, sum);
    rest += fma(-r, r_low, whole_low + r_low);
    rest = fma(z_low, fma(r, 0x1.5555555555555p-2, minus_half), rest);
    rest = fma(cube, 0.25, fma(cube, q, rest));
    double y = sum + rest;
    *low = ht_sum_low_f64(sum, rest, y);
    return y;
}

/* e^(x + low) for |x| <= 746, |low| <= 2^-20. */
static inline double ht_exp_in_two_f64(double x, double low) {
    double n, r_low, first = ht_exp_parts_f64(x, &n, &r_low), added = r_low + low, r = first + added;
    double rest = fma(r * r, ht_exp_rest_f64(r), ht_sum_low_f64(first, added, r)), one = 1.0, sum = one + r;
    return ht_scale_f64(sum + (ht_sum_low_f64(one, r, sum) + rest), n - HT_ROUND_MAGIC);
}

/* x^b from y = |x|^b: signs and special values, as C's pow. */
static inline double ht_pow_special_f64(double x, double b, double y) {
    const double zero = 0.0, one = 1.0, infinity = (double)INFINITY, a = fabs(x), size = fabs(b);
    const bool up = b > zero;
    y = a < 0x1p-1022 ? (up ? zero : infinity) : y;
    y = a == infinity ? (up ? infinity : zero) : y;
    double endless = a > one ? (up ? infinity : zero) : up ? zero : infinity;
    y = size == infinity ? (a == one ? one : endless) : y;
    /* Numbers of 2^52 and more are integers, of 2^53 and more even integers; infinity counts as even. */
    const double bound = 0x1p+52, half = ht_min_f64(size * 0.5, bound);
    bool far = size > bound, whole = far || size + bound - bound == size;
    bool even = half + bound - bound == half;
    double sign = copysign(one, x) < zero ? -1.0 : one;
    y = whole ? y * (even ? one : sign) : y;
    double shown = a < 0x1p-1022 ? zero : x;
    double broken = shown < zero && a < infinity ? (double)NAN : y;
    broken = size == infinity ? y : broken;
    y = whole ? y : broken;
    y = isnan(x) ? x : y;
    y = isnan(b) ? b : y;
    y = b == zero ? one : y;
    return x == one ? one : y;
}

/* x^(1/2): sqrt(x), but +0 for -0 and infinity for minus infinity, as C's pow. */
static inline double ht_pow_half_f64(double x) {
    double root = sqrt(x + 0.0);
    return x == -(double)INFINITY ? (double)INFINITY : root;
}
/* Exponents 2, 1, 1/2 and -1, computed as x * x, x, sqrt(x) and 1 / x. */
static inline double ht_pow_simple_f64(double x, double b, double y) {
    y = b == 2.0 ? x * x : y;
    y = b == 1.0 ? x : y;
    y = b == 0.5 ? ht_pow_half_f64(x) : y;
    return b == -1.0 ? 1.0 / x : y;
}

static inline double ht_pow_f64(double x, double b) {
    double log_low, log = ht_log_in_two_f64(fabs(x), &log_low), product = b * log;
    double low = fma(b, log_low, fma(b, log, -product));
    /* Mantissa 0: b is a power of 2, 0 or infinite. */
    bool simple = ht_double_bits(b) << 12 == 0;
    bool far = fabs(product) > 708.0 || isnan(product);
    if (!(simple || far) && !ht_is_special_f64(x)) return ht_exp_in_two_f64(product, low);
    /* The result is 0 or infinite where `low` is large or NaN. */
    product = ht_max_f64(ht_min_f64(product, 746.0), -746.0);
    low = ht_max_f64(ht_min_f64(low, 0x1p-20), -0x1p-20);
    return ht_pow_simple_f64(x, b, ht_pow_special_f64(x, b, ht_exp_in_two_f64(product, low)));
}

#endif
