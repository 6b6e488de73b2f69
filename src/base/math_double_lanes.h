/* Exponentials and logarithms of f64: a template on the names of base/lane_double.h, as base/math_lanes.h.
 *
 * Errors are at most about 1 ulp, more for silu and gelu_tanh (tests/ops/test_math_double.c). Values that need more
 * precision are double-word numbers x + x_low, x_low being the rounding error of x. Denormal arguments and results may
 * be flushed to 0. Coefficients are minimax fits, lowest power first. */

#define F    HT_V(d)
#define I    HT_V(l)
#define K    HT_V(d_set1)
#define L    HT_V(l_set1)
#define ADD  HT_V(d_add)
#define SUB  HT_V(d_sub)
#define MUL  HT_V(d_mul)
#define DIV  HT_V(d_div)
#define FMA  HT_V(d_fma)
#define FNMA HT_V(d_fnma)
#define FMS  HT_V(d_fms)
#define IF   HT_V(d_select)
#define ABS  HT_V(d_abs)

/* Rounding error of sum = a + b, for |a| >= |b| or a = 0 (Dekker's Fast2Sum). */
HT_LANES_INLINE F HT_V(d_sum_low)(F a, F b, F sum) { return ADD(SUB(a, sum), b); }

HT_LANES_INLINE F HT_V(d_poly4)(F x, double c0, double c1, double c2, double c3) {
    return FMA(FMA(FMA(K(c3), x, K(c2)), x, K(c1)), x, K(c0));
}
/* c0 + c1 x + c2 x^2 + c3 x^3 + q x^4. */
HT_LANES_INLINE F HT_V(d_below4)(F q, F x, double c0, double c1, double c2, double c3) {
    return FMA(FMA(FMA(FMA(q, x, K(c3)), x, K(c2)), x, K(c1)), x, K(c0));
}

/* ---- exponentials ---- */

/* Argument reduction x = n ln 2 + r + *r_low for |x| < 2^11; *n = n + HT_ROUND_MAGIC. */
HT_LANES_INLINE F HT_V(d_exp_parts)(F x, F *n, F *r_low) {
    *n = FMA(x, K(HT_WIDE_LOG2_E), K(HT_ROUND_MAGIC));
    F whole = SUB(*n, K(HT_ROUND_MAGIC)), low = K(0x1.ef35793c76730p-45);
    F first = FNMA(whole, K(0x1.62e42fefa3800p-1), x), r = FNMA(whole, low, first); /* `first` is exact */
    *r_low = FNMA(whole, low, SUB(first, r));
    return r;
}

/* (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2 */
HT_LANES_INLINE F HT_V(d_exp_rest)(F r) {
    F q = FMA(FMA(K(0x1.1f8c1a2001cd0p-29), r, K(0x1.af6f5d0260854p-26)), r, K(0x1.27e4cbf185c63p-22));
    q = HT_V(d_below4)(q, r, 0x1.6c16c16c14fedp-10, 0x1.a01a01b46851dp-13, 0x1.a01a01ad88c54p-16,
                       0x1.71ddee03d3022p-19);
    return HT_V(d_below4)(q, r, 0x1p-1, 0x1.555555555555cp-3, 0x1.5555555555558p-5, 0x1.111111110e9c1p-7);
}

/* 2^(n + shift), for n + HT_ROUND_MAGIC as d_exp_parts returns it. */
HT_LANES_INLINE F HT_V(d_power_of)(F n, int shift) {
    return HT_V(d_from_bits)(HT_V(l_add)(HT_V(l_shl)(HT_V(d_bits)(n), 52), L((int64_t)(1023 + shift) << 52)));
}

/* e^x, without r_low: it would save 0.2 ulp and cost a tenth of the time. */
HT_LANES_INLINE F HT_V(d_exp)(F x) {
    F near = HT_V(d_max)(K(-746.0), HT_V(d_min)(K(711.0), x)), n, r_low, r = HT_V(d_exp_parts)(near, &n, &r_low);
    F y = ADD(K(1.0), FMA(MUL(r, r), HT_V(d_exp_rest)(r), r));
    return HT_V(d_scale)(y, SUB(n, K(HT_ROUND_MAGIC)));
}

/* (e^x - 1) / 2 = 2^(n - 1) - 1/2 + 2^(n - 1) (e^r - 1), then doubled: 2^n itself may overflow. */
HT_LANES_INLINE F HT_V(d_expm1)(F x) {
    F near = HT_V(d_max)(K(-40.0), HT_V(d_min)(K(709.9), x)), n, r_low, r = HT_V(d_exp_parts)(near, &n, &r_low);
    F power = HT_V(d_power_of)(n, -1), rest = FMA(MUL(r, r), HT_V(d_exp_rest)(r), r_low);
    F whole = SUB(power, K(0.5)), whole_low = SUB(SUB(power, whole), K(0.5)), part = MUL(power, r);
    F sum = ADD(whole, part), low = ADD(HT_V(d_sum_low)(whole, part, sum), FMA(power, rest, whole_low));
    return IF(HT_V(d_lt)(ABS(x), K(0x1p-54)), x, MUL(K(2.0), ADD(sum, low)));
}

/* For x = n ln 2 + r >= 0: *up = 2^n / 4, *down = 2^-n / 4, sinh r = r + *odd, cosh r = 1 + *even. Returns r. */
HT_LANES_INLINE F HT_V(d_both_powers)(F x, F *up, F *down, F *odd, F *even) {
    F n, r_low, r = HT_V(d_exp_parts)(HT_V(d_min)(K(710.6), x), &n, &r_low), z = MUL(r, r);
    *up = HT_V(d_power_of)(n, -2);
    F least = HT_V(d_min)(n, K(HT_ROUND_MAGIC + 64.0)); /* keeps 2^-n normal where e^-x is negligible */
    I bits = HT_V(l_shl)(HT_V(d_bits)(least), 52);
    *down = HT_V(d_from_bits)(HT_V(l_sub)(L(INT64_C(1021) << 52), bits));
    F q = HT_V(d_below4)(K(0x1.af6f5d30077f0p-26), z, 0x1.555555555555cp-3, 0x1.111111110e9c1p-7, 0x1.a01a01b46851dp-13,
                         0x1.71ddee03d3022p-19);
    *odd = FMA(MUL(z, r), q, r_low);
    q = FMA(K(0x1.1f8c1ce5f19b9p-29), z, K(0x1.27e4cbf185c52p-22));
    q = HT_V(d_below4)(q, z, 0x1p-1, 0x1.5555555555558p-5, 0x1.6c16c16c14fedp-10, 0x1.a01a01ad88c54p-16);
    *even = MUL(z, q);
    return r;
}

/* sinh(n ln 2 + r) = sinh(n ln 2) cosh r + cosh(n ln 2) sinh r, and cosh likewise. */
HT_LANES_INLINE F HT_V(d_sinh)(F x) {
    F a = ABS(x), up, down, odd, even, r = HT_V(d_both_powers)(a, &up, &down, &odd, &even);
    F s = SUB(up, down), c = ADD(up, down), s_low = SUB(SUB(up, s), down);
    F sum = FMA(c, r, s), low = FMA(c, r, ADD(SUB(s, sum), s_low));
    F y = MUL(K(2.0), ADD(sum, FMA(s, even, FMA(c, odd, low))));
    return IF(HT_V(d_lt)(a, K(0x1p-28)), x, HT_V(d_with_sign)(ABS(y), x));
}
HT_LANES_INLINE F HT_V(d_cosh)(F x) {
    F up, down, odd, even, r = HT_V(d_both_powers)(ABS(x), &up, &down, &odd, &even);
    F s = SUB(up, down), c = ADD(up, down), sum = FMA(s, r, c), low = FMA(s, r, ADD(SUB(up, sum), down));
    return MUL(K(2.0), ADD(sum, FMA(s, odd, FMA(c, even, low))));
}

/* 1 + e^x as the double-word result + *low, for x in [-142, 709]. */
HT_LANES_INLINE F HT_V(d_one_and_power)(F x, F *low) {
    F n, r_low, r = HT_V(d_exp_parts)(x, &n, &r_low), power = HT_V(d_power_of)(n, 0);
    F rest = FMA(MUL(r, r), HT_V(d_exp_rest)(r), r_low), one = K(1.0), whole = ADD(power, one);
    HT_MASK up = HT_V(d_lt)(power, one);
    F first = IF(up, one, power), second = IF(up, power, one), part = MUL(power, r), sum = ADD(whole, part);
    F left = FMA(power, rest, HT_V(d_sum_low)(first, second, whole));
    left = ADD(HT_V(d_sum_low)(whole, part, sum), left);
    F y = ADD(sum, left);
    *low = HT_V(d_sum_low)(sum, left, y);
    return y;
}

/* 1 / x with a relative error of up to 1/8, for x in [2^-1000, 2^1000]: enough to correct a rounding error. */
HT_LANES_INLINE F HT_V(d_about_inverse)(F x) {
    return HT_V(d_from_bits)(HT_V(l_sub)(L(INT64_C(0x7fde623822fc16e6)), HT_V(d_bits)(x)));
}
/* tanh x = t / (t + 2) with t = e^2x - 1 as a double-word number. The remainder of the quotient is divided by t + 2
 * too, using 1 / (t + 2) = (1 - tanh x) / 2. */
HT_LANES_INLINE F HT_V(d_tanh)(F x) {
    F size = ABS(x), a = HT_V(d_min)(K(18.7), size), n, r_low, r = HT_V(d_exp_parts)(ADD(a, a), &n, &r_low);
    F power = HT_V(d_power_of)(n, 0), whole = SUB(power, K(1.0)), sum = FMA(power, r, whole);
    F low = FMA(power, FMA(MUL(r, r), HT_V(d_exp_rest)(r), r_low), FMA(power, r, SUB(whole, sum)));
    F t = ADD(sum, low), t_low = HT_V(d_sum_low)(sum, low, t);
    F d = ADD(t, K(2.0)), d_low = ADD(SUB(t, SUB(d, K(2.0))), t_low), y = DIV(t, d);
    y = FMA(FNMA(y, d_low, ADD(FNMA(y, d, t), t_low)), FNMA(y, K(0.5), K(0.5)), y);
    return HT_V(d_with_sign)(IF(HT_V(d_gt)(size, K(19.0)), K(1.0), y), x);
}

/* 1 / (1 + e^x) = y + y * *left for x in [-142, 709]; y is unspecified for a larger x. */
HT_LANES_INLINE F HT_V(d_sigmoid_in_two)(F x, F *left) {
    F low, d = HT_V(d_one_and_power)(x, &low), y = DIV(K(1.0), d);
    *left = FNMA(y, low, FNMA(y, d, K(1.0)));
    return y;
}
/* y + y * left, flushed to 0 where it is denormal. */
HT_LANES_INLINE F HT_V(d_sigmoid_from)(F x, F y, F left) {
    return IF(HT_V(d_lt)(x, K(-708.396418532264)), HT_V(d_zero)(), FMA(left, y, y));
}
HT_LANES_INLINE F HT_V(d_sigmoid)(F x) {
    F near = HT_V(d_max)(K(-45.0), HT_V(d_min)(K(708.5), HT_V(d_neg)(x))), left;
    F y = HT_V(d_sigmoid_in_two)(near, &left);
    return HT_V(d_sigmoid_from)(x, y, left);
}

/* x * sigmoid(v), given as y: recomputed where sigmoid(v) is flushed to 0 but the product is a normal number. */
HT_LANES_INLINE F HT_V(d_times_far_sigmoid)(F x, F v, F y) {
    HT_MASK far = HT_V(d_lt)(v, K(-700.0));
    if (HT_M(any)(far)) {
        F power = HT_V(d_exp)(ADD(v, K(40.0)));
        y = IF(far, MUL(MUL(x, power), K(0x1.39792499b1a24p-58)), y); /* e^-40 */
    }
    return y;
}
HT_LANES_INLINE F HT_V(d_silu)(F x) { return HT_V(d_times_far_sigmoid)(x, x, MUL(x, HT_V(d_sigmoid)(x))); }

/* 0.5 x (1 + tanh u) = x / (1 + e^-2u) with 2 u = x (c + 0.044715 c x^2), c = sqrt(8 / pi). For negative x the absolute
 * error of 2 u is the relative error of the result, so 2 u is the double-word v + v_low, and v_low enters to first
 * order. c is given to 46 fraction bits, so that c - sum is exact for sum < 128. */
HT_LANES_INLINE F HT_V(d_gelu_tanh)(F x) {
    F near = HT_V(d_max)(K(-24.0), HT_V(d_min)(K(12.0), x)), z = MUL(near, near), z_low = FMS(near, near, z);
    F cubic = K(0x1.2444f2a4d8b4bp-4), c = K(0x1.9884533d43640p+0), sum = FMA(z, cubic, c);
    F low = FMA(z, cubic, SUB(c, sum));
    low = ADD(low, FMA(z_low, cubic, FMA(z, K(-0x1.6c843a29d1c70p-61), K(0x1.08d0fcb3c500cp-48))));
    F v = MUL(near, sum), v_low = FMA(near, low, FMS(near, sum, v));
    F left, y = HT_V(d_sigmoid_in_two)(HT_V(d_neg)(v), &left);
    y = HT_V(d_sigmoid_from)(v, y, FMA(SUB(K(1.0), y), v_low, left));
    return HT_V(d_times_far_sigmoid)(FMA(x, v_low, x), v, MUL(x, y));
}

/* ---- logarithms ---- */

/* x = 2^k m (ht_log_factors). Returns m and *k = k; *place has k + 1023 from bit 52 up and the interval in bits 48 to
 * 51. */
HT_LANES_INLINE F HT_V(d_log_parts)(F x, F *k, I *place) {
    I bits = HT_V(l_add)(HT_V(d_bits)(x), L((INT64_C(1023) << 52) - HT_LOG_START));
    *place = bits;
    F e = HT_V(d_from_bits)(HT_V(l_or)(HT_V(l_shr)(bits, 52), L(INT64_C(0x4330000000000000))));
    *k = SUB(e, K(0x1p+52 + 1023.0));
    return HT_V(d_from_bits)(HT_V(l_add)(HT_V(l_and)(bits, L(INT64_C(0xfffffffffffff))), L(HT_LOG_START)));
}
/* r of ht_log_factors: exact, or, above 1/32, with an error of 2^-58. */
HT_LANES_INLINE F HT_V(d_log_reduced)(F x, F *k, I *place) {
    F m = HT_V(d_log_parts)(x, k, place);
    return FMS(m, HT_V(d_pick)(ht_log_factors, HT_V(l_shr)(*place, 48)), K(1.0));
}

/* log(1 + r) - r for |r| < 1/30 */
HT_LANES_INLINE F HT_V(d_log_rest)(F r) {
    F q = HT_V(d_below4)(K(-0x1.9b17c2ba36c70p-4), r, -0x1.5555556215a10p-3, 0x1.2491fe7852f27p-3,
                         -0x1.ffff673c06548p-4, 0x1.c8a9e848f8209p-4);
    q = HT_V(d_below4)(q, r, -0x1p-1, 0x1.55555555550a2p-2, -0x1.ffffffffff43fp-3, 0x1.999999a512e49p-3);
    return MUL(MUL(r, r), q);
}

/* True when any lane is not a positive, normal, finite number. */
HT_LANES_INLINE bool HT_V(d_any_special)(F x) {
    const int64_t least = INT64_C(0x10000000000000), range = INT64_C(0x7ff0000000000000) - least;
    I moved =
        HT_V(l_add)(HT_V(d_bits)(x), L(INT64_MAX - (least - 1))); /* makes a signed comparison act as an unsigned one */
    return HT_M(any)(HT_V(l_gt)(moved, L(INT64_MIN + range - 1)));
}
/* Logarithm of x: y, or the special result for x <= 0, infinite or NaN. */
HT_LANES_INLINE F HT_V(d_log_special)(F x, F y) {
    y = IF(HT_V(d_gt)(x, K(0x1.fffffffffffffp+1023)), x, y);
    y = IF(HT_V(d_lt)(x, HT_V(d_zero)()), K((double)NAN), y);
    y = IF(HT_V(d_lt)(ABS(x), K(0x1p-1022)), K(-(double)INFINITY), y);
    return IF(HT_V(d_is_nan)(x), x, y);
}

/* Logarithm to base b with its table: two + two_low = log_b(2), scale + scale_low = log_b(e). */
HT_LANES_INLINE F HT_V(d_log_of)(F x, const double table[2][16], double two, double two_low, double scale,
                                 double scale_low) {
    I place;
    F k, r = HT_V(d_log_reduced)(x, &k, &place);
    place = HT_V(l_shr)(place, 48);
    F whole = FMA(k, K(two), HT_V(d_pick)(table[0], place)), low = FMA(k, K(two_low), HT_V(d_pick)(table[1], place));
    F part = MUL(r, K(scale)), sum = ADD(whole, part);
    low = ADD(low, FMA(r, K(scale_low), FMS(r, K(scale), part)));
    low = ADD(FMA(HT_V(d_log_rest)(r), K(scale), low), HT_V(d_sum_low)(whole, part, sum));
    F y = ADD(sum, low);
    return HT_V(d_any_special)(x) ? HT_V(d_log_special)(x, y) : y;
}
HT_LANES_INLINE F HT_V(d_log)(F x) {
    I place;
    F k, r = HT_V(d_log_reduced)(x, &k, &place);
    place = HT_V(l_shr)(place, 48);
    F whole = FMA(k, K(0x1.62e42fefa3800p-1), HT_V(d_pick)(ht_log_table[0][0], place)), sum = ADD(whole, r);
    F low = FMA(k, K(0x1.ef35793c76730p-45), HT_V(d_pick)(ht_log_table[0][1], place));
    low = ADD(ADD(low, HT_V(d_log_rest)(r)), HT_V(d_sum_low)(whole, r, sum));
    F y = ADD(sum, low);
    return HT_V(d_any_special)(x) ? HT_V(d_log_special)(x, y) : y;
}
HT_LANES_INLINE F HT_V(d_log2)(F x) {
    return HT_V(d_log_of)(x, ht_log_table[1], 1.0, 0.0, HT_WIDE_LOG2_E, 0x1.777d0ffda0d24p-56);
}
HT_LANES_INLINE F HT_V(d_log10)(F x) {
    return HT_V(d_log_of)(x, ht_log_table[2], 0x1.34413509f8000p-2, -0x1.80433b83b532ap-44, 0x1.bcb7b1526e50ep-2,
                          0x1.95355baaafad3p-57);
}

/* log(1 + x): the rounding error of 1 + x is corrected to first order. */
HT_LANES_INLINE F HT_V(d_log1p)(F x) {
    I place;
    F u = ADD(K(1.0), x), back = SUB(u, K(1.0)), lost = ADD(SUB(K(1.0), SUB(u, back)), SUB(x, back));
    F k, r = HT_V(d_log_reduced)(u, &k, &place);
    I down = HT_V(l_sub)(L(0x7ff0000000000000), HT_V(l_and)(place, L(0x7ff0000000000000))); /* 2^(1 - k) */
    place = HT_V(l_shr)(place, 48);
    F r_low = MUL(MUL(lost, HT_V(d_from_bits)(down)), HT_V(d_pick)(ht_log_factors, place));
    F whole = FMA(k, K(0x1.62e42fefa3800p-1), HT_V(d_pick)(ht_log_table[0][0], place)), sum = ADD(whole, r);
    F low = FMA(k, K(0x1.ef35793c76730p-45), HT_V(d_pick)(ht_log_table[0][1], place));
    low = ADD(FMA(r_low, FNMA(r, K(0.5), K(0.5)), low), ADD(HT_V(d_log_rest)(r), HT_V(d_sum_low)(whole, r, sum)));
    F y = ADD(sum, low);
    if (HT_V(d_any_special)(u)) y = HT_V(d_log_special)(u, y);
    return IF(HT_V(d_lt)(ABS(x), K(0x1p-54)), x, y);
}

/* log(e^a + e^b) without overflow; an infinite maximum is the result. */
HT_LANES_INLINE F HT_V(d_logaddexp)(F a, F b) {
    F high = HT_V(d_max)(a, b), low = HT_V(d_min)(b, a); /* a NaN operand reaches high or low */
    F y = ADD(high, HT_V(d_log1p)(HT_V(d_exp)(SUB(low, high))));
    HT_MASK endless = HT_M(or)(HT_V(d_eq)(ABS(high), K((double)INFINITY)), HT_V(d_eq)(low, K(-(double)INFINITY)));
    y = IF(endless, high, y);
    F sum = ADD(a, b);
    return IF(HT_M(or)(HT_V(d_is_nan)(a), HT_V(d_is_nan)(b)), sum, y);
}

#include "base/math_double_angles.h"
#include "base/math_double_power.h"

#undef F
#undef I
#undef K
#undef L
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef FMA
#undef FNMA
#undef FMS
#undef IF
#undef ABS
