/* Strided vector loads and stores: sixteen elements of an f32, f16 or bf16 view as f32 lanes. */
#ifndef HT_CPU_VECTOR_LANES_H
#define HT_CPU_VECTOR_LANES_H

#include "base/half.h"
#include "cpu/vector/simd.h"

#include <hearth/dtype.h>

/* Whether lanes_load and lanes_store support a dtype. */
HT_INLINE bool lanes_supports(ht_dtype t) { return t == HT_F32 || t == HT_F16 || t == HT_BF16; }

/* Loads n elements (1 to 16) base[at], base[at + stride], ...; the other lanes are 0. */
HT_INLINE v16f lanes_load(ht_dtype t, const void *base, int64_t at, int64_t stride, int n) {
    if (stride == 1) {
        switch (t) {
        case HT_F16:
            return n == 16 ? v16f_load_f16((const uint16_t *)base + at)
                           : v16f_load_f16_n((const uint16_t *)base + at, n);
        case HT_BF16:
            return n == 16 ? v16f_load_bf16((const uint16_t *)base + at)
                           : v16f_load_bf16_n((const uint16_t *)base + at, n);
        default: return n == 16 ? v16f_load((const float *)base + at) : v16f_load_n((const float *)base + at, n);
        }
    }
    float values[16] = {0};
    for (int i = 0; i < n; i++, at += stride)
        values[i] = t == HT_F32   ? ((const float *)base)[at]
                    : t == HT_F16 ? ht_f16_to_f32(((const uint16_t *)base)[at])
                                  : ht_bf16_to_f32(((const uint16_t *)base)[at]);
    return v16f_load(values);
}

/* Stores n lanes to contiguous elements. */
HT_INLINE void lanes_store(ht_dtype t, void *base, int64_t at, v16f v, int n) {
    switch (t) {
    case HT_F16:
        if (n == 16)
            v16f_store_f16((uint16_t *)base + at, v);
        else
            v16f_store_f16_n((uint16_t *)base + at, v, n);
        break;
    case HT_BF16:
        if (n == 16)
            v16f_store_bf16((uint16_t *)base + at, v);
        else
            v16f_store_bf16_n((uint16_t *)base + at, v, n);
        break;
    default:
        if (n == 16)
            v16f_store((float *)base + at, v);
        else
            v16f_store_n((float *)base + at, v, n);
    }
}

/* Lanes used by the next vector of `left` remaining elements. */
HT_INLINE int lanes_count(int64_t left) { return left < 16 ? (int)left : 16; }

#endif
