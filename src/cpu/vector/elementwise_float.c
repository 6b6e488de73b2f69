/* Elementwise functions of f32 in plain C, and of f16 and bf16 through f32; sin and cos of f16 are in
 * elementwise_lanes.c. */
#include "base/math_wide.h"
#include "cpu/vector/elementwise.h"

#include <math.h>

#define THROUGH_F32(name, n_in, result)                                                                                \
    static void name##_f16(const void *const *in, void *out, int64_t n, const void *params) {                          \
        elementwise_through_f32(HT_F16, (result) == HT_BOOL ? HT_BOOL : HT_F16, name##_f32, n_in, in, out, n, params); \
    }                                                                                                                  \
    BF16_THROUGH_F32(name, n_in, result)
#define BF16_THROUGH_F32(name, n_in, result)                                                                           \
    static void name##_bf16(const void *const *in, void *out, int64_t n, const void *params) {                         \
        elementwise_through_f32(HT_BF16, (result) == HT_BOOL ? HT_BOOL : HT_BF16, name##_f32, n_in, in, out, n,        \
                                params);                                                                               \
    }

#define UNARY(name, type, result, expression)                                                                          \
    static void name##_f32(const void *const *in, void *out, int64_t n, const void *params) {                          \
        (void)params;                                                                                                  \
        const float *from = in[0];                                                                                     \
        type *to = out;                                                                                                \
        HT_VECTORISE                                                                                                   \
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
        HT_VECTORISE                                                                                                   \
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
UNARY(erf, float, HT_F32, ht_erf_f32(x))
UNARY(erfinv, float, HT_F32, ht_erfinv_f32(x))
UNARY(gelu, float, HT_F32, ht_gelu_f32(x))
UNARY(is_nan, uint8_t, HT_BOOL, x != x)
UNARY(is_inf, uint8_t, HT_BOOL, fabsf(x) == INFINITY)
UNARY(is_finite, uint8_t, HT_BOOL, fabsf(x) < INFINITY)
UNARY(logical_not, uint8_t, HT_BOOL, x == 0.0f)
BINARY(floor_divide, float, HT_F32, floorf(a / b))
BINARY(logaddexp, float, HT_F32, ht_logaddexp_f32(a, b))
BINARY(equal, uint8_t, HT_BOOL, a == b)
BINARY(not_equal, uint8_t, HT_BOOL, a != b)
BINARY(less, uint8_t, HT_BOOL, a < b)
BINARY(less_equal, uint8_t, HT_BOOL, a <= b)

/* sin and cos: the fast path if every argument of the block is in range, else element by element. */
#define ANGLE(name)                                                                                                    \
    static void name##_f32(const void *const *in, void *out, int64_t n, const void *params) {                          \
        (void)params;                                                                                                  \
        const float *x = in[0];                                                                                        \
        float *to = out;                                                                                               \
        int hard = 0;                                                                                                  \
        for (int64_t i = 0; i < n; i++) hard |= !ht_is_easy_angle(x[i]);                                               \
        if (hard) {                                                                                                    \
            for (int64_t i = 0; i < n; i++) to[i] = ht_##name##_f32(x[i]);                                             \
            return;                                                                                                    \
        }                                                                                                              \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) to[i] = ht_##name##_easy(x[i]);                                                \
    }                                                                                                                  \
    BF16_THROUGH_F32(name, 1, HT_F32)
ANGLE(sin)
ANGLE(cos)

static void remainder_f32(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    const float *a = in[0], *b = in[1];
    float *to = out;
    int hard = 0;
    for (int64_t i = 0; i < n; i++) hard |= !ht_is_easy_remainder(a[i], b[i]);
    if (hard) {
        for (int64_t i = 0; i < n; i++) to[i] = ht_remainder_f32(a[i], b[i]);
        return;
    }
    HT_VECTORISE
    for (int64_t i = 0; i < n; i++) to[i] = ht_remainder_easy(a[i], b[i]);
}
THROUGH_F32(remainder, 2, HT_F32)

static void nan_to_num_f32(const void *const *in, void *out, int64_t n, const void *params) {
    const ht_nan_to_num_params *p = params;
    const float *x = in[0];
    float *to = out, nan = (float)p->nan, most = 0x1.fffffep+127f;
    float high = isnan(p->posinf) ? most : (float)p->posinf, low = isnan(p->neginf) ? -most : (float)p->neginf;
    HT_VECTORISE
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] == INFINITY ? high : x[i];
        y = x[i] == -INFINITY ? low : y;
        to[i] = x[i] != x[i] ? nan : y;
    }
}

#define ROW(id, name)                                                                                                  \
    case HT_OP_##id: return from == HT_F32 ? name##_f32 : from == HT_F16 ? name##_f16 : name##_bf16

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_float)(ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)to;
    if (op == HT_OP_NAN_TO_NUM) return from == HT_F32 ? nan_to_num_f32 : NULL;
    switch (op) {
    case HT_OP_SIN: return from == HT_F32 ? sin_f32 : sin_bf16;
    case HT_OP_COS:
        return from == HT_F32 ? cos_f32 : cos_bf16;
        ROW(ERF, erf);
        ROW(ERFINV, erfinv);
        ROW(GELU, gelu);
        ROW(REMAINDER, remainder);
        ROW(LOGADDEXP, logaddexp);
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
