#include "cpu/reference/combine.h"

#include "cpu/element.h"

static float same_f32(float x) { return x; }
static double same_f64(double x) { return x; }
static uint8_t same_u8(uint8_t x) { return x; }
static uint16_t same_u16(uint16_t x) { return x; }
static uint32_t same_u32(uint32_t x) { return x; }
static uint64_t same_u64(uint64_t x) { return x; }
static int8_t same_i8(int8_t x) { return x; }
static int16_t same_i16(int16_t x) { return x; }
static int32_t same_i32(int32_t x) { return x; }
static int64_t same_i64(int64_t x) { return x; }

#define SUM(a, b)     ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define LESS(a, b)    ((a) < (b) ? (a) : (b))
#define MORE(a, b)    ((a) > (b) ? (a) : (b))
#define LOWEST(a, b)  (isnan(a) || (a) < (b) ? (a) : (b))
#define HIGHEST(a, b) (isnan(a) || (a) > (b) ? (a) : (b))
#define EITHER(a, b)  ((a) | (b))
#define BOTH(a, b)    ((a) & (b))
#define SECOND(a, b)  ((void)(a), (b))

#define JOIN(type, get, set, OP)                                                                                       \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type *y = (type *)to + (place ? place[i] : i * step);                                                          \
        *y = (type)set(OP(get(*y), get(((const type *)from)[i * by])));                                                \
    }                                                                                                                  \
    return

#define BY_MODE(type, get, set, ADD, PROD, MIN, MAX)                                                                   \
    switch (mode) {                                                                                                    \
    case HT_SCATTER_ADD: JOIN(type, get, set, ADD);                                                                    \
    case HT_SCATTER_PROD: JOIN(type, get, set, PROD);                                                                  \
    case HT_SCATTER_MIN: JOIN(type, get, set, MIN);                                                                    \
    case HT_SCATTER_MAX: JOIN(type, get, set, MAX);                                                                    \
    default: return;                                                                                                   \
    }

#define FAMILY(name, body)                                                                                             \
    static void name(ht_scatter_mode mode, void *to, int64_t step, const int64_t *place, const void *from, int64_t by, \
                     int64_t n) {                                                                                      \
        body                                                                                                           \
    }
#define FLOATS(name, type, get, set) FAMILY(name, BY_MODE(type, get, set, SUM, PRODUCT, LOWEST, HIGHEST))
/* Sums and products wrap around, so they are taken without sign, of 32 bits at least. */
#define UNSIGNED(name, type, wide, get) FAMILY(name, BY_MODE(type, (wide)get, (type), SUM, PRODUCT, LESS, MORE))
#define SIGNED(name, type, get)         FAMILY(name, BY_MODE(type, get, (type), SECOND, SECOND, LESS, MORE))

FLOATS(join_f16, uint16_t, ht_f16_to_f32, ht_f32_to_f16)
FLOATS(join_bf16, uint16_t, ht_bf16_to_f32, ht_f32_to_bf16)
FLOATS(join_f32, float, same_f32, same_f32)
FLOATS(join_f64, double, same_f64, same_f64)
UNSIGNED(join_u8, uint8_t, uint32_t, same_u8)
UNSIGNED(join_u16, uint16_t, uint32_t, same_u16)
UNSIGNED(join_u32, uint32_t, uint32_t, same_u32)
UNSIGNED(join_u64, uint64_t, uint64_t, same_u64)
SIGNED(join_i8, int8_t, same_i8)
SIGNED(join_i16, int16_t, same_i16)
SIGNED(join_i32, int32_t, same_i32)
SIGNED(join_i64, int64_t, same_i64)
FAMILY(join_bool, BY_MODE(uint8_t, same_u8, (uint8_t), EITHER, BOTH, BOTH, EITHER))

#define PUT(type)                                                                                                      \
    for (int64_t i = 0; i < n; i++) ((type *)to)[place ? place[i] : i * step] = ((const type *)from)[i * by];          \
    return

static void put(size_t bytes, void *to, int64_t step, const int64_t *place, const void *from, int64_t by, int64_t n) {
    switch (bytes) {
    case 1: PUT(uint8_t);
    case 2: PUT(uint16_t);
    case 4: PUT(uint32_t);
    default: PUT(uint64_t);
    }
}

void ht_combine(ht_scatter_mode mode, ht_dtype dtype, void *to, int64_t step, const int64_t *place, const void *from,
                int64_t by, int64_t n) {
    if (mode == HT_SCATTER_SET) {
        put(ht_dtype_bytes(dtype), to, step, place, from, by, n);
        return;
    }
    bool wraps = mode == HT_SCATTER_ADD || mode == HT_SCATTER_PROD;
    switch (dtype) {
    case HT_BOOL: join_bool(mode, to, step, place, from, by, n); break;
    case HT_F16: join_f16(mode, to, step, place, from, by, n); break;
    case HT_BF16: join_bf16(mode, to, step, place, from, by, n); break;
    case HT_F32: join_f32(mode, to, step, place, from, by, n); break;
    case HT_F64: join_f64(mode, to, step, place, from, by, n); break;
    case HT_U8: join_u8(mode, to, step, place, from, by, n); break;
    case HT_U16: join_u16(mode, to, step, place, from, by, n); break;
    case HT_U32: join_u32(mode, to, step, place, from, by, n); break;
    case HT_U64: join_u64(mode, to, step, place, from, by, n); break;
    case HT_I8: (wraps ? join_u8 : join_i8)(mode, to, step, place, from, by, n); break;
    case HT_I16: (wraps ? join_u16 : join_i16)(mode, to, step, place, from, by, n); break;
    case HT_I32: (wraps ? join_u32 : join_i32)(mode, to, step, place, from, by, n); break;
    case HT_I64: (wraps ? join_u64 : join_i64)(mode, to, step, place, from, by, n); break;
    default: break;
    }
}
