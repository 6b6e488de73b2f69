/* Products with f16 and bf16 weights as integers, of one instruction set; see cpu/matrix_kernels.h for the order of
 * operations. */
#ifndef HT_CPU_VECTOR_MATRIX_INT16_H
#define HT_CPU_VECTOR_MATRIX_INT16_H

#include "cpu/matrix_kernels.h"
#include "cpu/vector/simd_half.h"

#if HT_DOT_WORDS
void HT_ISA_NAME(ht_prepare_words)(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t tile, int first,
                                   int last);
void HT_ISA_NAME(ht_words_direct)(ht_weight_type type, const void *panels, int64_t k, const ht_qtiles *x,
                                  const ht_gemm_out *out);
void HT_ISA_NAME(ht_words_decode)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, void *to);
void HT_ISA_NAME(ht_words_decoded)(ht_weight_type type, const void *panels, int64_t block, int n, const ht_qtiles *x,
                                   const ht_gemm_out *out);
#endif

#endif
