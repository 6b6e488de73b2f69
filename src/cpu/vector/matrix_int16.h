/* Products with f16 and bf16 weights as integers, of one instruction set; see cpu/matrix_kernels.h for the order of
 * operations. */
#ifndef HT_CPU_VECTOR_MATRIX_INT16_H
#define HT_CPU_VECTOR_MATRIX_INT16_H

#include "cpu/matrix_kernels.h"
#include "cpu/vector/simd_half.h"

#define HT_HALF_TYPES(X) X(F16) X(BF16)

#if HT_DOT_WORDS
void HT_ISA_NAME(ht_words_of)(const float *x, int64_t ldx, int n, int64_t k, int16_t *q, float *scale);
void HT_ISA_NAME(ht_words_multiply)(const ht_wpanel *panels, int64_t block, int n_blocks, const ht_wrows *x,
                                    int64_t first, int64_t last, const ht_product_out *out);

#define HT_DECLARE(type)                                                                                               \
    void HT_ISA_NAME(ht_words_direct_##type)(const void *panels, int64_t k, const ht_wrows *x,                         \
                                             const ht_product_out *out);                                               \
    void HT_ISA_NAME(ht_words_convert_##type)(const void *panel, int64_t column, int64_t n, ht_wpanel *to);
HT_HALF_TYPES(HT_DECLARE)
#undef HT_DECLARE
#endif

#endif
