/* Operation table: shape rule, reverse rule and evaluation flags of every operation. Kernels are in the device's table,
 * which has the same index (device/op_id.h). */
#ifndef HT_ARRAY_OP_H
#define HT_ARRAY_OP_H

#include "array/array.h"
#include "base/dtype.h"

/* Dtype and shape of a result. */
typedef struct ht_result_type {
    ht_dtype dtype;
    int n_dims;
    int64_t shape[HT_MAX_DIMS];
} ht_result_type;

/* An operation applied to operands, for its shape rule. */
typedef struct ht_op_call {
    const char *op;      /* name, for messages */
    ht_array *const *in; /* [n_in], never NULL; optional operands may be HT_NONE */
    int n_in;
    const void *params;
} ht_op_call;
/* Shape rule: checks the operands and fills *out, which is zeroed. Messages name the operation, the shapes and the dtypes.
 * Shapes may have symbolic row counts (array/symbol.h). */
typedef ht_status ht_shape_fn(const ht_op_call *c, ht_result_type *out, ht_error *err);
/* Reverse rule (vector-Jacobian product): fills grad_in[i] with the gradient of the node's input i, or leaves HT_NONE
 * for zero, from `grad`, the gradient of its output; NULL on failure. It may leave out gradients that are not needed,
 * whose grad_in[i] is NULL at first. The rule is linear in `grad` and built from operations with a reverse rule, so that
 * second derivatives exist and forward mode can transpose it. */
typedef void ht_vjp_fn(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in);
/* Composition: builds an operation's result from other operations. The shape rule has accepted the operands and gives
 * the result's dtype and shape. Sizes may be symbolic. Computes in f32 or better and rounds once. NULL on failure. */
typedef ht_array *ht_compose_fn(ht_scope *s, const void *params, ht_array *const *in);

typedef struct ht_op_info {
    ht_shape_fn *shape; /* NULL: a view or a leaf, whose constructor sets the shape */
    size_t params_bytes;
    bool in_place;          /* the kernel may overwrite an input of the output's size and dtype */
    bool updates;           /* the kernel may overwrite its first input */
    bool effect;            /* has side effects: runs even when the output is empty */
    ht_vjp_fn *vjp;         /* NULL: not differentiable, an error; ht_vjp_none: the derivative is zero */
    ht_compose_fn *compose; /* for devices without a kernel (ops/compose.h); NULL: evaluation fails there */
} ht_op_info;

const ht_op_info *ht_op_info_of(ht_op_id op);
const char *ht_op_name(ht_op_id op); /* "rms_norm" */

/* New node of an operation, or its composition where the device of the scope has no kernel for it; `params` is its
 * parameter struct, or NULL. Returns NULL when an input is NULL, or with an error in the scope. */
ht_array *ht_apply(ht_scope *s, ht_op_id op, const void *params, ht_array *const *in, int n_in);

/* ---- shape rules, operands -> result ---- */
ht_shape_fn ht_shape_same;       /* x of any dtype -> dtype and shape of x */
ht_shape_fn ht_shape_float;      /* x of floating point -> dtype and shape of x */
ht_shape_fn ht_shape_test;       /* x of any dtype -> bool, shape of x */
ht_shape_fn ht_shape_binary;     /* two of one dtype and shape -> the same */
ht_shape_fn ht_shape_compare;    /* two of one dtype and shape -> bool */
ht_shape_fn ht_shape_where;      /* bool, then two of one dtype, all of one shape -> dtype of the two */
ht_shape_fn ht_shape_sum;        /* sums: [..., n] -> [...], dtype by ht_total_of */
ht_shape_fn ht_shape_extreme;    /* minimum, maximum: [..., n] -> [...], n > 0 */
ht_shape_fn ht_shape_argextreme; /* argmin, argmax: [..., n] -> u32 [...], n > 0 */
ht_shape_fn ht_shape_scan;       /* scans: [..., n] -> [..., n] */
ht_shape_fn ht_shape_concatenate, ht_shape_softmax, ht_shape_copy, ht_shape_cast, ht_shape_full, ht_shape_matmul;
ht_shape_fn ht_shape_take, ht_shape_gather, ht_shape_scatter, ht_shape_take_along, ht_shape_put_along,
    ht_shape_slice_update;
ht_shape_fn ht_shape_argsort, ht_shape_partition, ht_shape_argpartition, ht_shape_random_bits;
ht_shape_fn ht_shape_gather_mm, ht_shape_quantize, ht_shape_dequantize, ht_shape_quantized_matmul;
ht_shape_fn ht_shape_norm, ht_shape_norm_grad, ht_shape_sdpa, ht_shape_sdpa_grad, ht_shape_attend_rows,
    ht_shape_attend_rows_grad, ht_shape_rope, ht_shape_linear, ht_shape_linear_back, ht_shape_head_loss,
    ht_shape_head_loss_grad, ht_shape_embed, ht_shape_attend;
ht_shape_fn ht_shape_short_conv, ht_shape_state_scan, ht_shape_state_scan_rows, ht_shape_state_scan_rows_grad;
ht_shape_fn ht_shape_strided_add, ht_shape_recurrence;
ht_shape_fn ht_shape_top_k, ht_shape_linear_gather, ht_shape_linear_gather_back, ht_shape_lora;

bool ht_same_shape(const ht_array *a, const ht_array *b);
/* True when `shape` are the first n axes of x. */
bool ht_shape_begins(const ht_array *x, const int64_t *shape, int n);

/* Sets *out to the shape of x and a dtype. Always succeeds. */
ht_status ht_result_like(const ht_array *x, ht_dtype dtype, ht_result_type *out);

/* Resolves a negative axis; false, with an error in the scope, when the axis does not exist. */
bool ht_find_axis(ht_scope *s, const char *op, const ht_array *x, int axis, int *out);

/* Elements [begin, end) of one axis >= 0. NULL when x is. */
ht_array *ht_axis_part(ht_scope *s, ht_array *x, int axis, int64_t begin, int64_t end);
/* The next (`next`) or previous element of each along an axis < 0; `edge` past the ends. */
ht_array *ht_neighbour(ht_scope *s, ht_array *x, int axis, bool next, double edge);

/* Applies a shape-preserving operation of the last axis along another axis. */
ht_array *ht_apply_along(ht_scope *s, ht_op_id op, const void *params, ht_array *x, int axis);

/* Broadcast shape of two arrays, by NumPy's rule; false when the shapes are incompatible. */
bool ht_broadcast_shapes(const ht_array *a, const ht_array *b, int64_t *shape, int *n_dims);

/* Parameters of STRIDED_ADD with those of its shape rule. */
typedef struct ht_strided_add_params {
    ht_window_params window; /* first, because the kernel reads only these */
    int n_dims;
    const int64_t *shape; /* lent for the call of the shape rule only */
} ht_strided_add_params;
/* Zeros of a shape, with the elements of x added at the positions of a strided window: the adjoint of ht_as_strided. */
ht_array *ht_strided_add(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims, const int64_t *stride,
                         int64_t offset);
/* Linear recurrence along the last axis, floating point: y_i = x_i + d_i y_(i-1), or with y_(i+1) when `reverse`. */
ht_array *ht_recurrence(ht_scope *s, ht_array *x, ht_array *d, bool reverse);

/* Parameters of CAST, FULL and ARANGE with those of their shape rules. */
typedef struct ht_make_params {
    ht_full_params value; /* first, because the kernel reads only these */
    ht_dtype dtype;
    int n_dims;
    const int64_t *shape; /* lent for the call of the shape rule only */
} ht_make_params;

#endif
