/* Elementwise functions of integers and bool: overflow wraps around, division by zero gives 0. */
#include "cpu/vector/elementwise.h"

#include <math.h>

typedef uint32_t u32;
typedef uint64_t u64;

/* X(name, type, unsigned type of the arithmetic, signed) */
#define EACH_INTEGER(X)                                                                                                \
    X(u8, uint8_t, u32, false)                                                                                         \
    X(u16, uint16_t, u32, false)                                                                                       \
    X(u32, uint32_t, u32, false)                                                                                       \
    X(u64, uint64_t, u64, false)                                                                                       \
    X(i8, int8_t, u32, true)                                                                                           \
    X(i16, int16_t, u32, true)                                                                                         \
    X(i32, int32_t, u32, true)                                                                                         \
    X(i64, int64_t, u64, true)

#define UNARY(op, kind, type, result, expression)                                                                      \
    static void op##_##kind(const void *const *in, void *out, int64_t n, const void *params) {                         \
        (void)params;                                                                                                  \
        const type *from = in[0];                                                                                      \
        result *to = out;                                                                                              \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type x = from[i];                                                                                          \
            to[i] = (result)(expression);                                                                              \
        }                                                                                                              \
    }
#define BINARY(op, kind, type, result, expression)                                                                     \
    static void op##_##kind(const void *const *in, void *out, int64_t n, const void *params) {                         \
        (void)params;                                                                                                  \
        const type *left = in[0], *right = in[1];                                                                      \
        result *to = out;                                                                                              \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type a = left[i], b = right[i];                                                                            \
            to[i] = (result)(expression);                                                                              \
        }                                                                                                              \
    }

/* Floor division. Up to 32 bits f64 quotients are exact; INT_MIN / -1 wraps around. */
HT_INLINE int64_t small_quotient(int64_t a, int64_t b) {
    double q = floor((double)a / (double)b);
    return (int64_t)(b ? q : 0.0);
}
HT_INLINE int64_t quotient_i64(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
HT_INLINE uint64_t quotient_u64(uint64_t a, uint64_t b) { return b ? a / b : 0; }
#define QUOTIENT(type, is_signed, a, b)                                                                                \
    (sizeof(type) < 8 ? (uint64_t)small_quotient((int64_t)(a), (int64_t)(b))                                           \
     : (is_signed)    ? (uint64_t)quotient_i64((int64_t)(a), (int64_t)(b))                                             \
                      : quotient_u64((uint64_t)(a), (uint64_t)(b)))

/* Exponentiation by squaring. A negative exponent truncates 1 / base^-exponent. */
HT_INLINE uint64_t power_of(bool is_signed, int64_t base, int64_t exponent) {
    uint64_t result = 1, factor = (uint64_t)base, left = (uint64_t)exponent;
    if (is_signed && exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? UINT64_MAX : 1) : 0;
    for (; left; left >>= 1, factor *= factor)
        if (left & 1) result *= factor;
    return result;
}

/* Shift counts outside [0, bits) give 0, or the sign for signed right shifts. */
HT_INLINE uint32_t shifted_left_u32(uint32_t a, uint32_t by) { return by < 32 ? a << (by & 31) : 0; }
HT_INLINE uint64_t shifted_left_u64(uint64_t a, uint64_t by) { return by < 64 ? a << (by & 63) : 0; }
HT_INLINE uint32_t shifted_right_u32(uint32_t a, uint32_t by, uint32_t sign) {
    return (by < 32 ? (a ^ sign) >> (by & 31) : 0) ^ sign;
}
HT_INLINE uint64_t shifted_right_u64(uint64_t a, uint64_t by, uint64_t sign) {
    return (by < 64 ? (a ^ sign) >> (by & 63) : 0) ^ sign;
}

#define FUNCTIONS(UNARY, BINARY, kind, type, wide, is_signed)                                                          \
    UNARY(NEGATIVE, kind, type, type, (wide)0 - (wide)x)                                                               \
    UNARY(ABS, kind, type, type, (is_signed) && x < (type)1 ? (wide)0 - (wide)x : (wide)x)                             \
    UNARY(SQUARE, kind, type, type, (wide)x *(wide)x)                                                                  \
    UNARY(SIGN, kind, type, type, (is_signed) && x < (type)1 && x ? (wide)0 - 1 : (wide)(x != 0))                      \
    UNARY(BITWISE_INVERT, kind, type, type, ~(wide)x)                                                                  \
    UNARY(LOGICAL_NOT, kind, type, uint8_t, x == 0)                                                                    \
    BINARY(ADD, kind, type, type, (wide)a + (wide)b)                                                                   \
    BINARY(SUBTRACT, kind, type, type, (wide)a - (wide)b)                                                              \
    BINARY(MULTIPLY, kind, type, type, (wide)a *(wide)b)                                                               \
    BINARY(MINIMUM, kind, type, type, a < b ? a : b)                                                                   \
    BINARY(MAXIMUM, kind, type, type, b < a ? a : b)                                                                   \
    BINARY(FLOOR_DIVIDE, kind, type, type, QUOTIENT(type, is_signed, a, b))                                            \
    BINARY(REMAINDER, kind, type, type, b ? (wide)a - (wide)QUOTIENT(type, is_signed, a, b) * (wide)b : 0)             \
    BINARY(POWER, kind, type, type, power_of(is_signed, (int64_t)a, (int64_t)b))                                       \
    BINARY(LOGICAL_OR, kind, type, uint8_t, (a | b) != 0)                                                              \
    BINARY(LOGICAL_AND, kind, type, uint8_t, (a != 0) & (b != 0))                                                      \
    BINARY(BITWISE_AND, kind, type, type, a &b)                                                                        \
    BINARY(BITWISE_OR, kind, type, type, a | b)                                                                        \
    BINARY(BITWISE_XOR, kind, type, type, a ^ b)                                                                       \
    BINARY(LEFT_SHIFT, kind, type, type, shifted_left_##wide((wide)a, (wide)b))                                        \
    BINARY(RIGHT_SHIFT, kind, type, type,                                                                              \
           shifted_right_##wide((wide)a, (wide)b, (is_signed) && a < (type)1 && a ? ~(wide)0 : (wide)0))               \
    BINARY(EQUAL, kind, type, uint8_t, a == b)                                                                         \
    BINARY(NOT_EQUAL, kind, type, uint8_t, a != b)                                                                     \
    BINARY(LESS, kind, type, uint8_t, a < b)                                                                           \
    BINARY(LESS_EQUAL, kind, type, uint8_t, a <= b)
#define DEFINE(kind, type, wide, is_signed) FUNCTIONS(UNARY, BINARY, kind, type, wide, is_signed)
EACH_INTEGER(DEFINE)

/* Bool bytes of foreign arrays may have any non-zero value for true. */
UNARY(logical_not, bool, uint8_t, uint8_t, x == 0)
BINARY(either, bool, uint8_t, uint8_t, (a | b) != 0)
BINARY(both, bool, uint8_t, uint8_t, (a != 0) & (b != 0))
BINARY(differ, bool, uint8_t, uint8_t, (a != 0) != (b != 0))
BINARY(equal, bool, uint8_t, uint8_t, (a != 0) == (b != 0))
BINARY(less, bool, uint8_t, uint8_t, (a == 0) & (b != 0))
BINARY(less_equal, bool, uint8_t, uint8_t, (a == 0) | (b != 0))

/* In ht_dtype order, from HT_U8 on. */
#define ROW(id, ...)                                                                                                   \
    case HT_OP_##id: {                                                                                                 \
        static ht_elementwise_fn *const of[] = {id##_u8, id##_u16, id##_u32, id##_u64,                                 \
                                                id##_i8, id##_i16, id##_i32, id##_i64};                                \
        return of[from - HT_U8];                                                                                       \
    }

static ht_elementwise_fn *find_bool(ht_op_id op) {
    switch (op) {
    case HT_OP_LOGICAL_NOT: return logical_not_bool;
    case HT_OP_ADD:
    case HT_OP_MAXIMUM:
    case HT_OP_LOGICAL_OR:
    case HT_OP_BITWISE_OR: return either_bool;
    case HT_OP_MULTIPLY:
    case HT_OP_MINIMUM:
    case HT_OP_LOGICAL_AND:
    case HT_OP_BITWISE_AND: return both_bool;
    case HT_OP_SUBTRACT:
    case HT_OP_BITWISE_XOR:
    case HT_OP_NOT_EQUAL: return differ_bool;
    case HT_OP_EQUAL: return equal_bool;
    case HT_OP_LESS: return less_bool;
    case HT_OP_LESS_EQUAL: return less_equal_bool;
    default: return NULL;
    }
}

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_int)(ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)to;
    if (from == HT_BOOL) return find_bool(op);
    switch (op) {
        FUNCTIONS(ROW, ROW, , , , )
    default: return NULL;
    }
}
