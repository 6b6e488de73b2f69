/* Plain kernels, one for every operation on arrays (operations on packed weights: cpu/linear.h). They support any dtype
 * for which the operation is defined, any strides, and empty arrays. */
#ifndef HT_CPU_REFERENCE_REFERENCE_H
#define HT_CPU_REFERENCE_REFERENCE_H

#include "device/kernel.h"

#define X(id, name) ht_kernel_fn ht_plain_##name;
HT_OP_KERNELS(X)
#undef X

ht_scratch_fn ht_plain_lora_scratch, ht_plain_attend_scratch, ht_plain_sdpa_scratch, ht_plain_sdpa_grad_scratch,
    ht_plain_attend_rows_scratch, ht_plain_state_scan_rows_scratch, ht_plain_state_scan_rows_gradient_scratch;
ht_scratch_fn ht_plain_norm_grad_scratch;                      /* both norms */
ht_scratch_fn ht_plain_sort_scratch, ht_plain_argsort_scratch; /* also partition, argpartition */
ht_scratch_fn ht_plain_take_scratch;                           /* also gather, scatter */

/* MATMUL shape: out [m, n] = a [m, k] b [k, n], and the element strides of a and b. */
typedef struct ht_matmul_shape {
    int64_t m, n, k, a_row, a_k, b_k, b_col;
} ht_matmul_shape;
ht_matmul_shape ht_matmul_shape_of(const ht_call *call);
extern const ht_kernel ht_plain_matmul_kernel; /* ht_plain_matmul, without scratch */

#endif
