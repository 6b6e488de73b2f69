/* Op table: one row per operation, with its shape rule and what the graph may do with it. Kernels are in the device's
 * table, indexed the same way. */
#ifndef HT_ARRAY_OP_H
#define HT_ARRAY_OP_H

#include "array/array.h"
#include "base/dtype.h"

/* What an operation returns, as its shape rule says. */
typedef struct ht_result_type {
    ht_dtype dtype;
    int n_dims;
    int64_t shape[HT_MAX_DIMS];
} ht_result_type;

/* Checks operands (never NULL, HT_NONE where the op allows it) and fills *out. Messages name the op, the shapes and the
 * dtypes. Works on symbolic row counts. */
typedef ht_status ht_shape_fn(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                              ht_error *err);
/* Reverse rule: fills grad_in[i] with the gradient of the node's input i, or leaves HT_NONE, from the gradient of its output.
 * Linear in that, and made of operations that have a rule themselves: so there are second derivatives, and forward mode is
 * this rule transposed. False when something failed. */
typedef bool ht_vjp_fn(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in);

typedef struct ht_op_info {
    ht_shape_fn *shape; /* NULL: a view or a leaf, shaped where it is made */
    size_t params_bytes;
    bool in_place;  /* the kernel may write over an input of the output's size and dtype */
    bool updates;   /* as in_place, but over the first input alone */
    bool effect;    /* changes something beside its output: run even when the output is empty */
    ht_vjp_fn *vjp; /* NULL: asking for a derivative is an error; ht_vjp_none: it is zero everywhere */
} ht_op_info;

const ht_op_info *ht_op_info_of(ht_op_id op);
const char *ht_op_name(ht_op_id op); /* "rms_norm" */

/* A new node of operation `op` on `in`. NULL when an input is NULL, or with an error in the scope. `params` points to
 * the op's parameter struct, or is NULL. */
ht_array *ht_apply(ht_scope *s, ht_op_id op, const void *params, ht_array *const *in, int n_in);

/* ---- shape rules shared between families ---- */
ht_shape_fn ht_shape_same;    /* any dtype -> the same */
ht_shape_fn ht_shape_float;   /* floating point -> the same */
ht_shape_fn ht_shape_test;    /* any dtype -> bool */
ht_shape_fn ht_shape_binary;  /* two of one dtype and shape -> the same */
ht_shape_fn ht_shape_compare; /* two of one dtype and shape -> bool */
ht_shape_fn ht_shape_where;   /* bool, and two of one dtype and its shape -> the same as those */
ht_shape_fn ht_shape_total;   /* [..., n] -> [...], small integers in 32 bits */
ht_shape_fn ht_shape_choice;  /* the same, n > 0 */
ht_shape_fn ht_shape_place;   /* [..., n] -> u32 [...], n > 0 */
ht_shape_fn ht_shape_scan;    /* [..., n] -> the same */
ht_shape_fn ht_shape_concatenate, ht_shape_softmax, ht_shape_copy, ht_shape_cast, ht_shape_full, ht_shape_matmul;
ht_shape_fn ht_shape_take, ht_shape_gather, ht_shape_scatter, ht_shape_take_along, ht_shape_put_along,
    ht_shape_slice_update;
ht_shape_fn ht_shape_argsort, ht_shape_partition, ht_shape_argpartition, ht_shape_random_bits;
ht_shape_fn ht_shape_gather_mm, ht_shape_quantize, ht_shape_dequantize, ht_shape_quantized_matmul;
ht_shape_fn ht_shape_norm, ht_shape_norm_grad, ht_shape_sdpa, ht_shape_sdpa_grad, ht_shape_rope, ht_shape_linear,
    ht_shape_embed, ht_shape_attend;
ht_shape_fn ht_shape_strided_add, ht_shape_recurrence;
ht_shape_fn ht_shape_top_k, ht_shape_linear_gather;

bool ht_same_shape(const ht_array *a, const ht_array *b);

/* A result of x's shape. Always succeeds. */
ht_status ht_result_like(const ht_array *x, ht_dtype dtype, ht_result_type *out);

/* Counts a negative axis from the end; false, with an error in the scope, when there is no such axis. */
bool ht_find_axis(ht_scope *s, const char *op, const ht_array *x, int axis, int *out);

/* An operation along the last axis, of the same shape, along another one. */
ht_array *ht_apply_along(ht_scope *s, ht_op_id op, const void *params, ht_array *x, int axis);

/* Broadcast of two shapes as NumPy defines it; false when they do not fit. */
bool ht_broadcast_shapes(const ht_array *a, const ht_array *b, int64_t *shape, int *n_dims);

/* What STRIDED_ADD's shape rule needs. */
typedef struct ht_strided_add_params {
    ht_window_params window; /* first: what the kernel reads */
    int n_dims;
    const int64_t *shape; /* lent for the call of the shape rule only */
} ht_strided_add_params;
/* Zeros of a shape, with x added at the places of a window in them: what AS_STRIDED has seen, put back. */
ht_array *ht_strided_add(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims, const int64_t *stride,
                         int64_t offset);
/* y_i = x_i + d_i y_(i-1) along the last axis, or y_(i+1) when `reverse`; floating point. */
ht_array *ht_recurrence(ht_scope *s, ht_array *x, ht_array *d, bool reverse);

/* The parameters of CAST, FULL and ARANGE that their shape rules need. */
typedef struct ht_make_params {
    ht_full_params value; /* first: what the kernel reads */
    ht_dtype dtype;
    int n_dims;
    const int64_t *shape; /* lent for the call of the shape rule only */
} ht_make_params;

#endif
