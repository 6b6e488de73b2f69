/* Vector kernel table of one instruction set, overriding the plain one. */
#include "cpu/device.h"
#include "cpu/vector/vector.h"

void HT_ISA_NAME(ht_vector_kernels)(ht_kernel kernels[HT_OP_COUNT]) {
    HT_ISA_NAME(ht_vector_elementwise)(kernels);
    HT_ISA_NAME(ht_vector_copy)(kernels);
    HT_ISA_NAME(ht_vector_reduce)(kernels);
    HT_ISA_NAME(ht_vector_logsumexp)(kernels);
    HT_ISA_NAME(ht_vector_scan)(kernels);
    HT_ISA_NAME(ht_vector_norm)(kernels);
    HT_ISA_NAME(ht_vector_norm_grad)(kernels);
    HT_ISA_NAME(ht_vector_rope)(kernels);
    HT_ISA_NAME(ht_vector_matmul)(kernels);
    HT_ISA_NAME(ht_vector_gather_qmm)(kernels);
    HT_ISA_NAME(ht_vector_sdpa_grad)(kernels);
    HT_ISA_NAME(ht_vector_sdpa)(kernels);
    HT_ISA_NAME(ht_vector_attend)(kernels);
    HT_ISA_NAME(ht_vector_lora)(kernels);
}

void HT_ISA_NAME(ht_vector_rows)(ht_rows_fn *rows[HT_OP_COUNT]) {
    HT_ISA_NAME(ht_vector_elementwise_rows)(rows);
    HT_ISA_NAME(ht_vector_norm_rows)(rows);
}
