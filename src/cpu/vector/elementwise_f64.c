/* Elementwise functions of f64 by autovectorisation; elementary functions stay with the plain kernel. */
#include "cpu/vector/elementwise.h"

#include <math.h>

#define UNARY(id, type, expression)                                                                                    \
    static void id##_f64(const void *const *in, void *out, int64_t n, const void *params) {                            \
        (void)params;                                                                                                  \
        const double *from = in[0];                                                                                    \
        type *to = out;                                                                                                \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            double x = from[i];                                                                                        \
            to[i] = (type)(expression);                                                                                \
        }                                                                                                              \
    }

#define BINARY(id, type, expression)                                                                                   \
    static void id##_f64(const void *const *in, void *out, int64_t n, const void *params) {                            \
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

/* (operation, C type, result in terms of x, or of a and b) */
#define FUNCTIONS(UNARY, BINARY)                                                                                       \
    UNARY(NEGATIVE, double, -x)                                                                                        \
    UNARY(ABS, double, fabs(x))                                                                                        \
    UNARY(SQUARE, double, x *x)                                                                                        \
    UNARY(SQRT, double, sqrt(x))                                                                                       \
    UNARY(RSQRT, double, 1.0 / sqrt(x))                                                                                \
    UNARY(RECIPROCAL, double, 1.0 / x)                                                                                 \
    UNARY(SIGN, double, (x > 0.0) - (x < 0.0))                                                                         \
    UNARY(FLOOR, double, floor(x))                                                                                     \
    UNARY(CEIL, double, ceil(x))                                                                                       \
    UNARY(ROUND, double, rint(x))                                                                                      \
    UNARY(SCALE, double, x *value_of(params))                                                                          \
    UNARY(IS_NAN, uint8_t, x != x)                                                                                     \
    UNARY(IS_INF, uint8_t, fabs(x) == (double)INFINITY)                                                                \
    UNARY(IS_FINITE, uint8_t, fabs(x) < (double)INFINITY)                                                              \
    UNARY(LOGICAL_NOT, uint8_t, x == 0.0)                                                                              \
    BINARY(ADD, double, a + b)                                                                                         \
    BINARY(SUBTRACT, double, a - b)                                                                                    \
    BINARY(MULTIPLY, double, a *b)                                                                                     \
    BINARY(DIVIDE, double, a / b)                                                                                      \
    BINARY(FLOOR_DIVIDE, double, floor(a / b))                                                                         \
    BINARY(MINIMUM, double, a != a || a < b ? a : b)                                                                   \
    BINARY(MAXIMUM, double, a != a || a > b ? a : b)                                                                   \
    BINARY(EQUAL, uint8_t, a == b)                                                                                     \
    BINARY(NOT_EQUAL, uint8_t, a != b)                                                                                 \
    BINARY(LESS, uint8_t, a < b)                                                                                       \
    BINARY(LESS_EQUAL, uint8_t, a <= b)
FUNCTIONS(UNARY, BINARY)

#define CASE(id, type, expression)                                                                                     \
    case HT_OP_##id: return id##_f64;

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_f64)(ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)from, (void)to;
    switch (op) {
        FUNCTIONS(CASE, CASE)
    default: return NULL;
    }
}
