/* Scalar element access for any dtype, for plain kernels and those of src/cuda. Plain kernels compute in one of three types: int64 (u64
 * keeps its bits), f32 for f16, bf16 and f32, and f64. */
#ifndef HT_CPU_ELEMENT_H
#define HT_CPU_ELEMENT_H

#include "base/dtype.h"
#include "base/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline int64_t ht_get_int(ht_dtype t, const void *p, int64_t i) {
    switch (t) {
    case HT_BOOL: return ((const uint8_t *)p)[i] != 0;
    case HT_U8: return ((const uint8_t *)p)[i];
    case HT_U16: return ((const uint16_t *)p)[i];
    case HT_U32: return ((const uint32_t *)p)[i];
    case HT_U64: return (int64_t)((const uint64_t *)p)[i];
    case HT_I8: return ((const int8_t *)p)[i];
    case HT_I16: return ((const int16_t *)p)[i];
    case HT_I32: return ((const int32_t *)p)[i];
    case HT_I64: return ((const int64_t *)p)[i];
    default: return 0;
    }
}

/* Stores an integer modulo 2^bits; bool stores v != 0. */
static inline void ht_set_int(ht_dtype t, void *p, int64_t i, int64_t v) {
    switch (t) {
    case HT_BOOL: ((uint8_t *)p)[i] = v != 0; break;
    case HT_U8: ((uint8_t *)p)[i] = (uint8_t)v; break;
    case HT_U16: ((uint16_t *)p)[i] = (uint16_t)v; break;
    case HT_U32: ((uint32_t *)p)[i] = (uint32_t)v; break;
    case HT_U64: ((uint64_t *)p)[i] = (uint64_t)v; break;
    case HT_I8: ((int8_t *)p)[i] = (int8_t)v; break;
    case HT_I16: ((int16_t *)p)[i] = (int16_t)v; break;
    case HT_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    case HT_I64: ((int64_t *)p)[i] = v; break;
    default: break;
    }
}

static inline float ht_get_f32(ht_dtype t, const void *p, int64_t i) {
    switch (t) {
    case HT_F16: return ht_f16_to_f32(((const uint16_t *)p)[i]);
    case HT_BF16: return ht_bf16_to_f32(((const uint16_t *)p)[i]);
    case HT_F32: return ((const float *)p)[i];
    case HT_F64: return (float)((const double *)p)[i];
    case HT_U64: return (float)((const uint64_t *)p)[i];
    default: return (float)ht_get_int(t, p, i);
    }
}

static inline double ht_get_f64(ht_dtype t, const void *p, int64_t i) {
    switch (t) {
    case HT_F64: return ((const double *)p)[i];
    case HT_U64: return (double)((const uint64_t *)p)[i];
    default: return ht_dtype_is_float(t) ? (double)ht_get_f32(t, p, i) : (double)ht_get_int(t, p, i);
    }
}

/* A double as an integer of a type: truncated toward zero, saturated at the type's limits, NaN as 0. */
static inline int64_t ht_saturated(ht_dtype t, double v) {
    if (isnan(v)) return 0;
    if (t == HT_U64) return v >= 0x1p64 ? -1 : v > 0 ? (int64_t)(uint64_t)v : 0;
    if (t == HT_I64) return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
    const bool is_signed = ht_dtype_is_signed(t);
    const int bits = t == HT_U8 || t == HT_I8 ? 8 : t == HT_U16 || t == HT_I16 ? 16 : 32;
    const double high = (double)(((int64_t)1 << (bits - is_signed)) - 1), low = is_signed ? -high - 1 : 0;
    return (int64_t)(v < low ? low : v > high ? high : v);
}

/* Stores a double; integers as ht_saturated has them. */
static inline void ht_set_f64(ht_dtype t, void *p, int64_t i, double v) {
    switch (t) {
    case HT_F16: ((uint16_t *)p)[i] = ht_f32_to_f16((float)v); return;
    case HT_BF16: ((uint16_t *)p)[i] = ht_f32_to_bf16((float)v); return;
    case HT_F32: ((float *)p)[i] = (float)v; return;
    case HT_F64: ((double *)p)[i] = v; return;
    case HT_BOOL: ((uint8_t *)p)[i] = v != 0; return;
    default: ht_set_int(t, p, i, ht_saturated(t, v));
    }
}

/* Stores a float. f32 is not converted through double, because the conversion would flush denormals. */
static inline void ht_set_f32(ht_dtype t, void *p, int64_t i, float v) {
    if (t == HT_F32)
        ((float *)p)[i] = v;
    else
        ht_set_f64(t, p, i, (double)v);
}

#endif
