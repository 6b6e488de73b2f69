/* Elementwise block functions (cpu/elementwise.h) of one instruction set, by number type; elementwise_find.c looks them
 * up. Functions not written in lanes are plain C, one expression per element, for autovectorisation. */
#ifndef HT_CPU_VECTOR_ELEMENTWISE_H
#define HT_CPU_VECTOR_ELEMENTWISE_H

#include "cpu/elementwise.h"
#include "cpu/vector/lanes.h"

/* Asserts before a loop over blocks that operands and result either coincide or do not overlap. */
#if defined(__clang__)
#define HT_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define HT_VECTORISE _Pragma("GCC ivdep")
#endif

ht_find_elementwise_fn HT_ISA_NAME(ht_find_elementwise), HT_ISA_NAME(ht_find_elementwise_lanes),
    HT_ISA_NAME(ht_find_elementwise_float), HT_ISA_NAME(ht_find_elementwise_f64), HT_ISA_NAME(ht_find_elementwise_int),
    HT_ISA_NAME(ht_find_elementwise_cast);

/* Converts f16 or bf16 to f32. */
HT_INLINE void elementwise_widen(ht_dtype from, const void *in, float *out, int64_t n) {
    const uint16_t *x = in;
    int64_t i = 0;
    if (from == HT_F16) {
        for (; i + 16 <= n; i += 16) v16f_store(out + i, v16f_load_f16(x + i));
        if (i < n) v16f_store_n(out + i, v16f_load_f16_n(x + i, (int)(n - i)), (int)(n - i));
    } else {
        for (; i + 16 <= n; i += 16) v16f_store(out + i, v16f_load_bf16(x + i));
        if (i < n) v16f_store_n(out + i, v16f_load_bf16_n(x + i, (int)(n - i)), (int)(n - i));
    }
}

/* Converts f32 to f16 or bf16. */
HT_INLINE void elementwise_narrow(ht_dtype to, const float *in, void *out, int64_t n) {
    uint16_t *y = out;
    int64_t i = 0;
    if (to == HT_F16) {
        for (; i + 16 <= n; i += 16) v16f_store_f16(y + i, v16f_load(in + i));
        if (i < n) v16f_store_f16_n(y + i, v16f_load_n(in + i, (int)(n - i)), (int)(n - i));
    } else {
        for (; i + 16 <= n; i += 16) v16f_store_bf16(y + i, v16f_load(in + i));
        if (i < n) v16f_store_bf16_n(y + i, v16f_load_n(in + i, (int)(n - i)), (int)(n - i));
    }
}

enum { ELEMENTWISE_WIDENED = 512 }; /* elements per f32 buffer */

/* Applies an f32 block function to f16 or bf16 operands by way of f32 buffers. Results are converted to `to`; HT_BOOL
 * results need no conversion. */
void HT_ISA_NAME(ht_elementwise_through_f32)(ht_dtype from, ht_dtype to, ht_elementwise_fn *fn, int n_in,
                                             const void *const *in, void *out, int64_t n, const void *params);

/* Defines name_f16 and name_bf16 by name_f32; BF16_THROUGH_F32 only the latter. */
#define BF16_THROUGH_F32(name, n_in, result) HALF_THROUGH_F32(name, bf16, HT_BF16, n_in, result)
#define THROUGH_F32(name, n_in, result)                                                                                \
    HALF_THROUGH_F32(name, f16, HT_F16, n_in, result) HALF_THROUGH_F32(name, bf16, HT_BF16, n_in, result)
#define HALF_THROUGH_F32(name, half, dtype, n_in, result)                                                              \
    static void name##_##half(const void *const *in, void *out, int64_t n, const void *params) {                       \
        HT_ISA_NAME(ht_elementwise_through_f32)                                                                        \
        (dtype, (result) == HT_BOOL ? HT_BOOL : dtype, name##_f32, n_in, in, out, n, params);                          \
    }

#endif
