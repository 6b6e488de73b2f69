/* Scalar lane: one f32 with the function names of cpu/vector/simd.h, so that base/math_lanes.h compiles for one lane
 * and for sixteen. */
#ifndef HT_BASE_LANE_H
#define HT_BASE_LANE_H

#include "base/math.h"

#include <stdbool.h>

typedef float v1f;
typedef int32_t v1i;
typedef bool m1;

static inline v1f v1f_set1(float x) { return x; }
static inline v1f v1f_zero(void) { return 0.0f; }
static inline v1f v1f_neg(v1f a) { return -a; }
static inline v1f v1f_abs(v1f a) { return fabsf(a); }
static inline v1f v1f_with_sign(v1f a, v1f b) { return copysignf(a, b); }
static inline v1f v1f_add(v1f a, v1f b) { return a + b; }
static inline v1f v1f_sub(v1f a, v1f b) { return a - b; }
static inline v1f v1f_mul(v1f a, v1f b) { return a * b; }
static inline v1f v1f_div(v1f a, v1f b) { return a / b; }
static inline v1f v1f_fma(v1f a, v1f b, v1f c) { return fmaf(a, b, c); }
static inline v1f v1f_fms(v1f a, v1f b, v1f c) { return fmaf(a, b, -c); }
static inline v1f v1f_fnma(v1f a, v1f b, v1f c) { return fmaf(-a, b, c); }
static inline v1f v1f_sqrt(v1f a) { return sqrtf(a); }
static inline v1f v1f_min(v1f a, v1f b) { return a < b ? a : b; }
static inline v1f v1f_max(v1f a, v1f b) { return a > b ? a : b; }
static inline v1f v1f_round(v1f a) { return rintf(a); }
static inline v1f v1f_scale(v1f a, v1f n) { return ht_scale_f32(a, n); }
static inline v1f v1f_exp(v1f a) { return ht_exp_f32(a); }
static inline m1 v1f_lt(v1f a, v1f b) { return a < b; }
static inline m1 v1f_gt(v1f a, v1f b) { return a > b; }
static inline m1 v1f_eq(v1f a, v1f b) { return a == b; }
static inline m1 v1f_is_nan(v1f a) { return isnan(a); }
static inline v1f v1f_select(m1 m, v1f a, v1f b) { return m ? a : b; }
static inline m1 m1_and(m1 a, m1 b) { return a && b; }
static inline m1 m1_or(m1 a, m1 b) { return a || b; }
static inline bool m1_any(m1 m) { return m; }

static inline v1i v1i_set1(int32_t x) { return x; }
static inline v1i v1i_add(v1i a, v1i b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static inline v1i v1i_sub(v1i a, v1i b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
static inline v1i v1i_and(v1i a, v1i b) { return a & b; }
static inline v1i v1i_or(v1i a, v1i b) { return a | b; }
static inline v1i v1i_xor(v1i a, v1i b) { return a ^ b; }
static inline m1 v1i_eq(v1i a, v1i b) { return a == b; }
static inline v1i v1i_shl(v1i a, int n) { return (int32_t)((uint32_t)a << n); }
static inline v1i v1i_sra(v1i a, int n) { return a < 0 ? ~(~a >> n) : a >> n; }
static inline v1f v1f_from_i(v1i a) { return (float)a; }
static inline v1i v1f_bits(v1f a) { return (int32_t)ht_float_bits(a); }
static inline v1f v1f_from_bits(v1i a) { return ht_float_from_bits((uint32_t)a); }

#endif
