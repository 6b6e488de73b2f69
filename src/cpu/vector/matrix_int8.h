/* Quantised products of one instruction set; see cpu/matrix_kernels.h for the order of operations. */
#ifndef HT_CPU_VECTOR_MATRIX_INT8_H
#define HT_CPU_VECTOR_MATRIX_INT8_H

#include "cpu/matrix_kernels.h"
#include "cpu/vector/simd.h"

void HT_ISA_NAME(ht_prepare_bytes)(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t tile, int first,
                                   int last);
void HT_ISA_NAME(ht_prepare_planes)(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t tile, int first,
                                    int last);
void HT_ISA_NAME(ht_row_offsets)(ht_weight_type type, const ht_qrows *x, int64_t tile, int first, int last,
                                 void *offset);

void HT_ISA_NAME(ht_coarse_bounds)(const uint8_t *first, int64_t n_blocks, int64_t n, int planes, const int8_t *q,
                                   const float *scale, const int32_t *offset, float *bound);
void HT_ISA_NAME(ht_coarse_direct)(ht_coarse_panels panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out);
void HT_ISA_NAME(ht_coarse_decode)(ht_coarse_panels panel, int64_t k, int64_t block, int n, ht_qpanel *to);

void HT_ISA_NAME(ht_direct)(ht_weight_type type, const void *panels, int64_t k, const ht_qtiles *x,
                            const ht_gemm_out *out);
void HT_ISA_NAME(ht_decode)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, void *to);
void HT_ISA_NAME(ht_decoded)(ht_weight_type type, const void *panels, int64_t block, int n, const ht_qtiles *x,
                             const ht_gemm_out *out);
void HT_ISA_NAME(ht_widen_blocks)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, float *to);

#endif
