/* Elementwise casts between dtypes, and fills. */
#include "base/dtype.h"
#include "cpu/vector/elementwise.h"

#include <math.h>

/* X(name, type) */
#define EACH_INTEGER(X)                                                                                                \
    X(u8, uint8_t)                                                                                                     \
    X(u16, uint16_t) X(u32, uint32_t) X(u64, uint64_t) X(i8, int8_t) X(i16, int16_t) X(i32, int32_t) X(i64, int64_t)

#define CAST(name, from_type, to_type, expression)                                                                     \
    static void name(const void *const *in, void *out, int64_t n, const void *params) {                                \
        (void)params;                                                                                                  \
        const from_type *from = in[0];                                                                                 \
        to_type *to = out;                                                                                             \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            from_type x = from[i];                                                                                     \
            to[i] = (to_type)(expression);                                                                             \
        }                                                                                                              \
    }

/* Casts from integers wrap around; bool counts as 0 or 1. */
#define OF_INTEGER(kind, type)                                                                                         \
    CAST(kind##_to_1, type, uint8_t, x)                                                                                \
    CAST(kind##_to_2, type, uint16_t, x)                                                                               \
    CAST(kind##_to_4, type, uint32_t, x)                                                                               \
    CAST(kind##_to_8, type, uint64_t, x)                                                                               \
    CAST(kind##_to_bool, type, uint8_t, x != 0)                                                                        \
    CAST(kind##_to_f32, type, float, x)                                                                                \
    CAST(kind##_to_f64, type, double, x)
EACH_INTEGER(OF_INTEGER)
CAST(bool_to_1, uint8_t, uint8_t, x != 0)
CAST(bool_to_2, uint8_t, uint16_t, x != 0)
CAST(bool_to_4, uint8_t, uint32_t, x != 0)
CAST(bool_to_8, uint8_t, uint64_t, x != 0)
CAST(bool_to_f32, uint8_t, float, x != 0)
CAST(bool_to_f64, uint8_t, double, x != 0)

/* Clamps to the integer type's range; NaN becomes 0. The caller truncates. */
HT_INLINE float clamp_f32(float x, float low, float high) {
    x = x < low ? low : x;
    x = x > high ? high : x;
    return x == x ? x : 0.0f;
}
HT_INLINE double clamp_f64(double x, double low, double high) {
    x = x < low ? low : x;
    x = x > high ? high : x;
    return x == x ? x : 0.0;
}
/* UINT32_MAX is not representable in f32, so saturation is applied after the conversion. */
HT_INLINE uint32_t f32_in_u32(float x) {
    uint32_t y = (uint32_t)clamp_f32(x, 0.0f, 0x1.fffffep31f);
    return x >= 0x1p32f ? UINT32_MAX : y;
}
HT_INLINE int32_t f64_in_i32(double x) { return (int32_t)clamp_f64(x, INT32_MIN, INT32_MAX); }
HT_INLINE uint32_t f64_in_u32(double x) { return (uint32_t)(int64_t)clamp_f64(x, 0.0, UINT32_MAX); }
HT_INLINE int64_t to_i64(double x) {
    return x >= 0x1p63 ? INT64_MAX : x >= -0x1p63 ? (int64_t)x : x == x ? INT64_MIN : 0;
}
HT_INLINE uint64_t to_u64(double x) { return x >= 0x1p64 ? UINT64_MAX : x >= 0.0 ? (uint64_t)x : 0; }

#define OF_FLOAT(kind, type)                                                                                           \
    CAST(kind##_to_bool, type, uint8_t, x != 0)                                                                        \
    CAST(kind##_to_u32, type, uint32_t, kind##_in_u32(x))                                                              \
    CAST(kind##_to_u64, type, uint64_t, to_u64((double)x))                                                             \
    CAST(kind##_to_i64, type, int64_t, to_i64((double)x))
OF_FLOAT(f32, float)
OF_FLOAT(f64, double)
CAST(f64_to_i32, double, int32_t, f64_in_i32(x))

/* Written in lanes: autovectorisation needs twice as many instructions. The hardware conversion saturates below
 * INT32_MIN; values above INT32_MAX and NaN are corrected afterwards. */
HT_INLINE v16f i32_bits(v16f x) {
    const v16f most = v16f_from_bits(v16i_set1(INT32_MAX));
    const v16f y = v16f_select(v16f_gt(x, v16f_set1(0x1.fffffep30f)), most, v16f_from_bits(v16i_from_f(x)));
    return v16f_select(v16f_is_nan(x), v16f_zero(), y);
}
static void f32_to_i32(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    const float *from = in[0];
    float *to = out; /* integer bits, moved as floats */
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v16f_store(to + i, i32_bits(v16f_load(from + i)));
    if (i < n) v16f_store_n(to + i, i32_bits(v16f_load_n(from + i, (int)(n - i))), (int)(n - i));
}
CAST(f64_to_u8, double, uint8_t, (int32_t)clamp_f64(x, 0, UINT8_MAX))
CAST(f64_to_u16, double, uint16_t, (int32_t)clamp_f64(x, 0, UINT16_MAX))
CAST(f64_to_i8, double, int8_t, (int32_t)clamp_f64(x, INT8_MIN, INT8_MAX))
CAST(f64_to_i16, double, int16_t, (int32_t)clamp_f64(x, INT16_MIN, INT16_MAX))

/* Written in lanes, because compilers generate branches. 8-bit integers are converted by way of 16 bits. */
HT_INLINE v16i clamp_to_i32(v16f x, float low, float high) {
    x = v16f_select(v16f_is_nan(x), v16f_zero(), x);
    return v16i_from_f(v16f_min(v16f_max(x, v16f_set1(low)), v16f_set1(high)));
}
HT_INLINE void f32_to_16_bits(const float *x, uint16_t *y, int64_t n, float low, float high) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v16i_store_u16(y + i, clamp_to_i32(v16f_load(x + i), low, high));
    uint16_t rest[16];
    v16i_store_u16(rest, clamp_to_i32(v16f_load_n(x + i, (int)(n - i)), low, high));
    memcpy(y + i, rest, (size_t)(n - i) * sizeof *y);
}
HT_INLINE void f32_to_8_bits(const float *x, uint8_t *y, int64_t n, float low, float high) {
    _Alignas(64) uint16_t between[ELEMENTWISE_WIDENED];
    for (int64_t i = 0; i < n; i += ELEMENTWISE_WIDENED) {
        const int64_t some = n - i < ELEMENTWISE_WIDENED ? n - i : ELEMENTWISE_WIDENED;
        f32_to_16_bits(x + i, between, some, low, high);
        for (int64_t k = 0; k < some; k++) y[i + k] = (uint8_t)between[k];
    }
}
#define F32_TO(kind, bits, low, high)                                                                                  \
    static void f32_to_##kind(const void *const *in, void *out, int64_t n, const void *params) {                       \
        (void)params;                                                                                                  \
        f32_to_##bits##_bits(in[0], out, n, low, high);                                                                \
    }
F32_TO(u8, 8, 0.0f, UINT8_MAX)
F32_TO(i8, 8, INT8_MIN, INT8_MAX)
F32_TO(u16, 16, 0.0f, UINT16_MAX)
F32_TO(i16, 16, INT16_MIN, INT16_MAX)
CAST(f32_to_f64, float, double, x)
CAST(f64_to_f32, double, float, x)

static void f16_to_f32(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    elementwise_widen(HT_F16, in[0], out, n);
}
static void bf16_to_f32(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    elementwise_widen(HT_BF16, in[0], out, n);
}
static void f32_to_f16(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    elementwise_narrow(HT_F16, in[0], out, n);
}
static void f32_to_bf16(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    elementwise_narrow(HT_BF16, in[0], out, n);
}

#define KINDS(op)         op##_u8, op##_u16, op##_u32, op##_u64, op##_i8, op##_i16, op##_i32, op##_i64
#define FROM_INTEGERS(to) bool_##to, u8_##to, u16_##to, u32_##to, u64_##to, i8_##to, i16_##to, i32_##to, i64_##to

static ht_elementwise_fn *of_integer(ht_dtype from, ht_dtype to) {
    static ht_elementwise_fn *const to_1[] = {FROM_INTEGERS(to_1)}, *const to_2[] = {FROM_INTEGERS(to_2)},
                                    *const to_4[] = {FROM_INTEGERS(to_4)}, *const to_8[] = {FROM_INTEGERS(to_8)},
                                    *const to_f32[] = {FROM_INTEGERS(to_f32)},
                                    *const to_f64[] = {FROM_INTEGERS(to_f64)};
    static ht_elementwise_fn *const to_bool[] = {bool_to_1,  u8_to_bool,  u16_to_bool, u32_to_bool, u64_to_bool,
                                                 i8_to_bool, i16_to_bool, i32_to_bool, i64_to_bool};
    if (to == HT_BOOL) return to_bool[from - HT_BOOL];
    if (to == HT_F32) return to_f32[from - HT_BOOL];
    if (to == HT_F64) return to_f64[from - HT_BOOL];
    switch (ht_dtype_bytes(to)) {
    case 1: return to_1[from - HT_BOOL];
    case 2: return to_2[from - HT_BOOL];
    case 4: return to_4[from - HT_BOOL];
    default: return to_8[from - HT_BOOL];
    }
}

static ht_elementwise_fn *of_f32(ht_dtype to) {
    static ht_elementwise_fn *const fn[] = {f32_to_bool, KINDS(f32_to), f32_to_f16, f32_to_bf16, NULL, f32_to_f64};
    return fn[to - HT_BOOL];
}

static ht_elementwise_fn *of_f64(ht_dtype to) {
    static ht_elementwise_fn *const fn[] = {f64_to_bool, KINDS(f64_to), NULL, NULL, f64_to_f32, NULL};
    return fn[to - HT_BOOL];
}

/* Composes two casts by way of an f32 block buffer. */
static void cast_via_f32(ht_elementwise_fn *first, size_t from_bytes, ht_elementwise_fn *second, size_t to_bytes,
                         const void *in, void *out, int64_t n) {
    _Alignas(64) float between[ELEMENTWISE_WIDENED];
    for (int64_t i = 0; i < n; i += ELEMENTWISE_WIDENED) {
        int64_t some = n - i < ELEMENTWISE_WIDENED ? n - i : ELEMENTWISE_WIDENED;
        const void *a = (const char *)in + i * (int64_t)from_bytes, *b = between;
        first(&a, between, some, NULL);
        second(&b, (char *)out + i * (int64_t)to_bytes, some, NULL);
    }
}

#define FROM_HALF(half, kind, bytes)                                                                                   \
    static void half##_to_##kind(const void *const *in, void *out, int64_t n, const void *params) {                    \
        (void)params;                                                                                                  \
        cast_via_f32(half##_to_f32, 2, f32_to_##kind, bytes, in[0], out, n);                                           \
    }
#define TO_HALF(half, kind, bytes)                                                                                     \
    static void kind##_to_##half(const void *const *in, void *out, int64_t n, const void *params) {                    \
        (void)params;                                                                                                  \
        cast_via_f32(kind##_to_f32, bytes, f32_to_##half, 2, in[0], out, n);                                           \
    }
#define EACH_KIND(X, half)                                                                                             \
    X(half, bool, 1)                                                                                                   \
    X(half, u8, 1)                                                                                                     \
    X(half, u16, 2)                                                                                                    \
    X(half, u32, 4) X(half, u64, 8) X(half, i8, 1) X(half, i16, 2) X(half, i32, 4) X(half, i64, 8) X(half, f64, 8)
EACH_KIND(FROM_HALF, f16)
EACH_KIND(FROM_HALF, bf16)
EACH_KIND(TO_HALF, f16)
EACH_KIND(TO_HALF, bf16)
FROM_HALF(f16, bf16, 2)
FROM_HALF(bf16, f16, 2)

static ht_elementwise_fn *of_half(ht_dtype from, ht_dtype to) {
    static ht_elementwise_fn *const f16[] = {f16_to_bool, KINDS(f16_to), NULL, f16_to_bf16, f16_to_f32, f16_to_f64};
    static ht_elementwise_fn *const bf16[] = {bf16_to_bool, KINDS(bf16_to), bf16_to_f16,
                                              NULL,         bf16_to_f32,    bf16_to_f64};
    return from == HT_F16 ? f16[to - HT_BOOL] : bf16[to - HT_BOOL];
}

static ht_elementwise_fn *to_half(ht_dtype from, ht_dtype to) {
    static ht_elementwise_fn *const f16[] = {FROM_INTEGERS(to_f16), NULL, NULL, NULL, f64_to_f16};
    static ht_elementwise_fn *const bf16[] = {FROM_INTEGERS(to_bf16), NULL, NULL, NULL, f64_to_bf16};
    return to == HT_F16 ? f16[from - HT_BOOL] : bf16[from - HT_BOOL];
}

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_cast)(ht_op_id op, ht_dtype from, ht_dtype to) {
    if (op != HT_OP_CAST) return NULL;
    if (from == HT_F32) return of_f32(to);
    if (from == HT_F16 || from == HT_BF16) return of_half(from, to);
    if (to == HT_F16 || to == HT_BF16) return to_half(from, to);
    return from == HT_F64 ? of_f64(to) : of_integer(from, to);
}
