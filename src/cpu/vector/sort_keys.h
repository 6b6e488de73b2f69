/* Elements as numbers without sign that have the same order, and back. A NaN comes last. */
#ifndef HT_CPU_VECTOR_SORT_KEYS_H
#define HT_CPU_VECTOR_SORT_KEYS_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static uint16_t key_of_f16(uint16_t x, uint16_t infinity) {
    if ((x & 0x7fff) > infinity) return 0xffff;
    return (uint16_t)(x & 0x8000 ? ~x : x | 0x8000);
}
static uint32_t key_of_f32(uint32_t x) {
    if ((x & 0x7fffffff) > 0x7f800000) return UINT32_MAX;
    return x ^ ((uint32_t) - (int32_t)(x >> 31) | 0x80000000);
}
static uint64_t key_of_f64(uint64_t x) {
    if ((x & INT64_MAX) > UINT64_C(0x7ff0000000000000)) return UINT64_MAX;
    return x ^ ((uint64_t) - (int64_t)(x >> 63) | UINT64_C(1) << 63);
}

/* Zeros without sign, for places: neither zero comes before the other. */
#define PLUS(x, sign) ((x) == (sign) ? 0 : (x))
#define EACH_AT(type, of, step)                                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type v;                                                                                                        \
        memcpy(&v, x + i * (step), sizeof v);                                                                          \
        out[i] = (of);                                                                                                 \
    }
#define EACH(type, of)                                                                                                 \
    if (stride == 1)                                                                                                   \
        EACH_AT(type, of, (int64_t)sizeof(type))                                                                       \
    else                                                                                                               \
        EACH_AT(type, of, stride *(int64_t)sizeof(type))                                                               \
    break

static void load_16(ht_dtype t, const char *x, int64_t stride, int64_t n, bool places, uint16_t *out) {
    const uint16_t sign = places ? 0x8000 : 0;
    switch (t) {
    case HT_BOOL: EACH(uint8_t, v != 0);
    case HT_U8: EACH(uint8_t, v);
    case HT_I8: EACH(uint8_t, v ^ 0x80);
    case HT_U16: EACH(uint16_t, v);
    case HT_I16: EACH(uint16_t, v ^ 0x8000);
    case HT_F16: EACH(uint16_t, key_of_f16(PLUS(v, sign), 0x7c00));
    case HT_BF16: EACH(uint16_t, key_of_f16(PLUS(v, sign), 0x7f80));
    default: break;
    }
}

static void load_32(ht_dtype t, const char *x, int64_t stride, int64_t n, bool places, uint32_t *out) {
    const uint32_t sign = places ? 0x80000000 : 0;
    switch (t) {
    case HT_U32: EACH(uint32_t, v);
    case HT_I32: EACH(uint32_t, v ^ 0x80000000u);
    case HT_F32: EACH(uint32_t, key_of_f32(PLUS(v, sign)));
    default: break;
    }
}

static void load_64(ht_dtype t, const char *x, int64_t stride, int64_t n, bool places, uint64_t *out) {
    const uint64_t sign = places ? UINT64_C(1) << 63 : 0;
    switch (t) {
    case HT_U64: EACH(uint64_t, v);
    case HT_I64: EACH(uint64_t, v ^ UINT64_C(1) << 63);
    case HT_F64: EACH(uint64_t, key_of_f64(PLUS(v, sign)));
    default: break;
    }
}

#define BACK(type, of)                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        const uint16_t k = keys[i];                                                                                    \
        ((type *)out)[i] = (type)(of);                                                                                 \
    }                                                                                                                  \
    break

static void store_16(ht_dtype t, const uint16_t *keys, int64_t n, void *out) {
    switch (t) {
    case HT_BOOL:
    case HT_U8: BACK(uint8_t, k);
    case HT_I8: BACK(uint8_t, k ^ 0x80);
    case HT_U16: BACK(uint16_t, k);
    case HT_I16: BACK(uint16_t, k ^ 0x8000);
    case HT_F16:
    case HT_BF16: BACK(uint16_t, k & 0x8000 ? k ^ 0x8000 : ~k);
    default: break;
    }
}

/* The same by way of 32 bits. */
enum { WIDENED_AT_ONCE = 256 };
static inline void load_16_as_32(ht_dtype t, const char *x, int64_t stride, int64_t n, bool places, uint32_t *out) {
    uint16_t keys[WIDENED_AT_ONCE];
    for (int64_t i = 0; i < n; i += WIDENED_AT_ONCE) {
        const int64_t some = n - i < WIDENED_AT_ONCE ? n - i : WIDENED_AT_ONCE;
        load_16(t, x + i * stride * (int64_t)ht_dtype_bytes(t), stride, some, places, keys);
        for (int64_t k = 0; k < some; k++) out[i + k] = keys[k];
    }
}
static inline void store_16_of_32(ht_dtype t, const uint32_t *keys, int64_t n, void *out) {
    uint16_t some_keys[WIDENED_AT_ONCE];
    for (int64_t i = 0; i < n; i += WIDENED_AT_ONCE) {
        const int64_t some = n - i < WIDENED_AT_ONCE ? n - i : WIDENED_AT_ONCE;
        for (int64_t k = 0; k < some; k++) some_keys[k] = (uint16_t)keys[i + k];
        store_16(t, some_keys, some, (char *)out + i * (int64_t)ht_dtype_bytes(t));
    }
}

static void store_32(ht_dtype t, const uint32_t *keys, int64_t n, uint32_t *out) {
    const uint32_t top = 0x80000000u;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t k = keys[i];
        out[i] = t == HT_U32 ? k : t == HT_I32 || k & top ? k ^ top : ~k;
    }
}

static void store_64(ht_dtype t, const uint64_t *keys, int64_t n, uint64_t *out) {
    const uint64_t top = UINT64_C(1) << 63;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t k = keys[i];
        out[i] = t == HT_U64 ? k : t == HT_I64 || k & top ? k ^ top : ~k;
    }
}

#endif
