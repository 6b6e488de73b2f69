/* Scalar lane: one f64 with the function names of cpu/vector/simd.h, for the template base/math_double_lanes.h. */
#ifndef HT_BASE_LANE_DOUBLE_H
#define HT_BASE_LANE_DOUBLE_H

#include "base/lane.h"

typedef double v1d;
typedef int64_t v1l;

static inline v1d v1d_set1(double x) { return x; }
static inline v1d v1d_zero(void) { return 0.0; }
static inline v1d v1d_neg(v1d a) { return -a; }
static inline v1d v1d_abs(v1d a) { return fabs(a); }
static inline v1d v1d_with_sign(v1d a, v1d b) { return copysign(a, b); }
static inline v1d v1d_add(v1d a, v1d b) { return a + b; }
static inline v1d v1d_sub(v1d a, v1d b) { return a - b; }
static inline v1d v1d_mul(v1d a, v1d b) { return a * b; }
static inline v1d v1d_div(v1d a, v1d b) { return a / b; }
static inline v1d v1d_fma(v1d a, v1d b, v1d c) { return fma(a, b, c); }
static inline v1d v1d_fms(v1d a, v1d b, v1d c) { return fma(a, b, -c); }
static inline v1d v1d_fnma(v1d a, v1d b, v1d c) { return fma(-a, b, c); }
static inline v1d v1d_sqrt(v1d a) { return sqrt(a); }
static inline v1d v1d_min(v1d a, v1d b) { return a < b ? a : b; }
static inline v1d v1d_max(v1d a, v1d b) { return a > b ? a : b; }
static inline m1 v1d_lt(v1d a, v1d b) { return a < b; }
static inline m1 v1d_gt(v1d a, v1d b) { return a > b; }
static inline m1 v1d_eq(v1d a, v1d b) { return a == b; }
static inline m1 v1d_is_nan(v1d a) { return isnan(a); }
static inline v1d v1d_select(m1 m, v1d a, v1d b) { return m ? a : b; }

static inline v1l v1l_set1(int64_t x) { return x; }
static inline v1l v1l_add(v1l a, v1l b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline v1l v1l_sub(v1l a, v1l b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline v1l v1l_and(v1l a, v1l b) { return a & b; }
static inline v1l v1l_or(v1l a, v1l b) { return a | b; }
static inline v1l v1l_xor(v1l a, v1l b) { return a ^ b; }
static inline m1 v1l_eq(v1l a, v1l b) { return a == b; }
static inline m1 v1l_gt(v1l a, v1l b) { return a > b; }
static inline v1l v1l_shl(v1l a, int n) { return (int64_t)((uint64_t)a << n); }
static inline v1l v1l_shr(v1l a, int n) { return (int64_t)((uint64_t)a >> n); }
static inline v1l v1d_bits(v1d a) {
    v1l bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
static inline v1d v1d_from_bits(v1l a) {
    v1d x;
    memcpy(&x, &a, sizeof x);
    return x;
}
static inline v1d v1d_pick(const double table[16], v1l index) { return table[index & 15]; }

/* x * 2^n by two factors that are normal numbers. */
static inline v1d v1d_scale(v1d v, v1d n) {
    const v1l biased = v1l_and(v1d_bits(n + (0x1p+52 + 2048.0)), 0x1fff), half = biased >> 1;
    return v * v1d_from_bits(v1l_shl(half - 1, 52)) * v1d_from_bits(v1l_shl(biased - half - 1, 52));
}

#endif
