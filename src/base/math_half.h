/* Elementary functions of f16 values in f32 arithmetic: a part of the template base/math_lanes.h. Results are rounded
 * to the 11 bits of f16, so short polynomials suffice: their error is at most 0.0025 ulp of f16, and 999 of 1000
 * results are correctly rounded (tests/ops/test_math.c). Arguments are f16 values: at most 65504, never denormal in
 * f32. Coefficients are minimax fits. */

#define SIGNED(y, x) HT_V(f_with_sign)(y, x) /* restores the sign of 0; other y have the sign of x */

HT_LANES_INLINE F HT_V(f_poly4)(F x, float c0, float c1, float c2, float c3) {
    return FMA(HT_V(f_poly3)(x, c1, c2, c3), x, K(c0));
}

/* ---- logarithms ---- */

/* Logarithm to base b: scale = log_b(e), of_two = log_b(2). x = 2^k (1 + f) as in f_log_parts, with k kept in the exponent
 * bits. k is out of the range of f16 exactly for the special arguments: 0, infinity, NaN and x < 0. */
HT_LANES_INLINE F HT_V(f_log_of_half)(F x, double scale, double of_two) {
    const I bits = HT_V(f_bits)(x), exponent = HT_V(i_set1)((int32_t)0xff800000u);
    const I e = HT_V(i_and)(HT_V(i_sub)(bits, HT_V(i_set1)(HT_SQRT_HALF)), exponent);
    F k = HT_V(f_from_i)(e), f = SUB(HT_V(f_from_bits)(HT_V(i_sub)(bits, e)), K(1.0f));
    F q = HT_V(f_poly4)(f, (float)(-2.490974516e-01 * scale), (float)(2.049633116e-01 * scale),
                        (float)(-1.866784990e-01 * scale), (float)(1.189609468e-01 * scale));
    q = FMA(FMA(q, f, K((float)(3.331450820e-01 * scale))), f, K((float)(-5.000111461e-01 * scale)));
    F y = FMA(k, K((float)(0x1p-23 * of_two)), MUL(f, FMA(q, f, K((float)(1.000000954 * scale)))));
    return HT_M(any)(HT_V(f_gt)(HT_V(f_abs)(k), K(100 * 0x1p+23f))) ? HT_V(f_log_special)(x, y) : y;
}
HT_LANES_INLINE F HT_V(f_log_half)(F x) { return HT_V(f_log_of_half)(x, 1.0, 0x1.62e42fefa39efp-1); }
HT_LANES_INLINE F HT_V(f_log2_half)(F x) { return HT_V(f_log_of_half)(x, 0x1.71547652b82fep+0, 1.0); }
HT_LANES_INLINE F HT_V(f_log10_half)(F x) { return HT_V(f_log_of_half)(x, 0x1.bcb7b1526e50ep-2, 0x1.34413509f79ffp-2); }

/* ---- exponentials: results overflow f16 for |x| >= 12 ---- */

/* Argument reduction x = n ln 2 + r; *sum = n + HT_LANES_MAGIC. */
HT_LANES_INLINE F HT_V(f_exp_parts_half)(F x, F *sum) {
    *sum = FMA(x, K(HT_LOG2_E), K(HT_LANES_MAGIC));
    return FNMA(SUB(*sum, K(HT_LANES_MAGIC)), K(HT_LN2_HIGH), x);
}

HT_LANES_INLINE F HT_V(f_expm1_half)(F x) {
    F n, r = HT_V(f_exp_parts_half)(HT_V(f_max)(K(-18.0f), HT_V(f_min)(K(12.0f), x)), &n);
    F power = HT_V(f_power_of_sum)(n, 0);
    F q = HT_V(f_poly4)(r, 4.999940097e-01f, 1.666683108e-01f, 4.187271744e-02f, 8.338075131e-03f);
    return SIGNED(FMA(power, FMA(MUL(r, r), q, r), SUB(power, K(1.0f))), x);
}

/* For x = n ln 2 + r >= 0: *up = 2^n / 2, *down = 2^-n / 2, cosh r = 1 + *even. Returns sinh r. */
HT_LANES_INLINE F HT_V(f_both_powers_half)(F x, F *up, F *down, F *even) {
    F n, r = HT_V(f_exp_parts_half)(HT_V(f_min)(K(12.0f), x), &n), z = MUL(r, r);
    *up = HT_V(f_power_of_sum)(n, -1);
    *down = HT_V(f_from_bits)(HT_V(i_sub)(HT_V(i_set1)(126 << 23), HT_V(i_shl)(HT_V(f_bits)(n), 23)));
    *even = MUL(z, FMA(z, K(4.189864546e-02f), K(4.999914169e-01f)));
    return FMA(MUL(z, r), FMA(z, K(8.366553113e-03f), K(1.666654348e-01f)), r);
}
HT_LANES_INLINE F HT_V(f_sinh_half)(F x) {
    F up, down, even, odd = HT_V(f_both_powers_half)(HT_V(f_abs)(x), &up, &down, &even), s = SUB(up, down);
    return SIGNED(FMA(ADD(up, down), odd, FMA(s, even, s)), x);
}
HT_LANES_INLINE F HT_V(f_cosh_half)(F x) {
    F up, down, even, odd = HT_V(f_both_powers_half)(HT_V(f_abs)(x), &up, &down, &even), c = ADD(up, down);
    return FMA(SUB(up, down), odd, FMA(c, even, c));
}

/* ---- angles ---- */

/* x - n pi / 2. The first difference is exact where it is small; for n = 0 the sign of 0 is kept. */
HT_LANES_INLINE F HT_V(f_angle_rest_half)(F x, F n) {
    return FNMA(n, K(0x1.4442d2p-24f), FNMA(n, K(0x1.921fb4p+0f), x));
}
/* sin of |r| <= pi / 2 */
HT_LANES_INLINE F HT_V(f_sin_rest_half)(F r) {
    F z = MUL(r, r), q = HT_V(f_poly3)(z, -1.666585207e-01f, 8.314266801e-03f, -1.854196453e-04f);
    return MUL(r, FMA(z, q, K(1.0f)));
}
/* y with its sign flipped if the integer in the low bits of `sum` is odd. */
HT_LANES_INLINE F HT_V(f_turned_half)(F y, F sum) {
    return HT_V(f_from_bits)(HT_V(i_xor)(HT_V(f_bits)(y), HT_V(i_shl)(HT_V(f_bits)(sum), 31)));
}
/* Reduces by half turns: sin(x) = +-sin(r). */
HT_LANES_INLINE F HT_V(f_sin_half)(F x) {
    F sum = FMA(x, K(0x1.45f306p-2f), K(HT_LANES_MAGIC)), n = SUB(sum, K(HT_LANES_MAGIC));
    return HT_V(f_turned_half)(HT_V(f_sin_rest_half)(HT_V(f_angle_rest_half)(x, ADD(n, n))), sum);
}
/* Reduces by 2 n + 1 quarter turns: cos(x) = +-sin(r). */
HT_LANES_INLINE F HT_V(f_cos_half)(F x) {
    F sum = ADD(FMA(HT_V(f_abs)(x), K(0x1.45f306p-2f), K(-0.5f)), K(HT_LANES_MAGIC));
    F n = SUB(sum, K(HT_LANES_MAGIC)), r = HT_V(f_angle_rest_half)(HT_V(f_abs)(x), FMA(n, K(2.0f), K(1.0f)));
    return HT_V(f_turned_half)(HT_V(f_sin_rest_half)(HT_V(f_neg)(r)), sum);
}
/* Reduces by quarter turns: tan(x) = tan(r), or -1 / tan(r) for an odd number. */
HT_LANES_INLINE F HT_V(f_tan_half)(F x) {
    F sum = FMA(x, K(0x1.45f306p-1f), K(HT_LANES_MAGIC));
    F r = HT_V(f_angle_rest_half)(x, SUB(sum, K(HT_LANES_MAGIC))), z = MUL(r, r);
    F above = MUL(r, FMA(z, K(-9.578023106e-02f), K(1.0f)));
    F below = FMA(z, FMA(z, K(9.709111415e-03f), K(-4.291140437e-01f)), K(1.0f));
    HT_MASK even = HT_V(i_eq)(HT_V(i_shl)(HT_V(f_bits)(sum), 31), HT_V(i_set1)(0));
    return HT_V(f_turned_half)(DIV(IF(even, above, below), IF(even, below, above)), sum);
}

HT_LANES_INLINE F HT_V(f_atan_half)(F x) {
    F a = HT_V(f_abs)(x), one = K(1.0f), t = DIV(HT_V(f_min)(one, a), HT_V(f_max)(one, a)), z = MUL(t, t);
    F q = HT_V(f_poly4)(z, -1.354457587e-01f, 8.484103531e-02f, -3.779671341e-02f, 8.106365800e-03f);
    q = FMA(FMA(q, z, K(1.989787370e-01f)), z, K(-3.332849145e-01f));
    F angle = FMA(MUL(z, t), q, t);
    return SIGNED(IF(HT_V(f_gt)(a, one), SUB(K(0x1.921fb6p+0f), angle), angle), x);
}

/* asin(a) for 0 <= a <= 1/2; where `far` (a > 1/2), asin(sqrt((1 - a) / 2)). */
HT_LANES_INLINE F HT_V(f_asin_near_half)(F a, HT_MASK far) {
    F z = IF(far, FNMA(a, K(0.5f), K(0.5f)), MUL(a, a)), s = IF(far, HT_V(f_sqrt)(z), a);
    F q = HT_V(f_poly4)(z, 1.666557938e-01f, 7.540530711e-02f, 4.003499821e-02f, 4.995308816e-02f);
    return FMA(MUL(z, s), q, s);
}
HT_LANES_INLINE F HT_V(f_asin_half)(F x) {
    F a = HT_V(f_abs)(x);
    HT_MASK far = HT_V(f_gt)(a, K(0.5f));
    F angle = HT_V(f_asin_near_half)(a, far);
    return SIGNED(IF(far, FNMA(angle, K(2.0f), K(0x1.921fb6p+0f)), angle), x);
}
HT_LANES_INLINE F HT_V(f_acos_half)(F x) {
    F a = HT_V(f_abs)(x);
    HT_MASK far = HT_V(f_gt)(a, K(0.5f));
    F angle = HT_V(f_asin_near_half)(a, far), y = IF(far, ADD(angle, angle), SUB(K(0x1.921fb6p+0f), angle));
    return IF(HT_V(f_lt)(x, HT_V(f_zero)()), SUB(K(0x1.921fb6p+1f), y), y);
}

#undef SIGNED
