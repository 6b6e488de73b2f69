#include "cpu/reference/combine.h"

#include "cpu/element.h"

#define SAME(x)       (x)
#define SUM(a, b)     ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define LESS(a, b)    ((a) < (b) ? (a) : (b))
#define MORE(a, b)    ((a) > (b) ? (a) : (b))
#define LOWEST(a, b)  (isnan(a) || (a) < (b) ? (a) : (b))
#define HIGHEST(a, b) (isnan(a) || (a) > (b) ? (a) : (b))
#define EITHER(a, b)  ((a) | (b))
#define BOTH(a, b)    ((a) & (b))
#define SECOND(a, b)  ((void)(a), (b))

#define COMBINE(type, get, set, OP)                                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type *y = (type *)to + (to_offset ? to_offset[i] : i * to_stride);                                             \
        *y = (type)set(OP(get(*y), get(((const type *)from)[i * from_stride])));                                       \
    }                                                                                                                  \
    return

#define BY_MODE(type, get, set, ADD, PROD, MIN, MAX)                                                                   \
    switch (mode) {                                                                                                    \
    case HT_SCATTER_ADD: COMBINE(type, get, set, ADD);                                                                 \
    case HT_SCATTER_PROD: COMBINE(type, get, set, PROD);                                                               \
    case HT_SCATTER_MIN: COMBINE(type, get, set, MIN);                                                                 \
    case HT_SCATTER_MAX: COMBINE(type, get, set, MAX);                                                                 \
    default: return;                                                                                                   \
    }

#define FAMILY(name, body)                                                                                             \
    static void name(ht_scatter_mode mode, void *to, int64_t to_stride, const int64_t *to_offset, const void *from,    \
                     int64_t from_stride, int64_t n) {                                                                 \
        body                                                                                                           \
    }
#define FLOATS(name, type, get, set) FAMILY(name, BY_MODE(type, get, set, SUM, PRODUCT, LOWEST, HIGHEST))
/* Sums and products wrap around; they are computed in an unsigned type of at least 32 bits, since signed overflow is
 * undefined. */
#define UNSIGNED(name, type, wide, get) FAMILY(name, BY_MODE(type, (wide)get, (type), SUM, PRODUCT, LESS, MORE))
#define SIGNED(name, type, get)         FAMILY(name, BY_MODE(type, get, (type), SECOND, SECOND, LESS, MORE))

FLOATS(combine_f16, uint16_t, ht_f16_to_f32, ht_f32_to_f16)
FLOATS(combine_bf16, uint16_t, ht_bf16_to_f32, ht_f32_to_bf16)
FLOATS(combine_f32, float, SAME, SAME)
FLOATS(combine_f64, double, SAME, SAME)
UNSIGNED(combine_u8, uint8_t, uint32_t, SAME)
UNSIGNED(combine_u16, uint16_t, uint32_t, SAME)
UNSIGNED(combine_u32, uint32_t, uint32_t, SAME)
UNSIGNED(combine_u64, uint64_t, uint64_t, SAME)
SIGNED(combine_i8, int8_t, SAME)
SIGNED(combine_i16, int16_t, SAME)
SIGNED(combine_i32, int32_t, SAME)
SIGNED(combine_i64, int64_t, SAME)
FAMILY(combine_bool, BY_MODE(uint8_t, SAME, (uint8_t), EITHER, BOTH, BOTH, EITHER))

#define PUT(type)                                                                                                      \
    for (int64_t i = 0; i < n; i++)                                                                                    \
        ((type *)to)[to_offset ? to_offset[i] : i * to_stride] = ((const type *)from)[i * from_stride];                \
    return

static void put(size_t bytes, void *to, int64_t to_stride, const int64_t *to_offset, const void *from,
                int64_t from_stride, int64_t n) {
    switch (bytes) {
    case 1: PUT(uint8_t);
    case 2: PUT(uint16_t);
    case 4: PUT(uint32_t);
    default: PUT(uint64_t);
    }
}

typedef void combine_fn(ht_scatter_mode mode, void *to, int64_t to_stride, const int64_t *to_offset, const void *from,
                        int64_t from_stride, int64_t n);

void ht_combine(ht_scatter_mode mode, ht_dtype dtype, void *to, int64_t to_stride, const int64_t *to_offset,
                const void *from, int64_t from_stride, int64_t n) {
    if (mode == HT_SCATTER_SET) {
        put(ht_dtype_bytes(dtype), to, to_stride, to_offset, from, from_stride, n);
        return;
    }
    static combine_fn *const of[HT_DTYPE_COUNT] = {
        [HT_BOOL] = combine_bool, [HT_U8] = combine_u8,   [HT_U16] = combine_u16,   [HT_U32] = combine_u32,
        [HT_U64] = combine_u64,   [HT_I8] = combine_i8,   [HT_I16] = combine_i16,   [HT_I32] = combine_i32,
        [HT_I64] = combine_i64,   [HT_F16] = combine_f16, [HT_BF16] = combine_bf16, [HT_F32] = combine_f32,
        [HT_F64] = combine_f64,
    };
    const bool wraps = mode == HT_SCATTER_ADD || mode == HT_SCATTER_PROD;
    if (wraps && ht_dtype_is_signed(dtype)) dtype = (ht_dtype)(HT_U8 + (dtype - HT_I8)); /* of the same width */
    of[dtype](mode, to, to_stride, to_offset, from, from_stride, n);
}
