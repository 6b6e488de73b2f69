/* Elementary functions of f64, independent of the C library's version: base/math_double_lanes.h on one lane, and its
 * tables. */
#ifndef HT_BASE_MATH_DOUBLE_H
#define HT_BASE_MATH_DOUBLE_H

#include "base/lane_double.h"
#include "base/math_wide.h"

/* Tables of logarithms: x = 2^k m, m >= 45/64, with sixteen intervals of m, one of them around 1. ht_log_factors has a
 * short factor f per interval, m f = 1 + r; r is exact around 1, nearly exact elsewhere. ht_log_table[base][0 or 1] has
 * the high and low part of -log(f) to base e, 2 and 10. High parts have 42 fraction bits, as the high part of log(2)
 * has, so that k log(2) plus a high part is exact. */
#define HT_LOG_START INT64_C(0x3fe6800000000000)
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
/* ht_far_angle_parts on one lane, replacing a reduction by d_angle_parts. */
static inline v1d v1d_far_angle_parts(v1d x, v1d r, v1d *n, v1d *r_low) {
    (void)r;
    return ht_far_angle_parts(x, n, r_low);
}

#define HT_V(thing)     v1##thing
#define HT_MASK         m1
#define HT_M(thing)     m1_##thing
#define HT_LANES_INLINE static inline
#include "base/math_double_lanes.h"
#undef HT_V
#undef HT_MASK
#undef HT_M
#undef HT_LANES_INLINE

#endif
