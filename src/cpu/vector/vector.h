/* Vector kernel families of the instruction set being compiled, combined by table.c. Each family sets its entries of
 * the kernel table; dtypes without a vector form (integers, f64) go to the previous entry. */
#ifndef HT_CPU_VECTOR_VECTOR_H
#define HT_CPU_VECTOR_VECTOR_H

#include "cpu/device.h"
#include "cpu/vector/simd.h"

void HT_ISA_NAME(ht_vector_kernels)(ht_kernel kernels[HT_OP_COUNT]); /* all families */
void HT_ISA_NAME(ht_vector_rows)(ht_rows_fn *rows[HT_OP_COUNT]);     /* row-wise functions of all families */

void HT_ISA_NAME(ht_vector_elementwise_rows)(ht_rows_fn *rows[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_norm_rows)(ht_rows_fn *rows[HT_OP_COUNT]);

void HT_ISA_NAME(ht_vector_elementwise)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_copy)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_reduce)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_logsumexp)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_softmax)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_scan)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_norm)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_norm_grad)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_rope)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_matmul)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_gather_qmm)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_sdpa_grad)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_sdpa)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_attend)(ht_kernel kernels[HT_OP_COUNT]);
void HT_ISA_NAME(ht_vector_lora)(ht_kernel kernels[HT_OP_COUNT]);

/* Copies x to row-contiguous `out`. */
void HT_ISA_NAME(ht_vector_make_contiguous)(const ht_view *x, const ht_view *out, struct ht_device *d);

#endif
