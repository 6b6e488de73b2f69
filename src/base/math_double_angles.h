/* Trigonometric functions of f64: a part of the template base/math_double_lanes.h. */

/* ---- sin, cos, tan ---- */

/* Cody-Waite reduction x = quarters * pi / 2 + r + *r_low, quarters in the low bits of *n. Lanes of 2^30 and more are
 * reduced one by one (ht_far_angle_parts). */
HT_LANES_INLINE F HT_V(d_angle_parts)(F x, F *n, F *r_low) {
    *n = FMA(x, K(HT_TWO_OVER_PI), K(HT_ROUND_MAGIC));
    F whole = SUB(*n, K(HT_ROUND_MAGIC)), first = FNMA(whole, K(HT_HALF_PI_HIGH), x); /* exact */
    F piece = MUL(whole, K(HT_HALF_PI_LOW)), piece_low = FMS(whole, K(HT_HALF_PI_LOW), piece), r = SUB(first, piece);
    *r_low = FNMA(whole, K(-0x1.f1976b7ed8fbcp-110), SUB(SUB(SUB(first, r), piece), piece_low));
    HT_MASK far = HT_V(d_gt)(ABS(x), K(0x1p+30));
    return HT_M(any)(far) ? HT_V(d_far_angle_parts)(x, r, n, r_low) : r;
}

/* sin and cos of r + r_low, |r| <= pi / 4, as double-word numbers. */
HT_LANES_INLINE F HT_V(d_sin_reduced)(F r, F r_low, F *low) {
    F z = MUL(r, r), q = FMA(FMA(K(-0x1.a7257c29d137ap-41), z, K(0x1.611864a1260c4p-33)), z, K(-0x1.ae6443538e000p-26));
    q = HT_V(d_below4)(q, z, -0x1.5555555555555p-3, 0x1.111111111109ap-7, -0x1.a01a01a00a482p-13,
                       0x1.71de3a44ca76dp-19);
    F rest = FMA(MUL(z, r), q, FNMA(MUL(K(0.5), z), r_low, r_low)), y = ADD(r, rest);
    *low = HT_V(d_sum_low)(r, rest, y);
    return y;
}
HT_LANES_INLINE F HT_V(d_cos_reduced)(F r, F r_low, F *low) {
    F z = MUL(r, r), half = MUL(K(0.5), z), first = SUB(K(1.0), half);
    F q = FMA(K(-0x1.8fa99010a4425p-37), z, K(0x1.1ee9e1583270bp-29));
    q = HT_V(d_below4)(q, z, 0x1.555555555554bp-5, -0x1.6c16c16c1504bp-10, 0x1.a01a019c9773cp-16,
                       -0x1.27e4f7f8e48edp-22);
    F rest = ADD(SUB(SUB(K(1.0), first), half), FMA(MUL(z, z), q, FNMA(r, r_low, MUL(FMS(r, r, z), K(-0.5)))));
    F y = ADD(first, rest);
    *low = HT_V(d_sum_low)(first, rest, y);
    return y;
}

/* True where the number of quarters is even. */
HT_LANES_INLINE HT_MASK HT_V(d_is_even)(F n) { return HT_V(l_eq)(HT_V(l_shl)(HT_V(d_bits)(n), 63), L(0)); }
/* y with its sign flipped where bit 1 of n + shift is set. */
HT_LANES_INLINE F HT_V(d_turned_by)(F y, F n, int64_t shift) {
    I sign = HT_V(l_shl)(HT_V(l_and)(HT_V(l_add)(HT_V(d_bits)(n), L(shift)), L(2)), 62);
    return HT_V(d_from_bits)(HT_V(l_xor)(HT_V(d_bits)(y), sign));
}

HT_LANES_INLINE F HT_V(d_sin)(F x) {
    F n, r_low, low, r = HT_V(d_angle_parts)(x, &n, &r_low);
    F s = HT_V(d_sin_reduced)(r, r_low, &low), c = HT_V(d_cos_reduced)(r, r_low, &low);
    F y = HT_V(d_turned_by)(IF(HT_V(d_is_even)(n), s, c), n, 0);
    return IF(HT_V(d_lt)(ABS(x), K(0x1p-27)), x, y);
}
HT_LANES_INLINE F HT_V(d_cos)(F x) {
    F n, r_low, low, r = HT_V(d_angle_parts)(x, &n, &r_low);
    F s = HT_V(d_sin_reduced)(r, r_low, &low), c = HT_V(d_cos_reduced)(r, r_low, &low);
    return HT_V(d_turned_by)(IF(HT_V(d_is_even)(n), c, s), n, 1);
}

/* sin / cos, or -cos / sin after an odd number of quarters. */
HT_LANES_INLINE F HT_V(d_tan)(F x) {
    F n, r_low, s_low, c_low, r = HT_V(d_angle_parts)(x, &n, &r_low);
    F s = HT_V(d_sin_reduced)(r, r_low, &s_low), c = HT_V(d_cos_reduced)(r, r_low, &c_low);
    HT_MASK even = HT_V(d_is_even)(n);
    F top = IF(even, s, HT_V(d_neg)(c)), top_low = IF(even, s_low, HT_V(d_neg)(c_low));
    F bottom = IF(even, c, s), bottom_low = IF(even, c_low, s_low), y = DIV(top, bottom);
    F left = FNMA(y, bottom_low, ADD(FNMA(y, bottom, top), top_low));
    return IF(HT_V(d_lt)(ABS(x), K(0x1p-27)), x, FMA(left, HT_V(d_about_inverse)(bottom), y));
}

/* ---- inverse functions ---- */

/* atan(t + t_low) - t for 0 <= t <= 1; the slope of atan is about 1 - t^2 / 2. */
HT_LANES_INLINE F HT_V(d_atan_rest)(F t, F t_low) {
    F z = MUL(t, t), low = FMA(MUL(z, K(-0.5)), t_low, t_low), q = K(-0x1.1f9e8f715423bp-17);
    q = HT_V(d_below4)(q, z, -0x1.6e0d17d8f213ap-8, 0x1.1852aeeb9a8bap-9, -0x1.349c22b751ae8p-11,
                       0x1.b004f7d6108e4p-14);
    q = HT_V(d_below4)(q, z, -0x1.0c558792bc6c7p-5, 0x1.abc5c237b3655p-6, -0x1.30326c247ae79p-6, 0x1.7182f4733ae39p-7);
    q = HT_V(d_below4)(q, z, -0x1.aed8f06ab5664p-5, 0x1.84af263535c22p-5, -0x1.5f15131c27296p-5, 0x1.38e1c6e214756p-5);
    q = HT_V(d_below4)(q, z, -0x1.745d15c2a649ap-4, 0x1.3b139b27f4b3ap-4, -0x1.11102cbb81addp-4, 0x1.e1d43e3b82b16p-5);
    q = HT_V(d_below4)(q, z, -0x1.555555555554cp-2, 0x1.9999999998b43p-3, -0x1.2492492453831p-3, 0x1.c71c71b56c452p-4);
    return FMA(MUL(z, t), q, low);
}

/* base + sign * (t + rest) for a base that is a multiple of pi / 2. */
HT_LANES_INLINE F HT_V(d_turned)(F base, F sign, F t, F rest) {
    F part = MUL(sign, t), sum = ADD(base, part);
    F low = FMA(sign, rest, MUL(base, K(0x1.678afae35cdd1p-55))); /* relative error of pi in f64 */
    return ADD(sum, ADD(HT_V(d_sum_low)(base, part, sum), low));
}

HT_LANES_INLINE F HT_V(d_atan)(F x) {
    F a = HT_V(d_min)(K(0x1p+80), ABS(x)), one = K(1.0);
    HT_MASK steep = HT_V(d_gt)(a, one);
    F above = IF(steep, one, a), below = IF(steep, a, one), t = DIV(above, below);
    F t_low = MUL(t, FNMA(t, below, above)); /* t is a, exactly, or 1 / below */
    F y = HT_V(d_turned)(IF(steep, K(HT_HALF_PI_HIGH), HT_V(d_zero)()), IF(steep, K(-1.0), one), t,
                         HT_V(d_atan_rest)(t, t_low));
    return HT_V(d_with_sign)(ABS(y), x);
}

HT_LANES_INLINE F HT_V(d_atan2)(F y, F x) {
    const F zero = HT_V(d_zero)(), one = K(1.0);
    F a = ABS(y), b = ABS(x);
    F big = HT_V(d_max)(a, b), small = HT_V(d_min)(b, a); /* a NaN operand reaches big or small */
    HT_MASK far = HT_M(or)(HT_V(d_gt)(big, K(0x1p+900)), HT_V(d_lt)(big, K(0x1p-900)));
    if (HT_M(any)(far)) {
        F factor = IF(HT_V(d_gt)(big, one), K(0x1p-400), K(0x1p+400)), infinity = K((double)INFINITY);
        HT_MASK endless = HT_V(d_eq)(big, infinity), both = HT_M(and)(endless, HT_V(d_eq)(small, infinity));
        F scaled = IF(HT_V(d_is_nan)(small), small, IF(endless, zero, MUL(small, factor)));
        small = IF(both, one, IF(far, scaled, small));
        big = IF(both, one, IF(far, HT_V(d_min)(K(0x1p+700), HT_V(d_max)(K(0x1p-700), MUL(big, factor))), big));
    }
    F t = DIV(small, big), t_low = MUL(FNMA(t, big, small), HT_V(d_about_inverse)(big));
    HT_MASK steep = HT_V(d_gt)(a, b), left = HT_V(d_lt)(HT_V(d_with_sign)(one, x), zero);
    F base = IF(steep, K(HT_HALF_PI_HIGH), IF(left, K(2.0 * HT_HALF_PI_HIGH), zero));
    F sign = IF(left, IF(steep, one, K(-1.0)), IF(steep, K(-1.0), one));
    F angle = HT_V(d_turned)(base, sign, t, HT_V(d_atan_rest)(t, t_low));
    return HT_V(d_with_sign)(ABS(angle), y);
}

/* asin(s) = s + *rest; for |x| > 1/2 the result is turned: s^2 = (1 - |x|) / 2, asin |x| = pi / 2 - 2 asin s. */
HT_LANES_INLINE F HT_V(d_asin_parts)(F a, HT_MASK far, F *rest) {
    F z = IF(far, MUL(SUB(K(1.0), a), K(0.5)), MUL(a, a)), root = HT_V(d_sqrt)(z), s = IF(far, root, a);
    F root_low = MUL(FNMA(root, root, z), MUL(K(0.5), HT_V(d_about_inverse)(root)));
    F q = K(0x1.0af379b092117p-5);
    q = HT_V(d_below4)(q, z, 0x1.6111c74a88316p-7, 0x1.e878ce55107aep-9, 0x1.62daa95076b68p-6, -0x1.56eedd3e5c88ep-6);
    q = HT_V(d_below4)(q, z, 0x1.6e8bde5eef66dp-6, 0x1.1c49f9e9a13dep-6, 0x1.ca1ea227054eep-7, 0x1.758d268ee4417p-7);
    q = HT_V(d_below4)(q, z, 0x1.5555555555577p-3, 0x1.333333332e1b5p-4, 0x1.6db6db7209136p-5, 0x1.f1c71a992177dp-6);
    *rest = FMA(MUL(z, s), q, IF(far, root_low, HT_V(d_zero)()));
    return s;
}
HT_LANES_INLINE F HT_V(d_asin)(F x) {
    F a = ABS(x), rest;
    HT_MASK far = HT_V(d_gt)(a, K(0.5));
    F s = HT_V(d_asin_parts)(a, far, &rest);
    F y = HT_V(d_turned)(IF(far, K(HT_HALF_PI_HIGH), HT_V(d_zero)()), IF(far, K(-2.0), K(1.0)), s, rest);
    return HT_V(d_with_sign)(ABS(y), x);
}
HT_LANES_INLINE F HT_V(d_acos)(F x) {
    F a = ABS(x), rest, zero = HT_V(d_zero)(), one = K(1.0);
    HT_MASK far = HT_V(d_gt)(a, K(0.5)), left = HT_V(d_lt)(x, zero);
    F s = HT_V(d_asin_parts)(a, far, &rest);
    F base = IF(far, IF(left, K(2.0 * HT_HALF_PI_HIGH), zero), K(HT_HALF_PI_HIGH));
    F size = IF(far, K(2.0), one), turn = IF(far, IF(left, K(-1.0), one), IF(left, one, K(-1.0)));
    return HT_V(d_turned)(base, MUL(size, turn), s, rest);
}
