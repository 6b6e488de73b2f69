/* Elementwise functions of f64 by autovectorisation; elementary functions stay with the plain kernel. */
#include "base/math_wide.h"
#include "cpu/vector/elementwise.h"

#include <math.h>

#define UNARY(name, type, expression)                                                                                  \
    static void name(const void *const *in, void *out, int64_t n, const void *params) {                                \
        (void)params;                                                                                                  \
        const double *from = in[0];                                                                                    \
        type *to = out;                                                                                                \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            double x = from[i];                                                                                        \
            to[i] = (type)(expression);                                                                                \
        }                                                                                                              \
    }

#define BINARY(name, type, expression)                                                                                 \
    static void name(const void *const *in, void *out, int64_t n, const void *params) {                                \
        (void)params;                                                                                                  \
        const double *left = in[0], *right = in[1];                                                                    \
        type *to = out;                                                                                                \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            double a = left[i], b = right[i];                                                                          \
            to[i] = (type)(expression);                                                                                \
        }                                                                                                              \
    }

static double value_of(const void *params) { return (double)((const ht_scale_params *)params)->value; }

UNARY(negative, double, -x)
UNARY(absolute, double, fabs(x))
UNARY(square, double, x *x)
UNARY(root, double, sqrt(x))
UNARY(inverse_root, double, 1.0 / sqrt(x))
UNARY(reciprocal, double, 1.0 / x)
UNARY(sign, double, (x > 0.0) - (x < 0.0))
UNARY(round_down, double, floor(x))
UNARY(round_up, double, ceil(x))
UNARY(round_nearest, double, rint(x))
UNARY(scale, double, x *value_of(params))
UNARY(is_nan, uint8_t, x != x)
UNARY(is_inf, uint8_t, fabs(x) == (double)INFINITY)
UNARY(is_finite, uint8_t, fabs(x) < (double)INFINITY)
UNARY(logical_not, uint8_t, x == 0.0)
BINARY(add, double, a + b)
BINARY(subtract, double, a - b)
BINARY(multiply, double, a *b)
BINARY(divide, double, a / b)
BINARY(floor_divide, double, floor(a / b))
BINARY(minimum, double, a != a || a < b ? a : b)
BINARY(maximum, double, a != a || a > b ? a : b)
BINARY(equal, uint8_t, a == b)
BINARY(not_equal, uint8_t, a != b)
BINARY(less, uint8_t, a < b)
BINARY(less_equal, uint8_t, a <= b)

/* Takes the fast path if every quotient of the block is small. */
static void remainder_of(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    const double *a = in[0], *b = in[1];
    double *to = out;
    int64_t hard = 0;
    for (int64_t i = 0; i < n; i++) hard |= !ht_is_easy_remainder_f64(a[i], b[i]);
    if (hard) {
        for (int64_t i = 0; i < n; i++) to[i] = ht_remainder_f64(a[i], b[i]);
        return;
    }
    HT_VECTORISE
    for (int64_t i = 0; i < n; i++) to[i] = ht_remainder_easy_f64(a[i], b[i]);
}

#define ROW(id, name)                                                                                                  \
    case HT_OP_##id: return name

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_f64)(ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)from, (void)to;
    switch (op) {
        ROW(NEGATIVE, negative);
        ROW(ABS, absolute);
        ROW(SQUARE, square);
        ROW(SQRT, root);
        ROW(RSQRT, inverse_root);
        ROW(RECIPROCAL, reciprocal);
        ROW(SIGN, sign);
        ROW(FLOOR, round_down);
        ROW(CEIL, round_up);
        ROW(ROUND, round_nearest);
        ROW(SCALE, scale);
        ROW(IS_NAN, is_nan);
        ROW(IS_INF, is_inf);
        ROW(IS_FINITE, is_finite);
        ROW(LOGICAL_NOT, logical_not);
        ROW(ADD, add);
        ROW(SUBTRACT, subtract);
        ROW(MULTIPLY, multiply);
        ROW(DIVIDE, divide);
        ROW(FLOOR_DIVIDE, floor_divide);
        ROW(REMAINDER, remainder_of);
        ROW(MINIMUM, minimum);
        ROW(MAXIMUM, maximum);
        ROW(EQUAL, equal);
        ROW(NOT_EQUAL, not_equal);
        ROW(LESS, less);
        ROW(LESS_EQUAL, less_equal);
    default: return NULL;
    }
}
