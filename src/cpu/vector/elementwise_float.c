/* Elementwise functions of f32 in plain C, and of f16 and bf16 through f32; sin and cos of f16 are in
 * elementwise_lanes.c. */
#include "base/math_wide.h"
#include "cpu/vector/elementwise.h"

#include <math.h>

#define UNARY(id, name, type, result, expression)                                                                      \
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

#define BINARY(id, name, type, result, expression)                                                                     \
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

/* (operation, name in this file, C type, dtype, result in terms of x, or of a and b) */
#define FUNCTIONS(UNARY, BINARY)                                                                                       \
    UNARY(SIGN, sign, float, HT_F32, (x > 0.0f) - (x < 0.0f))                                                          \
    UNARY(FLOOR, floor, float, HT_F32, floorf(x))                                                                      \
    UNARY(CEIL, ceil, float, HT_F32, ceilf(x))                                                                         \
    UNARY(ROUND, round, float, HT_F32, rintf(x))                                                                       \
    UNARY(ERF, erf, float, HT_F32, ht_erf_f32(x))                                                                      \
    UNARY(ERFINV, erfinv, float, HT_F32, ht_erfinv_f32(x))                                                             \
    UNARY(GELU, gelu, float, HT_F32, ht_gelu_f32(x))                                                                   \
    UNARY(IS_NAN, is_nan, uint8_t, HT_BOOL, x != x)                                                                    \
    UNARY(IS_INF, is_inf, uint8_t, HT_BOOL, fabsf(x) == INFINITY)                                                      \
    UNARY(IS_FINITE, is_finite, uint8_t, HT_BOOL, fabsf(x) < INFINITY)                                                 \
    UNARY(LOGICAL_NOT, logical_not, uint8_t, HT_BOOL, x == 0.0f)                                                       \
    BINARY(FLOOR_DIVIDE, floor_divide, float, HT_F32, floorf(a / b))                                                   \
    BINARY(LOGADDEXP, logaddexp, float, HT_F32, ht_logaddexp_f32(a, b))                                                \
    BINARY(EQUAL, equal, uint8_t, HT_BOOL, a == b)                                                                     \
    BINARY(NOT_EQUAL, not_equal, uint8_t, HT_BOOL, a != b)                                                             \
    BINARY(LESS, less, uint8_t, HT_BOOL, a < b)                                                                        \
    BINARY(LESS_EQUAL, less_equal, uint8_t, HT_BOOL, a <= b)
FUNCTIONS(UNARY, BINARY)

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

#define ROW(id, name, ...)                                                                                             \
    case HT_OP_##id: return from == HT_F32 ? name##_f32 : from == HT_F16 ? name##_f16 : name##_bf16;

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_float)(ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)to;
    if (op == HT_OP_NAN_TO_NUM) return from == HT_F32 ? nan_to_num_f32 : NULL;
    switch (op) {
    case HT_OP_SIN: return from == HT_F32 ? sin_f32 : sin_bf16;
    case HT_OP_COS:
        return from == HT_F32 ? cos_f32 : cos_bf16;
        ROW(REMAINDER, remainder, )
        FUNCTIONS(ROW, ROW)
    default: return NULL;
    }
}
