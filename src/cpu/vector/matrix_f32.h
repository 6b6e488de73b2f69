/* Dense products of one instruction set; see cpu/matrix_kernels.h for the order of operations. */
#ifndef HT_CPU_VECTOR_MATRIX_F32_H
#define HT_CPU_VECTOR_MATRIX_F32_H

#include "cpu/matrix_kernels.h"
#include "cpu/vector/simd.h"

#define HT_DENSE_TYPES(X) X(F32) X(F16) X(BF16)

#define HT_DECLARE(type)                                                                                               \
    void HT_ISA_NAME(ht_dense_##type)(const void *panel, int64_t stride, int64_t column, int n, const float *x,        \
                                      int64_t ldx, int n_x, const ht_gemm_out *out);                                   \
    void HT_ISA_NAME(ht_widen_##type)(const void *panel, int64_t column, int n, float *to);
HT_DENSE_TYPES(HT_DECLARE)
#undef HT_DECLARE

void HT_ISA_NAME(ht_transpose_panel)(const float *rows, int64_t ld, int n, float *to);
void HT_ISA_NAME(ht_widen_e4m3)(const uint8_t *panel, int64_t column, int n, const float scale[HT_PANEL], float *to);
void HT_ISA_NAME(ht_widen_e5m2)(const uint8_t *panel, int64_t column, int n, const float scale[HT_PANEL], float *to);

#endif
