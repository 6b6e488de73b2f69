/* Products with f16 and bf16 weights as integers, of one instruction set; see cpu/matrix_kernels.h for the order of
 * operations. */
#ifndef HT_CPU_VECTOR_MATRIX_INT16_H
#define HT_CPU_VECTOR_MATRIX_INT16_H

#include "cpu/matrix_kernels.h"
#include "cpu/vector/simd_half.h"

#define HT_HALF_TYPES(X) X(F16) X(BF16)

#if HT_DOT_WORDS
void HT_ISA_NAME(ht_prepare_words)(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t tile, int first,
                                   int last);
void HT_ISA_NAME(ht_words_decoded)(const void *panels, int64_t block, int n, const ht_qtiles *x,
                                   const ht_gemm_out *out);

#define HT_DECLARE(type)                                                                                               \
    void HT_ISA_NAME(ht_words_direct_##type)(const void *panels, int64_t k, const ht_qtiles *x,                        \
                                             const ht_gemm_out *out);                                                  \
    void HT_ISA_NAME(ht_words_decode_##type)(const void *panel, int64_t k, int64_t block, int n, void *to);
HT_HALF_TYPES(HT_DECLARE)
#undef HT_DECLARE
#endif

#endif
