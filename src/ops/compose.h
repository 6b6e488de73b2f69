/* Compositions (ht_compose_fn, array/op.h) of operations that a device need not implement, and their shared helpers.
 *
 * A composition calls ordinary operations, which are composed in turn if the device lacks their kernels. There are no
 * cycles. Elementwise functions, selections and rows use only operations without a composition (docs/contributing.md
 * lists them). Products, norms and attention use those; gradients use the compositions of their forward operations. */
#ifndef HT_OPS_COMPOSE_H
#define HT_OPS_COMPOSE_H

#include "array/op.h"

/* ---- elementwise (compose_elementwise.c) ---- */
ht_compose_fn ht_compose_sign, ht_compose_square, ht_compose_rsqrt, ht_compose_reciprocal, ht_compose_sigmoid,
    ht_compose_silu, ht_compose_gelu, ht_compose_gelu_tanh, ht_compose_is_inf, ht_compose_is_finite,
    ht_compose_nan_to_num, ht_compose_scale, ht_compose_softcap, ht_compose_logaddexp;
/* ---- reductions, softmax, scans (compose_reduce.c) ---- */
ht_compose_fn ht_compose_mean, ht_compose_var, ht_compose_logsumexp, ht_compose_softmax, ht_compose_logcumsumexp,
    ht_compose_argmax, ht_compose_argmin;
/* ---- selection and updates by index, order (compose_index.c) ---- */
ht_compose_fn ht_compose_take, ht_compose_take_along, ht_compose_put_along, ht_compose_slice_update,
    ht_compose_strided_add, ht_compose_sort, ht_compose_partition, ht_compose_argpartition, ht_compose_top_k;
/* ---- norms, rotary embedding, attention with all scores in memory at once (compose_fused.c) ---- */
ht_compose_fn ht_compose_rms_norm, ht_compose_layer_norm, ht_compose_rms_norm_grad, ht_compose_layer_norm_grad;
ht_compose_fn ht_compose_rope, ht_compose_sdpa, ht_compose_sdpa_grad, ht_compose_attend_rows,
    ht_compose_attend_rows_grad;
/* ---- matrix products (compose_matmul.c): the rows of a packed or quantised matrix are in memory in f32 ---- */
ht_compose_fn ht_compose_gather_mm, ht_compose_quantized_matmul, ht_compose_linear, ht_compose_linear_back,
    ht_compose_linear_gather, ht_compose_linear_gather_back, ht_compose_head_loss, ht_compose_head_loss_grad;

/* x in f32, the dtype in which kernels compute, if x is f16 or bf16; else x. NULL and HT_NONE are returned as they are. */
ht_array *ht_widened(ht_scope *s, ht_array *x);
/* x - mean(x) along the last axis, accurate also where the mean is much larger than the deviations from it. */
ht_array *ht_centred(ht_scope *s, ht_array *x);
/* The integers `index`, whose evaluation fails where `ok` is false or a number is outside 0 .. n - 1. `ok` is bool of the
 * shape of `index`, or HT_NONE. */
ht_array *ht_checked_index(ht_scope *s, ht_array *index, ht_array *ok, int64_t n);

#endif
