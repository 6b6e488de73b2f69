/* Reverse rules (ht_vjp_fn, array/op.h) of all operations, and their shared helpers. */
#ifndef HT_OPS_GRADIENT_H
#define HT_OPS_GRADIENT_H

#include "array/op.h"
#include "base/dtype.h"

#include <hearth/ops.h>

/* Reverse rule of operations with a zero derivative: steps, comparisons, integers. */
ht_vjp_fn ht_vjp_none;

ht_vjp_fn ht_vjp_copy, ht_vjp_cast;
ht_vjp_fn ht_vjp_negative, ht_vjp_abs, ht_vjp_square, ht_vjp_sqrt, ht_vjp_rsqrt, ht_vjp_reciprocal, ht_vjp_exp,
    ht_vjp_expm1, ht_vjp_log, ht_vjp_log2, ht_vjp_log10, ht_vjp_log1p, ht_vjp_sin, ht_vjp_cos, ht_vjp_tan,
    ht_vjp_arcsin, ht_vjp_arccos, ht_vjp_arctan, ht_vjp_sinh, ht_vjp_cosh, ht_vjp_tanh, ht_vjp_erf, ht_vjp_erfinv,
    ht_vjp_sigmoid, ht_vjp_silu, ht_vjp_gelu, ht_vjp_gelu_tanh, ht_vjp_nan_to_num, ht_vjp_scale, ht_vjp_softcap,
    ht_vjp_drawn;
ht_vjp_fn ht_vjp_add, ht_vjp_subtract, ht_vjp_multiply, ht_vjp_divide, ht_vjp_remainder, ht_vjp_power, ht_vjp_logaddexp,
    ht_vjp_arctan2, ht_vjp_minimum, ht_vjp_maximum, ht_vjp_where;
ht_vjp_fn ht_vjp_sum, ht_vjp_prod, ht_vjp_mean, ht_vjp_extreme, ht_vjp_var, ht_vjp_logsumexp, ht_vjp_softmax,
    ht_vjp_cumsum, ht_vjp_cumprod, ht_vjp_running_extreme, ht_vjp_logcumsumexp, ht_vjp_recurrence;
ht_vjp_fn ht_vjp_reshape, ht_vjp_transpose, ht_vjp_window, ht_vjp_slice, ht_vjp_diagonal, ht_vjp_broadcast,
    ht_vjp_strided_add, ht_vjp_concatenate;
ht_vjp_fn ht_vjp_matmul, ht_vjp_linear, ht_vjp_linear_back, ht_vjp_head_loss, ht_vjp_linear_gather,
    ht_vjp_linear_gather_back;
ht_vjp_fn ht_vjp_rms_norm, ht_vjp_layer_norm, ht_vjp_rms_norm_grad, ht_vjp_layer_norm_grad, ht_vjp_rope, ht_vjp_sdpa,
    ht_vjp_sdpa_grad, ht_vjp_attend_rows, ht_vjp_state_scan_rows, ht_vjp_gather_mm, ht_vjp_dequantize,
    ht_vjp_quantized_matmul;
ht_vjp_fn ht_vjp_take, ht_vjp_gather, ht_vjp_scatter, ht_vjp_take_along, ht_vjp_put_along, ht_vjp_slice_update;
ht_vjp_fn ht_vjp_sort, ht_vjp_partition;

/* Splits the result of a backward kernel, the concatenated gradients of inputs 0 .. n - 1 that are present. */
void ht_split_gradients(ht_scope *s, ht_array *flat, ht_array *const *in, int n, ht_array **grad_in);

/* Scalar of x's dtype. */
static inline ht_array *ht_constant_like(ht_scope *s, const ht_array *x, double value) {
    return ht_full(s, value, x->dtype, NULL, 0);
}
static inline ht_array *ht_times(ht_scope *s, ht_array *x, double value) {
    return x ? ht_multiply(s, x, ht_constant_like(s, x, value)) : NULL;
}
static inline ht_array *ht_plus(ht_scope *s, ht_array *x, double value) {
    return x ? ht_add(s, x, ht_constant_like(s, x, value)) : NULL;
}
/* Output of the node that is differentiated, as an operand. */
static inline ht_array *ht_node_output(const ht_array *node) { return (ht_array *)(uintptr_t)node; }

#endif
