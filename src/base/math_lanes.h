/* Elementary functions of f32 in f32 arithmetic, on one lane (base/lane.h) or sixteen (cpu/vector/simd.h): a template,
 * included once for each with HT_V(name), HT_MASK, HT_M(name) and HT_LANES_INLINE defined. Both instances run the same
 * operations in the same order and give the same bits.
 *
 * Errors are at most 1 ulp, 1.2 for tan, 1.6 for sin and cos, 2.6 for tanh, 2.5 for sigmoid (tests/ops/test_math.c). Values that need more precision are double-word
 * numbers x + x_low, x_low being the rounding error of x. Denormal arguments and results may be flushed to 0.
 * Coefficients are minimax fits. */

#define F    HT_V(f)
#define I    HT_V(i)
#define K    HT_V(f_set1)
#define ADD  HT_V(f_add)
#define SUB  HT_V(f_sub)
#define MUL  HT_V(f_mul)
#define DIV  HT_V(f_div)
#define FMA  HT_V(f_fma)
#define FNMA HT_V(f_fnma)
#define FMS  HT_V(f_fms)
#define IF   HT_V(f_select)

/* Rounding error of sum = a + b, for |a| >= |b| or a = 0 (Dekker's Fast2Sum). */
HT_LANES_INLINE F HT_V(f_sum_low)(F a, F b, F sum) { return ADD(SUB(a, sum), b); }

HT_LANES_INLINE F HT_V(f_poly3)(F x, float c0, float c1, float c2) { return FMA(FMA(K(c2), x, K(c1)), x, K(c0)); }
HT_LANES_INLINE F HT_V(f_poly5)(F x, float c0, float c1, float c2, float c3, float c4) {
    return FMA(FMA(HT_V(f_poly3)(x, c2, c3, c4), x, K(c1)), x, K(c0));
}

/* 1 / x with a relative error of up to 1/8, for x in [2^-100, 2^100]: enough to correct a rounding error. */
HT_LANES_INLINE F HT_V(f_about_inverse)(F x) {
    return HT_V(f_from_bits)(HT_V(i_sub)(HT_V(i_set1)(0x7ef311c7), HT_V(f_bits)(x)));
}

/* ---- logarithms ---- */

/* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt 2), for x normal and finite. */
HT_LANES_INLINE F HT_V(f_log_parts)(F x, F *k) {
    I bits = HT_V(f_bits)(x), e = HT_V(i_sra)(HT_V(i_sub)(bits, HT_V(i_set1)(HT_SQRT_HALF)), 23);
    *k = HT_V(f_from_i)(e);
    return SUB(HT_V(f_from_bits)(HT_V(i_sub)(bits, HT_V(i_shl)(e, 23))), K(1.0f));
}

/* log(1 + f) - f */
HT_LANES_INLINE F HT_V(f_log_rest)(F f) {
    F q = HT_V(f_poly5)(f, HT_LOG_6, HT_LOG_7, HT_LOG_8, HT_LOG_9, HT_LOG_10);
    q = FMA(FMA(FMA(q, f, K(HT_LOG_5)), f, K(HT_LOG_4)), f, K(HT_LOG_3));
    return MUL(MUL(f, f), FMA(f, q, K(-0.5f)));
}

/* Logarithm of x: y, or the special result for x <= 0, infinite or NaN. */
HT_LANES_INLINE F HT_V(f_log_special)(F x, F y) {
    HT_MASK none = HT_M(or)(HT_V(f_lt)(x, K(0x1p-126f)), HT_V(f_gt)(x, K(0x1.fffffep+127f)));
    none = HT_M(or)(none, HT_V(f_is_nan)(x));
    if (!HT_M(any)(none)) return y;
    y = IF(HT_V(f_gt)(x, K(0x1.fffffep+127f)), x, y);
    y = IF(HT_V(f_lt)(x, HT_V(f_zero)()), K(NAN), y);
    y = IF(HT_V(f_lt)(HT_V(f_abs)(x), K(0x1p-126f)), K(-INFINITY), y);
    return IF(HT_V(f_is_nan)(x), x, y);
}

HT_LANES_INLINE F HT_V(f_log)(F x) {
    F k, f = HT_V(f_log_parts)(x, &k), small = FMA(k, K(HT_LN2_LOW), HT_V(f_log_rest)(f));
    return HT_V(f_log_special)(x, FMA(k, K(HT_LN2_HIGH), ADD(f, small)));
}

/* Logarithm to base b: two = log_b(2), short enough for exact k * two, and scale = log_b(e). */
HT_LANES_INLINE F HT_V(f_log_of)(F x, float two, float two_low, float scale, float scale_low) {
    F k, f = HT_V(f_log_parts)(x, &k);
    F whole = MUL(k, K(two)), part = MUL(f, K(scale)), sum = ADD(whole, part);
    F low = FMA(f, K(scale_low), FMS(f, K(scale), part));
    low = FMA(HT_V(f_log_rest)(f), K(scale), FMA(k, K(two_low), low));
    return HT_V(f_log_special)(x, ADD(sum, ADD(HT_V(f_sum_low)(whole, part, sum), low)));
}
HT_LANES_INLINE F HT_V(f_log2)(F x) { return HT_V(f_log_of)(x, 1.0f, 0.0f, 0x1.715476p+0f, 0x1.4ae0cp-26f); }
HT_LANES_INLINE F HT_V(f_log10)(F x) {
    return HT_V(f_log_of)(x, 0x1.344p-2f, 0x1.3509f8p-18f, 0x1.bcb7b2p-2f, -0x1.5b235ep-27f);
}

/* log(1 + x): the rounding error of 1 + x is corrected to first order. */
HT_LANES_INLINE F HT_V(f_log1p)(F x) {
    F u = ADD(K(1.0f), x), back = SUB(u, K(1.0f)), k;
    F lost = ADD(SUB(K(1.0f), SUB(u, back)), SUB(x, back));
    F f = HT_V(f_log_parts)(u, &k);
    lost = IF(HT_V(f_gt)(x, K(0x1p+25f)), HT_V(f_zero)(), lost);
    F f_low = HT_V(f_scale)(lost, HT_V(f_max)(HT_V(f_neg)(k), K(-100.0f)));
    F whole = MUL(k, K(0x1.62e4p-1f)), sum = ADD(whole, f);
    F low = ADD(HT_V(f_log_rest)(f), FNMA(f, f_low, f_low));
    low = FMA(k, K(0x1.7f7d1cp-20f), ADD(HT_V(f_sum_low)(whole, f, sum), low));
    F y = ADD(sum, low);
    HT_MASK none = HT_M(or)(HT_V(f_lt)(u, K(0x1p-126f)), HT_V(f_gt)(u, K(0x1.fffffep+127f)));
    none = HT_M(or)(HT_M(or)(none, HT_V(f_is_nan)(x)), HT_V(f_eq)(x, HT_V(f_zero)()));
    if (HT_M(any)(none)) y = IF(HT_V(f_eq)(x, HT_V(f_zero)()), x, HT_V(f_log_special)(u, y));
    return y;
}

/* ---- exponentials ---- */

/* x + magic, for |x| < 2^22, rounds x to an integer, held in the low bits of the sum. */
#define HT_LANES_MAGIC 0x1.8p+23f

/* 2^(n + shift) for sum = n + HT_LANES_MAGIC. */
HT_LANES_INLINE F HT_V(f_power_of_sum)(F sum, int shift) {
    I bits = HT_V(i_shl)(HT_V(f_bits)(sum), 23);
    return HT_V(f_from_bits)(HT_V(i_add)(bits, HT_V(i_set1)((127 + shift) << 23)));
}

/* Argument reduction x = n ln 2 + r + *r_low; *sum = n + HT_LANES_MAGIC. */
HT_LANES_INLINE F HT_V(f_exp_parts)(F x, F *sum, F *r_low) {
    *sum = FMA(x, K(HT_LOG2_E), K(HT_LANES_MAGIC));
    F n = SUB(*sum, K(HT_LANES_MAGIC)), first = FNMA(n, K(HT_LN2_HIGH), x), r = FNMA(n, K(HT_LN2_LOW), first);
    *r_low = FNMA(n, K(HT_LN2_LOW), SUB(first, r));
    return r;
}

/* (e^x - 1) / 2 = 2^(n - 1) - 1/2 + 2^(n - 1) (e^r - 1), then doubled: 2^n itself may overflow. */
HT_LANES_INLINE F HT_V(f_expm1)(F x) {
    F near = HT_V(f_max)(K(-20.0f), HT_V(f_min)(K(88.8f), x)), n, r_low;
    F r = HT_V(f_exp_parts)(near, &n, &r_low), power = HT_V(f_power_of_sum)(n, -1);
    F q = HT_V(f_poly5)(r, HT_EXP_2, HT_EXP_3, HT_EXP_4, HT_EXP_5, HT_EXP_6), rest = FMA(MUL(r, r), q, r_low);
    F whole = SUB(power, K(0.5f)), whole_low = SUB(SUB(power, whole), K(0.5f));
    F part = MUL(power, r), sum = ADD(whole, part);
    F low = ADD(HT_V(f_sum_low)(whole, part, sum), FMA(power, rest, whole_low));
    return IF(HT_V(f_lt)(HT_V(f_abs)(x), K(0x1p-25f)), x, MUL(K(2.0f), ADD(sum, low)));
}

/* For x = n ln 2 + r >= 0: *up = 2^n / 4, *down = 2^-n / 4, sinh r = r + *odd, cosh r = 1 + *even. Returns r. */
HT_LANES_INLINE F HT_V(f_both_powers)(F x, F *up, F *down, F *odd, F *even) {
    F n, r_low, r = HT_V(f_exp_parts)(HT_V(f_min)(K(89.5f), x), &n, &r_low), z = MUL(r, r);
    *up = HT_V(f_power_of_sum)(n, -2);
    F least = HT_V(f_min)(n, K(HT_LANES_MAGIC + 64.0f)); /* keeps 2^-n normal where e^-x is negligible */
    I bits = HT_V(i_shl)(HT_V(f_bits)(least), 23);
    *down = HT_V(f_from_bits)(HT_V(i_sub)(HT_V(i_set1)(125 << 23), bits));
    *odd = FMA(MUL(z, r), HT_V(f_poly3)(z, 1.666666716e-01f, 8.333175443e-03f, 1.997410436e-04f), r_low);
    *even = MUL(z, HT_V(f_poly3)(z, 0.5f, 4.166645929e-02f, 1.393542625e-03f));
    return r;
}

/* sinh(n ln 2 + r) = sinh(n ln 2) cosh r + cosh(n ln 2) sinh r, and cosh likewise. */
HT_LANES_INLINE F HT_V(f_sinh)(F x) {
    F a = HT_V(f_abs)(x), up, down, odd, even, r = HT_V(f_both_powers)(a, &up, &down, &odd, &even);
    F s = SUB(up, down), s_low = SUB(SUB(up, s), down), c = ADD(up, down);
    F part = MUL(c, r), sum = ADD(s, part);
    F low = FMA(s, even, FMA(c, odd, ADD(s_low, FMS(c, r, part))));
    F y = ADD(sum, ADD(HT_V(f_sum_low)(s, part, sum), low));
    y = HT_V(f_with_sign)(HT_V(f_abs)(MUL(K(2.0f), y)), x);
    return IF(HT_V(f_lt)(a, K(0x1p-13f)), x, y);
}
HT_LANES_INLINE F HT_V(f_cosh)(F x) {
    F up, down, odd, even, r = HT_V(f_both_powers)(HT_V(f_abs)(x), &up, &down, &odd, &even);
    F s = SUB(up, down), c = ADD(up, down), c_low = HT_V(f_sum_low)(up, down, c), part = MUL(s, r), sum = ADD(c, part);
    F low = FMA(s, odd, FMA(c, even, c_low));
    return MUL(K(2.0f), ADD(sum, ADD(HT_V(f_sum_low)(c, part, sum), low)));
}

/* e^r - 1 for x = *n ln 2 + r. */
HT_LANES_INLINE F HT_V(f_expm1_reduced)(F x, F *n) {
    *n = HT_V(f_round)(MUL(x, K(HT_LOG2_E)));
    F r = FNMA(*n, K(HT_LN2_LOW), FNMA(*n, K(HT_LN2_HIGH), x));
    return FMA(MUL(r, r), HT_V(f_poly5)(r, HT_EXP_2, HT_EXP_3, HT_EXP_4, HT_EXP_5, HT_EXP_6), r);
}

/* tanh x = t / (t + 2) with t = e^2x - 1, which keeps its relative accuracy near 0. */
HT_LANES_INLINE F HT_V(f_tanh)(F x) {
    F a = HT_V(f_min)(K(HT_TANH_CLAMP), HT_V(f_abs)(x)), n, p = HT_V(f_expm1_reduced)(MUL(K(2.0f), a), &n);
    F power = HT_V(f_scale)(K(1.0f), n), t = FMA(power, p, SUB(power, K(1.0f)));
    return HT_V(f_with_sign)(DIV(t, ADD(t, K(2.0f))), x);
}

HT_LANES_INLINE F HT_V(f_one_plus_exp_neg)(F x) { return ADD(K(1.0f), HT_V(f_exp)(HT_V(f_neg)(x))); }
HT_LANES_INLINE F HT_V(f_sigmoid)(F x) { return DIV(K(1.0f), HT_V(f_one_plus_exp_neg)(x)); }
HT_LANES_INLINE F HT_V(f_silu)(F x) { return DIV(x, HT_V(f_one_plus_exp_neg)(x)); }

/* 0.5 x (1 + tanh u) = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3) */
HT_LANES_INLINE F HT_V(f_gelu_tanh)(F x) {
    F u = MUL(K(HT_GELU_INNER), FMA(MUL(MUL(K(HT_GELU_CUBE), x), x), x, x));
    return DIV(x, ADD(K(1.0f), HT_V(f_exp)(MUL(K(-2.0f), u))));
}

/* ---- powers ---- */

/* log2(x) + *low of a normal, finite x, with a relative error of 2^-35: 2 / ln 2 * atanh(s), s = f / (2 + f). */
HT_LANES_INLINE F HT_V(f_log2_in_two)(F x, F *low) {
    F k, f = HT_V(f_log_parts)(x, &k);
    F d = ADD(K(2.0f), f), d_low = SUB(f, SUB(d, K(2.0f))), inverse = DIV(K(1.0f), d), s = MUL(f, inverse);
    F s_low = MUL(inverse, FNMA(s, d_low, FNMA(s, d, f)));
    F z = MUL(s, s), z_low = FMS(s, s, z);
    F u = FMA(z, HT_V(f_poly3)(z, 5.770801902e-01f, 4.118498564e-01f, 3.378233016e-01f), K(-0x1.e2fe02p-28f));
    F q = ADD(K(0x1.ec709ep-1f), u), q_low = HT_V(f_sum_low)(K(0x1.ec709ep-1f), u, q);
    F g = MUL(z, q), g_low = FMA(z, q_low, FMA(z_low, q, FMS(z, q, g)));
    F cube = MUL(s, g), cube_low = FMA(s, g_low, FMS(s, g, cube));
    F two = K(0x1.715476p+1f), line = MUL(s, two), line_low = FMA(s, K(0x1.4ae0cp-25f), FMS(s, two, line));
    line_low = FMA(s_low, FMA(z, two, two), line_low); /* s_low times the slope of atanh, 1 + z */
    F first = ADD(k, line), sum = ADD(first, cube);
    *low = ADD(HT_V(f_sum_low)(k, line, first), HT_V(f_sum_low)(first, cube, sum));
    *low = ADD(*low, ADD(line_low, cube_low));
    return sum;
}

/* 2^(x + low) for |x| <= 250, |low| <= 1/2. */
HT_LANES_INLINE F HT_V(f_exp2_in_two)(F x, F low) {
    F n = HT_V(f_round)(x), r = ADD(SUB(x, n), low);
    F q = HT_V(f_poly5)(r, 2.402265072e-01f, 5.550359562e-02f, 9.618062526e-03f, 1.339098904e-03f, 1.546287822e-04f);
    return HT_V(f_scale)(FMA(r, FMA(q, r, K(6.931471825e-01f)), K(1.0f)), n);
}
/* 2^(x + low) for any x; the result is 0 or infinite where `low` is larger or NaN. */
HT_LANES_INLINE F HT_V(f_exp2_of_any)(F x, F low) {
    x = HT_V(f_max)(HT_V(f_min)(x, K(250.0f)), K(-250.0f));
    return HT_V(f_exp2_in_two)(x, HT_V(f_max)(HT_V(f_min)(low, K(0.5f)), K(-0.5f)));
}

/* x^b from y = |x|^b: signs and special values, as C's pow. */
HT_LANES_INLINE F HT_V(f_pow_special)(F x, F b, F y) {
    const F zero = HT_V(f_zero)(), one = K(1.0f), infinity = K(INFINITY), a = HT_V(f_abs)(x), size = HT_V(f_abs)(b);
    const HT_MASK up = HT_V(f_gt)(b, zero);
    y = IF(HT_V(f_lt)(a, K(0x1p-126f)), IF(up, zero, infinity), y);
    y = IF(HT_V(f_eq)(a, infinity), IF(up, infinity, zero), y);
    F endless = IF(HT_V(f_gt)(a, one), IF(up, infinity, zero), IF(up, zero, infinity));
    y = IF(HT_V(f_eq)(size, infinity), IF(HT_V(f_eq)(a, one), one, endless), y);
    /* Numbers of 2^24 and more are even integers; so is infinity here. */
    F half = MUL(HT_V(f_min)(size, K(0x1p+24f)), K(0.5f)), near = HT_V(f_min)(size, K(0x1p+24f));
    HT_MASK whole = HT_V(f_eq)(HT_V(f_round)(near), near), even = HT_V(f_eq)(HT_V(f_round)(half), half);
    F sign = IF(HT_V(f_lt)(HT_V(f_with_sign)(one, x), zero), K(-1.0f), one);
    y = IF(whole, MUL(y, IF(even, one, sign)), y);
    F shown = IF(HT_V(f_lt)(a, K(0x1p-126f)), zero, x);
    F broken = IF(HT_M(and)(HT_V(f_lt)(shown, zero), HT_V(f_lt)(a, infinity)), K(NAN), y);
    y = IF(whole, y, broken);
    y = IF(HT_V(f_is_nan)(x), x, y);
    y = IF(HT_V(f_is_nan)(b), b, y);
    y = IF(HT_V(f_eq)(b, zero), one, y);
    return IF(HT_V(f_eq)(x, one), one, y);
}

/* x^(1/2): sqrt(x), but +0 for -0 and infinity for minus infinity, as C's pow. */
HT_LANES_INLINE F HT_V(f_pow_half)(F x) {
    F root = HT_V(f_sqrt)(ADD(x, HT_V(f_zero)()));
    return IF(HT_V(f_eq)(x, K(-INFINITY)), K(INFINITY), root);
}

/* Exponents 2, 1, 1/2 and -1, computed as x * x, x, sqrt(x) and 1 / x. */
HT_LANES_INLINE F HT_V(f_pow_simple)(F x, F b, F y) {
    y = IF(HT_V(f_eq)(b, K(2.0f)), MUL(x, x), y);
    y = IF(HT_V(f_eq)(b, K(1.0f)), x, y);
    y = IF(HT_V(f_eq)(b, K(0.5f)), HT_V(f_pow_half)(x), y);
    return IF(HT_V(f_eq)(b, K(-1.0f)), DIV(K(1.0f), x), y);
}

HT_LANES_INLINE F HT_V(f_pow)(F x, F b) {
    F log_low, log = HT_V(f_log2_in_two)(HT_V(f_abs)(x), &log_low), product = MUL(b, log);
    F low = FMA(b, log_low, FMS(b, log, product));
    HT_MASK odd = HT_M(or)(HT_V(f_lt)(x, K(0x1p-126f)), HT_V(f_gt)(x, K(0x1.fffffep+127f)));
    /* Mantissa 0: b is a power of 2, 0 or infinite. */
    HT_MASK simple = HT_V(i_eq)(HT_V(i_shl)(HT_V(f_bits)(b), 9), HT_V(i_set1)(0));
    HT_MASK far = HT_M(or)(HT_V(f_gt)(HT_V(f_abs)(product), K(126.0f)), HT_V(f_is_nan)(product));
    odd = HT_M(or)(HT_M(or)(odd, simple), HT_M(or)(far, HT_V(f_is_nan)(x)));
    if (!HT_M(any)(odd)) return HT_V(f_exp2_in_two)(product, low);
    F y = HT_V(f_pow_special)(x, b, HT_V(f_exp2_of_any)(product, low));
    return HT_V(f_pow_simple)(x, b, y);
}

/* ---- angles ---- */

/* sin and cos of quarters * pi / 2 + r, |r| <= pi / 4. */
HT_LANES_INLINE void HT_V(f_sincos_reduced)(F r, I quarters, F *sine, F *cosine) {
    F s = MUL(r, r), sin_r = FMA(MUL(s, r), HT_V(f_poly3)(s, HT_SIN_3, HT_SIN_5, HT_SIN_7), r);
    F cos_r = FMA(MUL(s, s), HT_V(f_poly3)(s, HT_COS_4, HT_COS_6, HT_COS_8), FMA(K(-0.5f), s, K(1.0f)));
    I one = HT_V(i_set1)(1), two = HT_V(i_set1)(2);
    HT_MASK odd = HT_V(i_eq)(HT_V(i_and)(quarters, one), one);
    I sin_sign = HT_V(i_shl)(HT_V(i_and)(quarters, two), 30);
    I cos_sign = HT_V(i_shl)(HT_V(i_and)(HT_V(i_add)(quarters, one), two), 30);
    *sine = HT_V(f_from_bits)(HT_V(i_xor)(HT_V(f_bits)(IF(odd, cos_r, sin_r)), sin_sign));
    *cosine = HT_V(f_from_bits)(HT_V(i_xor)(HT_V(f_bits)(IF(odd, sin_r, cos_r)), cos_sign));
}

/* tan(x) for |x| < 2^17, by Cody-Waite reduction with pi / 2 in three pieces. */
#define HT_LANES_ANGLE 0x1p+17f
HT_LANES_INLINE F HT_V(f_tan_near)(F x) {
    F sum = FMA(x, K(0x1.45f306p-1f), K(HT_LANES_MAGIC)), n = SUB(sum, K(HT_LANES_MAGIC));
    F first = FNMA(n, K(0x1.921fb6p+0f), x), piece = MUL(n, K(-0x1.777a5cp-25f));
    F piece_low = FMS(n, K(-0x1.777a5cp-25f), piece), r = SUB(first, piece);
    F r_low = FNMA(n, K(-0x1.ee59dap-50f), SUB(SUB(SUB(first, r), piece), piece_low));
    F z = MUL(r, r), cube = MUL(z, r);
    F q = HT_V(f_poly5)(z, 5.406839028e-02f, 2.124026418e-02f, 1.094068121e-02f, -3.945774733e-05f, 4.438282922e-03f);
    F rest = FMA(cube, MUL(z, FMA(q, z, K(1.333258450e-01f))), FMA(z, r_low, r_low));
    rest = FMA(cube, K(3.333335221e-01f), rest);
    F t = ADD(r, rest), t_low = HT_V(f_sum_low)(r, rest, t);
    /* For an odd number of quarter turns the result is -1 / (t + t_low). */
    F inverse = DIV(K(-1.0f), t), error = FMA(t_low, inverse, FMA(t, inverse, K(1.0f)));
    I odd = HT_V(i_shl)(HT_V(f_bits)(sum), 31);
    F turned = FMA(inverse, error, inverse);
    F y = IF(HT_V(i_eq)(odd, HT_V(i_set1)(0)), t, turned);
    return IF(HT_V(f_lt)(HT_V(f_abs)(x), K(0x1p-13f)), x, y);
}

/* atan(t + t_low) - t for 0 <= t <= 1; the slope of atan is about 1 - t^2 / 2. */
HT_LANES_INLINE F HT_V(f_atan_rest)(F t, F t_low) {
    F z = MUL(t, t), low = FMA(MUL(z, K(-0.5f)), t_low, t_low);
    F q = HT_V(f_poly5)(z, -8.418121189e-02f, 5.821232498e-02f, -3.143414110e-02f, 1.105313841e-02f, -1.824739273e-03f);
    q = FMA(FMA(q, z, K(1.095710248e-01f)), z, K(-1.426515132e-01f));
    q = FMA(FMA(q, z, K(1.999862939e-01f)), z, K(-3.333330154e-01f));
    return FMA(MUL(z, t), q, low);
}

/* base + sign * (t + rest) for a base that is a multiple of pi / 2. */
HT_LANES_INLINE F HT_V(f_turned)(F base, F sign, F t, F rest) {
    F part = MUL(sign, t), sum = ADD(base, part);
    F low = FMA(sign, rest, MUL(base, K(-0x1.de12cap-26f))); /* relative error of pi in f32 */
    return ADD(sum, ADD(HT_V(f_sum_low)(base, part, sum), low));
}

HT_LANES_INLINE F HT_V(f_atan)(F x) {
    F a = HT_V(f_min)(K(0x1p+60f), HT_V(f_abs)(x)), one = K(1.0f);
    HT_MASK steep = HT_V(f_gt)(a, one);
    F above = IF(steep, one, a), below = IF(steep, a, one), t = DIV(above, below);
    F t_low = MUL(t, FNMA(t, below, above)); /* t is a, exactly, or 1 / below */
    F y = HT_V(f_turned)(IF(steep, K(0x1.921fb6p+0f), HT_V(f_zero)()), IF(steep, K(-1.0f), one), t,
                         HT_V(f_atan_rest)(t, t_low));
    return HT_V(f_with_sign)(HT_V(f_abs)(y), x);
}

HT_LANES_INLINE F HT_V(f_atan2)(F y, F x) {
    const F zero = HT_V(f_zero)(), one = K(1.0f);
    F a = HT_V(f_abs)(y), b = HT_V(f_abs)(x);
    F big = HT_V(f_max)(a, b), small = HT_V(f_min)(b, a); /* a NaN operand reaches big or small */
    HT_MASK far = HT_M(or)(HT_V(f_gt)(big, K(0x1p+90f)), HT_V(f_lt)(big, K(0x1p-90f)));
    if (HT_M(any)(far)) {
        F factor = IF(HT_V(f_gt)(big, one), K(0x1p-60f), K(0x1p+60f));
        HT_MASK endless = HT_V(f_eq)(big, K(INFINITY)), both = HT_M(and)(endless, HT_V(f_eq)(small, K(INFINITY)));
        F scaled = IF(HT_V(f_is_nan)(small), small, IF(endless, zero, MUL(small, factor)));
        small = IF(both, one, IF(far, scaled, small));
        big = IF(both, one, IF(far, HT_V(f_min)(K(0x1p+80f), HT_V(f_max)(K(0x1p-100f), MUL(big, factor))), big));
    }
    F t = DIV(small, big), t_low = MUL(FNMA(t, big, small), HT_V(f_about_inverse)(big));
    HT_MASK steep = HT_V(f_gt)(a, b), left = HT_V(f_lt)(HT_V(f_with_sign)(one, x), zero);
    F base = IF(steep, K(0x1.921fb6p+0f), IF(left, K(0x1.921fb6p+1f), zero));
    F sign = IF(left, IF(steep, one, K(-1.0f)), IF(steep, K(-1.0f), one));
    F angle = HT_V(f_turned)(base, sign, t, HT_V(f_atan_rest)(t, t_low));
    return HT_V(f_with_sign)(HT_V(f_abs)(angle), y);
}

/* asin(s) = s + *rest. s = a, or, where `far` (a > 1/2), s = sqrt((1 - a) / 2) with asin(a) = pi / 2 - 2 asin(s). */
HT_LANES_INLINE F HT_V(f_asin_parts)(F a, HT_MASK far, F *rest) {
    F z = IF(far, MUL(SUB(K(1.0f), a), K(0.5f)), MUL(a, a)), root = HT_V(f_sqrt)(z), s = IF(far, root, a);
    F root_low = MUL(FNMA(root, root, z), MUL(K(0.5f), HT_V(f_about_inverse)(root)));
    F q = HT_V(f_poly5)(z, 7.500519603e-02f, 4.451413825e-02f, 3.183035180e-02f, 1.435570046e-02f, 3.762971237e-02f);
    *rest = FMA(MUL(z, s), FMA(q, z, K(1.666665971e-01f)), IF(far, root_low, HT_V(f_zero)()));
    return s;
}
HT_LANES_INLINE F HT_V(f_asin)(F x) {
    F a = HT_V(f_abs)(x), rest;
    HT_MASK far = HT_V(f_gt)(a, K(0.5f));
    F s = HT_V(f_asin_parts)(a, far, &rest);
    F y = HT_V(f_turned)(IF(far, K(0x1.921fb6p+0f), HT_V(f_zero)()), IF(far, K(-2.0f), K(1.0f)), s, rest);
    return HT_V(f_with_sign)(HT_V(f_abs)(y), x);
}
HT_LANES_INLINE F HT_V(f_acos)(F x) {
    F a = HT_V(f_abs)(x), rest, zero = HT_V(f_zero)();
    HT_MASK far = HT_V(f_gt)(a, K(0.5f)), left = HT_V(f_lt)(x, zero);
    F s = HT_V(f_asin_parts)(a, far, &rest);
    F base = IF(far, IF(left, K(0x1.921fb6p+1f), zero), K(0x1.921fb6p+0f));
    F size = IF(far, K(2.0f), K(1.0f)), turn = IF(far, IF(left, K(-1.0f), K(1.0f)), IF(left, K(1.0f), K(-1.0f)));
    return HT_V(f_turned)(base, MUL(size, turn), s, rest);
}

#include "base/math_half.h"

#undef F
#undef I
#undef K
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef FMA
#undef FNMA
#undef FMS
#undef IF
