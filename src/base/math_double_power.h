/* Powers of f64: a part of the template base/math_double_lanes.h. */

/* log(x) as a double-word number, with a relative error of 2^-63, for positive, normal, finite x. r_low is the rounding
 * error of r: log(1 + r + r_low) = log(1 + r) + r_low (1 - r). The coefficient 1/3 of r^3 is split into 1/4 and the
 * rest, which is part of q, to keep the rounding errors of q small. */
HT_LANES_INLINE F HT_V(d_log_in_two)(F x, F *low) {
    I place;
    F k, m = HT_V(d_log_parts)(x, &k, &place);
    place = HT_V(l_shr)(place, 48);
    F factor = HT_V(d_pick)(ht_log_factors, place), product = MUL(m, factor), one = K(1.0), r = FMS(m, factor, one);
    F r_low = ADD(SUB(SUB(product, one), r), FMS(m, factor, product));
    F whole = FMA(k, K(0x1.62e42fefa3800p-1), HT_V(d_pick)(ht_log_table[0][0], place));
    F whole_low = FMA(k, K(0x1.ef35793c76730p-45), HT_V(d_pick)(ht_log_table[0][1], place));
    F z = MUL(r, r), z_low = FMS(r, r, z), minus_half = K(-0.5), square = MUL(minus_half, z), cube = MUL(z, r);
    F q = HT_V(d_below4)(K(0x1.7507cf779736ep-4), r, 0x1.249249202559ep-3, -0x1.ffffb66669acbp-4, 0x1.c71c6891dcb73p-4,
                         -0x1.9aa2d6520e8dbp-4);
    q = HT_V(d_below4)(q, r, 0x1.5555555555555p-4, -0x1.ffffffffffd45p-3, 0x1.999999999a718p-3, -0x1.55555559995acp-3);
    F first = ADD(whole, r), sum = ADD(first, square);
    F rest = ADD(HT_V(d_sum_low)(whole, r, first), HT_V(d_sum_low)(first, square, sum));
    rest = ADD(rest, FNMA(r, r_low, ADD(whole_low, r_low)));
    rest = FMA(z_low, FMA(r, K(0x1.5555555555555p-2), minus_half), rest);
    rest = FMA(cube, K(0.25), FMA(cube, q, rest));
    F y = ADD(sum, rest);
    *low = HT_V(d_sum_low)(sum, rest, y);
    return y;
}

/* e^(x + low) for |x| <= 746, |low| <= 2^-20. */
HT_LANES_INLINE F HT_V(d_exp_in_two)(F x, F low) {
    F n, r_low, first = HT_V(d_exp_parts)(x, &n, &r_low), added = ADD(r_low, low), r = ADD(first, added);
    F rest = FMA(MUL(r, r), HT_V(d_exp_rest)(r), HT_V(d_sum_low)(first, added, r)), one = K(1.0), sum = ADD(one, r);
    return HT_V(d_scale)(ADD(sum, ADD(HT_V(d_sum_low)(one, r, sum), rest)), SUB(n, K(HT_ROUND_MAGIC)));
}

/* x^b from y = |x|^b: signs and special values, as C's pow. */
HT_LANES_INLINE F HT_V(d_pow_special)(F x, F b, F y) {
    const F zero = HT_V(d_zero)(), one = K(1.0), infinity = K((double)INFINITY), a = ABS(x), size = ABS(b);
    const HT_MASK up = HT_V(d_gt)(b, zero);
    y = IF(HT_V(d_lt)(a, K(0x1p-1022)), IF(up, zero, infinity), y);
    y = IF(HT_V(d_eq)(a, infinity), IF(up, infinity, zero), y);
    F endless = IF(HT_V(d_gt)(a, one), IF(up, infinity, zero), IF(up, zero, infinity));
    y = IF(HT_V(d_eq)(size, infinity), IF(HT_V(d_eq)(a, one), one, endless), y);
    /* Numbers of 2^52 and more are integers, of 2^53 and more even integers; infinity counts as even. */
    const F bound = K(0x1p+52), half = HT_V(d_min)(MUL(size, K(0.5)), bound);
    HT_MASK far = HT_V(d_gt)(size, bound), whole = HT_M(or)(far, HT_V(d_eq)(SUB(ADD(size, bound), bound), size));
    HT_MASK even = HT_V(d_eq)(SUB(ADD(half, bound), bound), half);
    F sign = IF(HT_V(d_lt)(HT_V(d_with_sign)(one, x), zero), K(-1.0), one);
    y = IF(whole, MUL(y, IF(even, one, sign)), y);
    F shown = IF(HT_V(d_lt)(a, K(0x1p-1022)), zero, x);
    F broken = IF(HT_M(and)(HT_V(d_lt)(shown, zero), HT_V(d_lt)(a, infinity)), K((double)NAN), y);
    broken = IF(HT_V(d_eq)(size, infinity), y, broken);
    y = IF(whole, y, broken);
    y = IF(HT_V(d_is_nan)(x), x, y);
    y = IF(HT_V(d_is_nan)(b), b, y);
    y = IF(HT_V(d_eq)(b, zero), one, y);
    return IF(HT_V(d_eq)(x, one), one, y);
}

/* x^(1/2): sqrt(x), but +0 for -0 and infinity for minus infinity, as C's pow. */
HT_LANES_INLINE F HT_V(d_pow_half)(F x) {
    F root = HT_V(d_sqrt)(ADD(x, HT_V(d_zero)()));
    return IF(HT_V(d_eq)(x, K(-(double)INFINITY)), K((double)INFINITY), root);
}
/* Exponents 2, 1, 1/2 and -1, computed as x * x, x, sqrt(x) and 1 / x. */
HT_LANES_INLINE F HT_V(d_pow_simple)(F x, F b, F y) {
    y = IF(HT_V(d_eq)(b, K(2.0)), MUL(x, x), y);
    y = IF(HT_V(d_eq)(b, K(1.0)), x, y);
    y = IF(HT_V(d_eq)(b, K(0.5)), HT_V(d_pow_half)(x), y);
    return IF(HT_V(d_eq)(b, K(-1.0)), DIV(K(1.0), x), y);
}

HT_LANES_INLINE F HT_V(d_pow)(F x, F b) {
    F log_low, log = HT_V(d_log_in_two)(ABS(x), &log_low), product = MUL(b, log);
    F low = FMA(b, log_low, FMS(b, log, product));
    /* Mantissa 0: b is a power of 2, 0 or infinite. */
    HT_MASK simple = HT_V(l_eq)(HT_V(l_shl)(HT_V(d_bits)(b), 12), L(0));
    HT_MASK far = HT_M(or)(HT_V(d_gt)(ABS(product), K(708.0)), HT_V(d_is_nan)(product));
    if (!HT_M(any)(HT_M(or)(simple, far)) && !HT_V(d_any_special)(x)) return HT_V(d_exp_in_two)(product, low);
    /* The result is 0 or infinite where `low` is large or NaN. */
    product = HT_V(d_max)(HT_V(d_min)(product, K(746.0)), K(-746.0));
    low = HT_V(d_max)(HT_V(d_min)(low, K(0x1p-20)), K(-0x1p-20));
    return HT_V(d_pow_simple)(x, b, HT_V(d_pow_special)(x, b, HT_V(d_exp_in_two)(product, low)));
}
