/* Elementwise functions of two operands of one dtype, broadcast by zero strides. Integers wrap around; integer division
 * by zero gives 0, as in NumPy. */
#include "base/error.h"
#include "base/math_double.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"

#include <string.h>

typedef float f32_fn(float, float);
typedef double f64_fn(double, double);
typedef int64_t int_fn(bool is_signed, int64_t, int64_t);
typedef bool bool_fn(bool, bool);

static inline void apply(const ht_call *call, const ht_strided_span *s, f32_fn *f32, f64_fn *f64, int_fn *integer,
                         bool_fn *truth) {
    ht_dtype t = call->in[0].dtype, r = call->out.dtype;
    bool is_signed = ht_dtype_is_signed(t);
    const void *x = call->in[0].data, *y = call->in[1].data;
    void *out = call->out.data;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], b = s->offset[2] + i * s->stride[2], o = s->offset[0] + i;
        if (t == HT_F64)
            ht_set_f64(r, out, o, f64(ht_get_f64(t, x, a), ht_get_f64(t, y, b)));
        else if (ht_dtype_is_float(t))
            ht_set_f32(r, out, o, f32(ht_get_f32(t, x, a), ht_get_f32(t, y, b)));
        else if (t == HT_BOOL && truth)
            ht_set_int(r, out, o, truth(ht_get_int(t, x, a), ht_get_int(t, y, b)));
        else
            ht_set_int(r, out, o, integer(is_signed, ht_get_int(t, x, a), ht_get_int(t, y, b)));
    }
}

static bool less(bool is_signed, int64_t a, int64_t b) { return is_signed ? a < b : (uint64_t)a < (uint64_t)b; }

/* Defines ht_plain_<name>. Functions undefined for floats pass NULL for f32 and f64; functions undefined for integers
 * pass NULL for integer. */
#define BINARY(name, f32, f64, integer, truth)                                                                         \
    static void name##_span(const ht_call *call, const ht_strided_span *s) {                                           \
        apply(call, s, f32, f64, integer, truth);                                                                      \
    }                                                                                                                  \
    ht_status ht_plain_##name(const ht_call *call, ht_error *err) {                                                    \
        bool floating = ht_dtype_is_float(call->in[0].dtype);                                                          \
        if (floating ? (f32_fn *)f32 == NULL : (int_fn *)integer == NULL)                                              \
            return ht_fail(err, HT_ERR_UNSUPPORTED, "%s of %s is not defined", #name,                                  \
                           ht_dtype_name(call->in[0].dtype));                                                          \
        ht_strided_elementwise(call, HT_GRAIN_PLAIN, name##_span);                                                     \
        return HT_OK;                                                                                                  \
    }

#define FLOATING(name, expression_f32, expression_f64)                                                                 \
    static float name##_f32(float a, float b) { return expression_f32; }                                               \
    static double name##_f64(double a, double b) { return expression_f64; }
#define INTEGER(name, expression)                                                                                      \
    static int64_t name##_int(bool s, int64_t a, int64_t b) { return (void)s, (int64_t)(expression); }
#define TRUTH(name, expression)                                                                                        \
    static bool name##_bool(bool a, bool b) { return expression; }

/* ---- arithmetic ---- */

FLOATING(add, a + b, a + b)
INTEGER(add, (uint64_t)a + (uint64_t)b)
TRUTH(add, a || b)
BINARY(add, add_f32, add_f64, add_int, add_bool)

FLOATING(subtract, a - b, a - b)
INTEGER(subtract, (uint64_t)a - (uint64_t)b)
TRUTH(subtract, a != b)
BINARY(subtract, subtract_f32, subtract_f64, subtract_int, subtract_bool)

FLOATING(multiply, a *b, a *b)
INTEGER(multiply, (uint64_t)a *(uint64_t)b)
BINARY(multiply, multiply_f32, multiply_f64, multiply_int, NULL)

FLOATING(divide, a / b, a / b)
BINARY(divide, divide_f32, divide_f64, NULL, NULL)

/* NaN in either operand gives NaN. */
FLOATING(minimum, isnan(a) || a < b ? a : b, isnan(a) || a < b ? a : b)
INTEGER(minimum, less(s, a, b) ? a : b)
BINARY(minimum, minimum_f32, minimum_f64, minimum_int, NULL)

FLOATING(maximum, isnan(a) || a > b ? a : b, isnan(a) || a > b ? a : b)
INTEGER(maximum, less(s, b, a) ? a : b)
BINARY(maximum, maximum_f32, maximum_f64, maximum_int, NULL)

/* Floor division, for which the remainder takes the sign of the divisor. INT64_MIN / -1 wraps around. */
static int64_t quotient_of(bool s, int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (!s) return (int64_t)((uint64_t)a / (uint64_t)b);
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

FLOATING(floor_divide, floorf(a / b), floor(a / b))
INTEGER(floor_divide, quotient_of(s, a, b))
BINARY(floor_divide, floor_divide_f32, floor_divide_f64, floor_divide_int, NULL)

FLOATING(remainder, ht_remainder_f32(a, b), ht_remainder_f64(a, b))
INTEGER(remainder, b ? (uint64_t)a - (uint64_t)quotient_of(s, a, b) * (uint64_t)b : 0)
BINARY(remainder, remainder_f32, remainder_f64, remainder_int, NULL)

/* Exponentiation by squaring. A negative exponent truncates 1 / base^-exponent. */
static int64_t power_of(bool s, int64_t base, int64_t exponent) {
    uint64_t result = 1, factor = (uint64_t)base, left = (uint64_t)exponent;
    if (s && exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    for (; left; left >>= 1, factor *= factor)
        if (left & 1) result *= factor;
    return (int64_t)result;
}

FLOATING(power, ht_pow_f32(a, b), ht_pow_f64(a, b))
INTEGER(power, power_of(s, a, b))
BINARY(power, power_f32, power_f64, power_int, NULL)

FLOATING(logaddexp, ht_logaddexp_f32(a, b), ht_logaddexp_f64(a, b))
BINARY(logaddexp, logaddexp_f32, logaddexp_f64, NULL, NULL)

FLOATING(arctan2, ht_atan2_f32(a, b), ht_atan2_f64(a, b))
BINARY(arctan2, arctan2_f32, arctan2_f64, NULL, NULL)

/* ---- comparisons and logic ---- */

#define COMPARISON(name, operator, integer)                                                                            \
    FLOATING(name, a operator b, a operator b)                                                                         \
    INTEGER(name, integer)                                                                                             \
    BINARY(name, name##_f32, name##_f64, name##_int, NULL)

COMPARISON(equal, ==, a == b)
COMPARISON(not_equal, !=, a != b)
COMPARISON(less, <, less(s, a, b))
COMPARISON(less_equal, <=, !less(s, b, a))

INTEGER(logical_and, a &&b)
BINARY(logical_and, NULL, NULL, logical_and_int, NULL)
INTEGER(logical_or, a || b)
BINARY(logical_or, NULL, NULL, logical_or_int, NULL)

/* ---- bits ---- */

INTEGER(bitwise_and, a &b)
BINARY(bitwise_and, NULL, NULL, bitwise_and_int, NULL)
INTEGER(bitwise_or, a | b)
BINARY(bitwise_or, NULL, NULL, bitwise_or_int, NULL)
INTEGER(bitwise_xor, a ^ b)
BINARY(bitwise_xor, NULL, NULL, bitwise_xor_int, NULL)

/* Shift counts outside [0, bits) give 0, or the sign for signed right shifts. */
INTEGER(left_shift, (uint64_t)b < 64 ? (uint64_t)a << b : 0)
BINARY(left_shift, NULL, NULL, left_shift_int, NULL)
static int64_t shifted_right(bool s, int64_t a, int64_t b) {
    uint64_t by = (uint64_t)b < 63 ? (uint64_t)b : 63;
    if (!s) return (uint64_t)b < 64 ? (int64_t)((uint64_t)a >> b) : 0;
    return a < 0 ? ~(int64_t)(~(uint64_t)a >> by) : (int64_t)((uint64_t)a >> by);
}
INTEGER(right_shift, shifted_right(s, a, b))
BINARY(right_shift, NULL, NULL, right_shift_int, NULL)

/* ---- selection ---- */

static void where_span(const ht_call *call, const ht_strided_span *s) {
    const uint8_t *condition = call->in[0].data;
    const char *x = call->in[1].data, *y = call->in[2].data;
    char *out = call->out.data;
    const int64_t bytes = (int64_t)ht_dtype_bytes(call->out.dtype);
    for (int64_t i = 0; i < s->n; i++) {
        bool first = condition[s->offset[1] + i * s->stride[1]];
        const char *from =
            first ? x + (s->offset[2] + i * s->stride[2]) * bytes : y + (s->offset[3] + i * s->stride[3]) * bytes;
        memcpy(out + (s->offset[0] + i) * bytes, from, (size_t)bytes);
    }
}

ht_status ht_plain_where(const ht_call *call, ht_error *err) {
    (void)err;
    ht_strided_elementwise(call, HT_GRAIN_PLAIN, where_span);
    return HT_OK;
}
