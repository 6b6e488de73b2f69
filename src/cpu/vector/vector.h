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

/* Families in the order in which they set the table: later entries replace earlier ones. */
#define HT_VECTOR_FAMILIES(X)                                                                                          \
    X(elementwise)                                                                                                     \
    X(copy)                                                                                                            \
    X(reduce)                                                                                                          \
    X(logsumexp)                                                                                                       \
    X(softmax)                                                                                                         \
    X(scan)                                                                                                            \
    X(norm)                                                                                                            \
    X(norm_grad)                                                                                                       \
    X(rope)                                                                                                            \
    X(matmul)                                                                                                          \
    X(gather_qmm)                                                                                                      \
    X(sdpa_grad)                                                                                                       \
    X(sdpa)                                                                                                            \
    X(attend)                                                                                                          \
    X(short_conv)                                                                                                      \
    X(state_scan)                                                                                                      \
    X(state_scan_grad)                                                                                                 \
    X(lora)
#define HT_DECLARE_FAMILY(name) void HT_ISA_NAME(ht_vector_##name)(ht_kernel kernels[HT_OP_COUNT]);
HT_VECTOR_FAMILIES(HT_DECLARE_FAMILY)

/* Copies x to row-contiguous `out`. */
void HT_ISA_NAME(ht_vector_make_contiguous)(const ht_view *x, const ht_view *out, struct ht_device *d);

#endif
