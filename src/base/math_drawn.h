/* Elementary functions of random distributions, bit-identical to MLX on a CPU: `logf` and `log1pf` of the C library, and
 * fixed sequences of f32 operations. They are less accurate than math_wide.h, which all other operations use. The
 * approximations are published, with coefficients rounded to f32:
 *   erfinv  N. Juffa, a minimax approximation in log(1 - x^2) in two parts, errors of 2.4 units in the last place
 *   exp     S. Moshier, Cephes Mathematical Library, exp2f
 *   erf     Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, absolute errors of 1.5e-7 */
#ifndef HT_BASE_MATH_DRAWN_H
#define HT_BASE_MATH_DRAWN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* c0 + c1 x + c2 x^2 + c3 x^3 + q x^4. */
static inline float ht_below4_f32(float q, float x, float c0, float c1, float c2, float c3) {
    return fmaf(fmaf(fmaf(fmaf(q, x, c3), x, c2), x, c1), x, c0);
}

/* 1 - x^2, the argument of the logarithm in erfinv. */
static inline float ht_drawn_erfinv_inner(float x) { return fmaf(x, 0.0f - x, 1.0f); }

/* erfinv(x), t = log(1 - x^2). Both branches are computed and one selected, so that loops vectorise. */
static inline float ht_drawn_erfinv_of(float x, float t) {
    float far = 3.03697567e-10f, near = 5.43877832e-9f;
    far = ht_below4_f32(far, t, 3.93552968e-4f, 2.84108955e-5f, 1.22150334e-6f, 2.93243101e-8f);
    far = ht_below4_f32(far, t, 8.40016484e-1f, -2.64646143e-1f, 4.83185798e-3f, 3.02698812e-3f);
    near = fmaf(near, t, 1.43285448e-7f);
    near = ht_below4_f32(near, t, -1.47697632e-4f, -5.61530760e-5f, 1.12963626e-7f, 1.22774793e-6f);
    near = ht_below4_f32(near, t, 8.86226892e-1f, -2.32015476e-1f, 1.15392581e-2f, 2.31468678e-3f);
    return x * (fabsf(t) > 6.125f ? far : near);
}

/* e^x = 2^n 2^rest with x log2(e) = n + rest; 2^rest is a polynomial. */
static inline float ht_drawn_exp(float x) {
    float held = x > 88.0f ? 88.0f : x;
    held = held < -88.0f ? -88.0f : held;
    held = x != x ? 0.0f : held;
    float scaled = held * 1.442695f, whole = floorf(scaled + 0.5f), rest = scaled - whole;
    float p = 1.535336188319500e-4f, power;
    p = fmaf(p, rest, 1.339887440266574e-3f);
    p = fmaf(p, rest, 9.618437357674640e-3f);
    p = ht_below4_f32(p, rest, 1.0f, 6.931472028550421e-1f, 2.402264791363012e-1f, 5.550332471162809e-2f);
    const uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    float y = x > 88.0f ? INFINITY : power * p;
    y = x < -88.0f ? 0.0f : y;
    return x != x ? x : y;
}

static inline float ht_drawn_erf(float x) {
    float t = 1.0f / fmaf(0.3275911f, fabsf(x), 1.0f), p = fmaf(1.061405429f, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f);
    p = fmaf(p, t, -0.284496736f);
    p = fmaf(p, t, 0.254829592f);
    float y = fmaf(-ht_drawn_exp(-(x * x)) * t, p, 1.0f);
    return x > 0.0f ? y : -y;
}

#endif
