/* Elementary functions of one f32: the instance of base/math_lanes.h on one lane, and functions computed in f64 and
 * rounded once, with errors of at most 0.51 ulp (tests/ops/test_math.c). The latter are branch-free sequences of IEEE
 * operations: compilers vectorise loops of them with the same bits. Functions named `easy` cover a part of the domain,
 * which ht_is_easy_* tests. Rounding at the end gives the infinities and zeros, as f64 does not overflow. */
#ifndef HT_BASE_MATH_WIDE_H
#define HT_BASE_MATH_WIDE_H

#include "base/lane.h"

#define HT_V(thing)     v1##thing
#define HT_MASK         m1
#define HT_M(thing)     m1_##thing
#define HT_LANES_INLINE static inline
#include "base/math_lanes.h"
#undef HT_V
#undef HT_MASK
#undef HT_M
#undef HT_LANES_INLINE

#define HT_WIDE_LN2     0x1.62e42fefa39efp-1
#define HT_WIDE_LN2_LOW 0x1.abc9e3b39803fp-56
#define HT_WIDE_LOG2_E  0x1.71547652b82fep+0

static inline uint64_t ht_double_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double ht_double_from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- building blocks in f64: polynomials interpolate at Chebyshev nodes, with relative errors below 2^-35 ---- */

/* c0 + c1 x + c2 x^2 + c3 x^3 + q x^4. */
static inline double ht_below4_f64(double q, double x, double c0, double c1, double c2, double c3) {
    return fma(fma(fma(fma(q, x, c3), x, c2), x, c1), x, c0);
}

/* e^r - 1 and *power = 2^n for x = n ln 2 + r; x is clamped to +-700, beyond the range of f32. */
static inline double ht_wide_exp_reduced(double x, double *power) {
    x = x < -700.0 ? -700.0 : x;
    x = x > 700.0 ? 700.0 : x;
    double sum = fma(x, HT_WIDE_LOG2_E, HT_ROUND_MAGIC), n = sum - HT_ROUND_MAGIC;
    double r = fma(-n, HT_WIDE_LN2_LOW, fma(-n, HT_WIDE_LN2, x));
    double p = fma(0x1.a13c6b2795afep-16, r, 0x1.a1851d44489acp-13);
    p = fma(p, r, 0x1.6c16686dabb06p-10);
    p = fma(p, r, 0x1.1110a1c986d0bp-7);
    p = ht_below4_f64(p, r, 0x1.fffffffff54e3p-1, 0x1.fffffffffddcap-2, 0x1.55555580f90eap-3, 0x1.55555566c863ep-5);
    *power = ht_double_from_bits((ht_double_bits(sum) << 52) + (UINT64_C(1023) << 52));
    return r * p;
}

static inline double ht_wide_exp(double x) {
    double power, p = ht_wide_exp_reduced(x, &power);
    return fma(power, p, power);
}

/* log(m) for x = 2^k m, m in [sqrt(1/2), sqrt 2), x positive and finite; *k = k. */
static inline double ht_wide_log_reduced(double x, double *k) {
    uint64_t bits = ht_double_bits(x);
    uint64_t e = (bits - UINT64_C(0x3fe6a09e667f3bcd) + (UINT64_C(1023) << 52)) >> 52; /* k + 1023 */
    *k = ht_double_from_bits(e | UINT64_C(0x4330000000000000)) - (0x1p52 + 1023.0);
    double f = ht_double_from_bits(bits - ((e - 1023) << 52)) - 1.0;
    double s = f / (2.0 + f), z = s * s;
    double p = fma(0x1.91964a6f6a870p-3, z, 0x1.c620b4d69d21fp-3);
    p = ht_below4_f64(p, z, 0x1.fffffffffff12p+0, 0x1.5555555671e8cp-1, 0x1.9999962a792dbp-2, 0x1.249438c79022ap-2);
    return s * p;
}

static inline double ht_wide_log(double x) {
    double k, y = ht_wide_log_reduced(x, &k);
    return fma(k, HT_WIDE_LN2, y);
}

/* Logarithm of x: y, or the special result for x <= 0, infinite or NaN. */
static inline double ht_wide_log_special(double x, double y) {
    y = x == 0.0 ? -(double)INFINITY : y;
    y = x < 0.0 ? (double)NAN : y;
    return x < (double)INFINITY ? y : x;
}

/* erfc(y) for y >= 0: e^(-y^2) times a polynomial in (y - 3) / (y + 3); 0 for y > 10.5, below the range of f32. */
static inline double ht_wide_erfc(double y) {
    double near = y > 10.5 ? 10.5 : y, u = (near - 3.0) / (near + 3.0);
    double p = fma(-0x1.4d717012777dbp-24, u, -0x1.64a3df656151ap-25);
    p = fma(p, u, 0x1.500d1915e63d3p-20);
    p = fma(p, u, 0x1.fa776f2c3c0ddp-20);
    p = fma(p, u, -0x1.0f1a289c69a53p-17);
    p = ht_below4_f64(p, u, -0x1.390a485f77318p-11, 0x1.7b84a766f7b7dp-15, 0x1.0ceba9fadd6fdp-14,
                      -0x1.acb7221af91b0p-17);
    p = ht_below4_f64(p, u, 0x1.258b13a873b9bp-4, -0x1.8fa58eac19b8dp-6, 0x1.17c840e158626p-8, 0x1.7310354e7bf8ep-11);
    p = ht_below4_f64(p, u, 0x1.6e9827d229bcbp-3, -0x1.4e102b9cf818ep-2, 0x1.f6ff20411c171p-3, -0x1.336ffbef28281p-3);
    return y > 10.5 ? 0.0 : p * ht_wide_exp(-(near * near));
}

/* ---- functions of base/math_lanes.h ---- */

static inline float ht_log_f32(float x) { return v1f_log(x); }
static inline float ht_tanh_f32(float x) { return v1f_tanh(x); }
static inline float ht_sigmoid_f32(float x) { return v1f_sigmoid(x); }
static inline float ht_silu_f32(float x) { return v1f_silu(x); }
static inline float ht_gelu_tanh_f32(float x) { return v1f_gelu_tanh(x); }
static inline float ht_expm1_reduced(float x, float *n) { return v1f_expm1_reduced(x, n); }
static inline float ht_expm1_f32(float x) { return v1f_expm1(x); }
static inline float ht_sinh_f32(float x) { return v1f_sinh(x); }
static inline float ht_cosh_f32(float x) { return v1f_cosh(x); }
static inline float ht_log2_f32(float x) { return v1f_log2(x); }
static inline float ht_log10_f32(float x) { return v1f_log10(x); }
static inline float ht_log1p_f32(float x) { return v1f_log1p(x); }
static inline float ht_pow_f32(float base, float exponent) { return v1f_pow(base, exponent); }
static inline float ht_atan_f32(float x) { return v1f_atan(x); }
static inline float ht_atan2_f32(float y, float x) { return v1f_atan2(y, x); }
static inline float ht_asin_f32(float x) { return v1f_asin(x); }
static inline float ht_acos_f32(float x) { return v1f_acos(x); }

/* Functions of f16 values whose result is rounded to f16 (base/math_half.h). */
static inline float ht_log_half(float x) { return v1f_log_half(x); }
static inline float ht_log2_half(float x) { return v1f_log2_half(x); }
static inline float ht_log10_half(float x) { return v1f_log10_half(x); }
static inline float ht_expm1_half(float x) { return v1f_expm1_half(x); }
static inline float ht_sinh_half(float x) { return v1f_sinh_half(x); }
static inline float ht_cosh_half(float x) { return v1f_cosh_half(x); }
static inline float ht_sin_half(float x) { return v1f_sin_half(x); }
static inline float ht_cos_half(float x) { return v1f_cos_half(x); }
static inline float ht_tan_half(float x) { return v1f_tan_half(x); }
static inline float ht_asin_half(float x) { return v1f_asin_half(x); }
static inline float ht_acos_half(float x) { return v1f_acos_half(x); }
static inline float ht_atan_half(float x) { return v1f_atan_half(x); }

/* ---- exponentials and logarithms ---- */

/* log(1 + x) of an f32 value x: 1 + x is exact in f64 for |x| >= 2^-20. */
static inline double ht_wide_log1p(double x) {
    double y = ht_wide_log_special(1.0 + x, ht_wide_log(1.0 + x));
    return fabs(x) < 0x1p-20 ? x - 0.5 * x * x : y;
}

/* log(e^a + e^b) without overflow; an infinite maximum is the result. */
static inline float ht_logaddexp_f32(float a, float b) {
    double x = (double)a, y = (double)b, high = x > y ? x : y, low = x > y ? y : x;
    double sum = high + ht_wide_log1p(ht_wide_exp(low - high));
    sum = ((fabs(high) == (double)INFINITY) | (fabs(low) == (double)INFINITY)) ? high : sum;
    return (float)(((x != x) | (y != y)) ? x + y : sum);
}

/* ---- angles ---- */

static inline void ht_sincos_reduced(float r, uint32_t quarters, float *sine, float *cosine) {
    v1f_sincos_reduced(r, (int32_t)quarters, sine, cosine);
}

static inline void ht_sincos_f32(float x, float *sine, float *cosine) {
    float r;
    if (!isfinite(x)) {
        *sine = *cosine = NAN;
        return;
    }
    uint32_t quarters = fabsf(x) < 0x1p+30f ? ht_reduce_angle((double)x, &r) : ht_reduce_huge_angle(x, &r);
    ht_sincos_reduced(r, quarters, sine, cosine);
}

static inline float ht_sin_f32(float x) {
    float s, c;
    ht_sincos_f32(x, &s, &c);
    return s;
}

static inline float ht_cos_f32(float x) {
    float s, c;
    ht_sincos_f32(x, &s, &c);
    return c;
}

/* Domain of ht_sin_easy, ht_cos_easy and ht_tan_easy. */
static inline int ht_is_easy_angle(float x) { return fabsf(x) < 0x1p+30f; }

static inline float ht_sin_easy(float x) {
    float r, s, c;
    uint32_t quarters = ht_reduce_angle((double)x, &r);
    ht_sincos_reduced(r, quarters, &s, &c);
    return s;
}
static inline float ht_cos_easy(float x) {
    float r, s, c;
    uint32_t quarters = ht_reduce_angle((double)x, &r);
    ht_sincos_reduced(r, quarters, &s, &c);
    return c;
}

/* tan of r + quarters * pi / 2, |r| <= pi / 4 */
static inline float ht_tan_reduced(double r, uint64_t quarters) {
    double z = r * r;
    double s = fma(-0x1.a94f3449b3310p-26, z, 0x1.71d72de46d603p-19);
    s = fma(s, z, -0x1.a019f89b22deep-13);
    s = fma(s, z, 0x1.1111110bd90c7p-7);
    s = fma(s, z, -0x1.5555555550ea3p-3);
    s = fma(s, z, 0x1.fffffffffffd9p-1) * r;
    double c = fma(0x1.1b8a18b167949p-29, z, -0x1.27df3d1d43778p-22);
    c = fma(c, z, 0x1.a019f7f62476ap-16);
    c = ht_below4_f64(c, z, 1.0, -0x1.fffffffffff78p-2, 0x1.555555554e75fp-5, -0x1.6c16c163bd246p-10);
    double above = quarters & 1 ? -c : s, below = quarters & 1 ? s : c;
    return (float)(above / below);
}
static inline float ht_tan_easy(float x) {
    double v = (double)x, sum = fma(v, HT_TWO_OVER_PI, HT_ROUND_MAGIC), n = sum - HT_ROUND_MAGIC;
    double r = fma(-n, HT_HALF_PI_LOW, fma(-n, HT_HALF_PI_HIGH, v));
    return ht_tan_reduced(r, ht_double_bits(sum));
}
static inline float ht_tan_f32(float x) {
    if (fabsf(x) < HT_LANES_ANGLE) return v1f_tan_near(x);
    if (ht_is_easy_angle(x)) return ht_tan_easy(x);
    if (!isfinite(x)) return NAN;
    double r;
    uint32_t quarters = ht_reduce_huge_angle_wide(x, &r);
    return ht_tan_reduced(r, quarters);
}

/* ---- the error function ---- */

static inline float ht_erf_f32(float x) {
    double v = (double)x, a = fabs(v), z = v * v;
    double p = fma(-0x1.c1a515de8637ap-24, z, 0x1.9ae0986f9de4fp-20);
    p = ht_below4_f64(p, z, 0x1.565ba0406c001p-8, -0x1.c0286cad68e02p-11, 0x1.f941bed7e7847p-14,
                      -0x1.f0705a1dde9aap-17);
    p = ht_below4_f64(p, z, 0x1.20dd750429b19p+0, -0x1.812746b0271ecp-2, 0x1.ce2f2197bc2efp-4, -0x1.b82ce15c3b7f8p-6);
    double far = copysign(1.0 - ht_wide_erfc(a), v);
    return (float)(a < 1.0 ? v * p : far);
}

/* x / 2 erfc(-x / sqrt 2) */
static inline float ht_gelu_f32(float x) {
    double v = (double)x, y = ht_wide_erfc(fabs(v) * 0x1.6a09e667f3bcdp-1);
    return (float)(0.5 * v * (v > 0.0 ? 2.0 - y : y));
}

/* x times a polynomial in w = -log(1 - x^2), or in sqrt(w): the variables of M. Giles, "Approximating the erfinv
 * function", GPU Computing Gems 2 (2011). The coefficients are not from that paper. */
static inline float ht_erfinv_f32(float x) {
    double v = (double)x, w = -ht_wide_log(fma(-v, v, 1.0)), t = w - 2.5;
    double p = fma(-0x1.1c891841cc541p-42, t, -0x1.6877f7adac08dp-36);
    p = ht_below4_f64(p, t, 0x1.d9a830ce080dep-27, -0x1.764ba3d49bfd5p-27, 0x1.c271209d00e07p-31,
                      0x1.19b3cd7a99119p-33);
    p = ht_below4_f64(p, t, 0x1.c9b4a9e8be47bp-13, -0x1.4f48f2f985be7p-18, -0x1.caad9c9fae48dp-19,
                      0x1.010c248165e84p-21);
    p = ht_below4_f64(p, t, 0x1.805c5cfd04b28p+0, 0x1.f91e8993fbf0ap-3, -0x1.11c3c466f1a57p-8, -0x1.4863cdbc7ff80p-10);
    double u = sqrt(w) - 3.0;
    double q = fma(-0x1.e354642230a97p-19, u, 0x1.2716899c3f586p-16);
    q = ht_below4_f64(q, u, -0x1.2a6d70fd8b2fdp-12, 0x1.ad95ad6f623c1p-13, -0x1.676e0c04c7a90p-15,
                      -0x1.8510f8715cd99p-16);
    q = ht_below4_f64(q, u, 0x1.7494e7ef3c18dp-8, -0x1.d27774604acdap-9, 0x1.8509d046792dap-10, -0x1.37829adeced5ep-13);
    q = ht_below4_f64(q, u, 0x1.6a9efbd6668acp+1, 0x1.006dca7a91530p+0, 0x1.3582cbe23d816p-7, -0x1.f4f1b7b1e207bp-8);
    double y = v * (w < 5.0 ? p : q);
    y = fabs(v) == 1.0 ? v * (double)INFINITY : y;
    return (float)(fabs(v) > 1.0 ? (double)NAN : y);
}

/* ---- remainders ---- */

/* Domain of ht_remainder_easy: b is finite and the quotient has fewer than 30 bits, so that trunc(a / b) * b is exact
 * in f64. */
static inline int ht_is_easy_remainder(float a, float b) {
    return (fabsf(a) < 0x1p+29f * fabsf(b)) & (fabsf(b) < INFINITY);
}
/* Remainder with the sign of b, from the remainder r of truncated division. */
static inline float ht_remainder_of_rest(float r, float b) {
    float moved = (r < 0.0f) != (b < 0.0f) ? r + b : r;
    return r == 0.0f ? copysignf(0.0f, b) : moved;
}
static inline float ht_remainder_easy(float a, float b) {
    double x = (double)a, y = (double)b, r = fma(-trunc(x / y), y, x), back = copysign(fabs(y), x);
    r = (r < 0.0) != (x < 0.0) && r != 0.0 ? r + back : r; /* the quotient was rounded up to an integer */
    return ht_remainder_of_rest((float)r, b);
}
static inline float ht_remainder_f32(float a, float b) {
    return ht_is_easy_remainder(a, b) ? ht_remainder_easy(a, b) : ht_remainder_of_rest(fmodf(a, b), b);
}

/* Domain of ht_remainder_easy_f64: the quotient has fewer than 53 bits, and b is far from denormal. The remainder is
 * exact, being a multiple of the last bit of b and smaller than b. */
static inline int ht_is_easy_remainder_f64(double a, double b) {
    return (fabs(a) < 0x1p+52 * fabs(b)) & (fabs(b) < (double)INFINITY) & (fabs(b) > 0x1p-900);
}
static inline double ht_remainder_of_rest_f64(double r, double b) {
    double moved = r + ((r < 0.0) != (b < 0.0) ? b : 0.0);
    return r == 0.0 ? copysign(0.0, b) : moved;
}
static inline double ht_remainder_easy_f64(double a, double b) {
    double r = fma(-trunc(a / b), b, a), back = copysign(fabs(b), a);
    /* Correction where the quotient was rounded up to an integer. gcc vectorises this addition, but not a selection. */
    r += (((r < 0.0) != (a < 0.0)) & (r != 0.0)) ? back : 0.0;
    return ht_remainder_of_rest_f64(r, b);
}
static inline double ht_remainder_f64(double a, double b) {
    return ht_is_easy_remainder_f64(a, b) ? ht_remainder_easy_f64(a, b) : ht_remainder_of_rest_f64(fmod(a, b), b);
}

#endif
