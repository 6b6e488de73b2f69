/* Functions of f32 in plain C, and of f16 and bf16 through f32. */
#include "cpu/vector/each.h"

#include <math.h>

#define THROUGH_F32(name, n_in, result)                                                                                \
    static void name##_f16(const void *const *in, void *out, int64_t n, const void *params) {                          \
        each_through_f32(HT_F16, (result) == HT_BOOL ? HT_BOOL : HT_F16, name##_f32, n_in, in, out, n, params);        \
    }                                                                                                                  \
    static void name##_bf16(const void *const *in, void *out, int64_t n, const void *params) {                         \
        each_through_f32(HT_BF16, (result) == HT_BOOL ? HT_BOOL : HT_BF16, name##_f32, n_in, in, out, n, params);      \
    }

#define UNARY(name, type, result, expression)                                                                          \
    static void name##_f32(const void *const *in, void *out, int64_t n, const void *params) {                          \
        (void)params;                                                                                                  \
        const float *from = in[0];                                                                                     \
        type *to = out;                                                                                                \
        HT_EACH                                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float x = from[i];                                                                                         \
            to[i] = (type)(expression);                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    THROUGH_F32(name, 1, result)

#define BINARY(name, type, result, expression)                                                                         \
    static void name##_f32(const void *const *in, void *out, int64_t n, const void *params) {                          \
        (void)params;                                                                                                  \
        const float *left = in[0], *right = in[1];                                                                     \
        type *to = out;                                                                                                \
        HT_EACH                                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float a = left[i], b = right[i];                                                                           \
            to[i] = (type)(expression);                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    THROUGH_F32(name, 2, result)

UNARY(sign, float, HT_F32, (x > 0.0f) - (x < 0.0f))
UNARY(floor, float, HT_F32, floorf(x))
UNARY(ceil, float, HT_F32, ceilf(x))
UNARY(round, float, HT_F32, rintf(x))
UNARY(is_nan, uint8_t, HT_BOOL, x != x)
UNARY(is_inf, uint8_t, HT_BOOL, fabsf(x) == INFINITY)
UNARY(is_finite, uint8_t, HT_BOOL, fabsf(x) < INFINITY)
UNARY(logical_not, uint8_t, HT_BOOL, x == 0.0f)
BINARY(floor_divide, float, HT_F32, floorf(a / b))
BINARY(equal, uint8_t, HT_BOOL, a == b)
BINARY(not_equal, uint8_t, HT_BOOL, a != b)
BINARY(less, uint8_t, HT_BOOL, a < b)
BINARY(less_equal, uint8_t, HT_BOOL, a <= b)

#define ROW(id, name)                                                                                                  \
    case HT_OP_##id: return from == HT_F32 ? name##_f32 : from == HT_F16 ? name##_f16 : name##_bf16

ht_each_fn *HT_ISA_NAME(ht_find_each_float)(ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)to;
    switch (op) {
        ROW(SIGN, sign);
        ROW(FLOOR, floor);
        ROW(CEIL, ceil);
        ROW(ROUND, round);
        ROW(IS_NAN, is_nan);
        ROW(IS_INF, is_inf);
        ROW(IS_FINITE, is_finite);
        ROW(LOGICAL_NOT, logical_not);
        ROW(FLOOR_DIVIDE, floor_divide);
        ROW(EQUAL, equal);
        ROW(NOT_EQUAL, not_equal);
        ROW(LESS, less);
        ROW(LESS_EQUAL, less_equal);
    default: return NULL;
    }
}
