/* Operation parameters: the struct of every operation that has one, plain data, copied into the node and the plan. */
#ifndef HT_DEVICE_PARAMS_H
#define HT_DEVICE_PARAMS_H

#include "device/kernel.h"
#include "device/matrix.h"

#include <hearth/dtype.h>
#include <hearth/index.h>
#include <hearth/quantize.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- views: how what is seen came about, for derivatives and for other shapes ---- */

typedef struct ht_transpose_params { /* which axis of x each axis is */
    int8_t axis[HT_MAX_DIMS];
} ht_transpose_params;

/* SLICE: element i of an axis is element start + i * step of x. SLICE_UPDATE(x, update of x's dtype): x with the update
 * where SLICE would look. */
typedef struct ht_slice_params {
    int64_t start[HT_MAX_DIMS], step[HT_MAX_DIMS];
} ht_slice_params;

typedef struct ht_diagonal_params { /* the last axis walks `start` + i along two axes of x */
    int axis1, axis2;
    int64_t start[2];
} ht_diagonal_params;

/* AS_STRIDED: the window, in elements of x in row-major order. STRIDED_ADD(x) -> zeros of the result's shape with each
 * element of x added at its place of such a window. */
typedef struct ht_window_params {
    int64_t stride[HT_MAX_DIMS], offset;
} ht_window_params;

/* ---- operations ---- */

typedef struct ht_full_params { /* FULL; ARANGE: value + i * step */
    double value, step;
} ht_full_params;

typedef struct ht_scale_params { /* SCALE: x * value; SOFTCAP: value * tanh(x / value) */
    float value;
} ht_scale_params;

/* NAN_TO_NUM: what a NaN and the infinities become; for `posinf` and `neginf` NAN is the largest finite value. */
typedef struct ht_nan_to_num_params {
    double nan, posinf, neginf;
} ht_nan_to_num_params;

/* CONCATENATE, TAKE, TAKE_ALONG: along which axis. */
typedef struct ht_axis_params {
    int axis;
} ht_axis_params;

/* VAR: the sum of squared distances from the mean over n - ddof; times infinity where that is not positive. */
typedef struct ht_var_params {
    int32_t ddof;
} ht_var_params;

/* SOFTMAX: along the axis that has so many more behind it. */
typedef struct ht_along_params {
    int32_t behind;
} ht_along_params;

/* CUMSUM and the like: along the axis that has `behind` more behind it, from the end when `reverse`; what is at a place
 * counts there when `inclusive`, else from the next. */
typedef struct ht_scan_params {
    int32_t behind;
    bool reverse, inclusive;
} ht_scan_params;

typedef struct ht_recurrence_params {
    bool reverse;
} ht_recurrence_params;

/* RMS_NORM(x [..., n], weight [n] or none): x / sqrt(mean(x^2) + eps) * (weight_offset + weight), over the last axis;
 * the sum of squares and the scale are f32. RMS_NORM_GRAD(the same, the gradient of its result) -> the gradients of x and of
 * the weight behind one another; sums over rows are f32, in an order that depends on the shape alone. */
typedef struct ht_rms_norm_params {
    float eps;
    float weight_offset; /* 1 for the (1 + w) form, else 0 */
} ht_rms_norm_params;

/* LAYER_NORM(x [..., n], weight [n] or none, bias [n] or none): (x - mean) / sqrt(var + eps) * weight + bias.
 * LAYER_NORM_GRAD(the same, the gradient of its result) -> the gradients of x, weight and bias behind one another. */
typedef struct ht_layer_norm_params {
    float eps;
} ht_layer_norm_params;

/* ROPE(x [..., heads, head_dim], pos i32 [...], freq_factors f32 [dims / 2] or none): pair (i, i + dims / 2), or with
 * `interleaved` (2 i, 2 i + 1), is rotated by angle pos * scale * theta^(-2 i / dims) / freq_factors[i]; elements from
 * `dims` on are copied. cos and sin are multiplied by `magnitude` (yarn; else 1). Angles are computed in double. */
typedef struct ht_rope_params {
    float theta;
    float scale; /* position scale (linear scaling: 1 / factor) */
    float magnitude;
    int32_t dims;
    bool interleaved;
} ht_rope_params;

/* LINEAR(x [..., k], bias f32 [n] or none) -> f32 [..., n]. EMBED(ids i32 [...]) -> f32 [..., k] * scale, an id outside
 * the matrix's rows is an error. */
typedef struct ht_linear_params {
    const ht_matrix *matrix; /* lent: outlives the graph and the plan */
    float scale;             /* EMBED only */
} ht_linear_params;

/* LINEAR_GATHER(x f32 [T, k] or [T, m, k], ids i32 [T, m]) -> f32 [T, m, n_sets * n]: the rows of y[t, i] are those of
 * experts[0]->matrix[ids[t, i]] x[t] or x[t, i], then those of the next set. An id outside is an error. Matrices that no row asks
 * for are not read. */
enum { HT_EXPERT_SETS = 2 };
typedef struct ht_linear_gather_params {
    const ht_matrix_list *experts[HT_EXPERT_SETS]; /* as many in each, all n x k; lent: they outlive graph and plan */
    int32_t n_sets;
} ht_linear_gather_params;

/* TOP_K(x f32 [..., n]) -> i32 [..., k]: the indices of the k largest, the largest first, the lowest index first among
 * equals; a NaN counts as the largest. */
typedef struct ht_top_k_params {
    int32_t k;
} ht_top_k_params;

/* ATTEND(q f32 [T, n_heads, head_dim], k f32 [T, n_kv_heads, head_dim], v likewise) -> f32 [T, n_heads, head_dim].
 * Rows, positions and caches come from the step. Row i of a sequence sees the keys j <= pos_i of that sequence's layer,
 * and with a window only i - j < window. Score: scale * q.k, then softcap * tanh(score / softcap) when softcap > 0.
 * Query head h reads K/V head h / (n_heads / n_kv_heads). With `asked` the rows are those of the step that are asked for,
 * and k and v are none. */
typedef struct ht_attend_params {
    int32_t layer;
    float scale;
    float softcap;
    bool asked;
} ht_attend_params;

/* SDPA(q [B, heads, L, d], k [B, kv_heads, S, d], v [B, kv_heads, S, dv], mask [B, heads, L, S] or none, sinks [heads] or
 * none) -> [B, heads, L, dv]: include/hearth/fast.h. All but a mask of bool have one dtype. SDPA_GRAD(the same, the result,
 * its gradient) -> the gradients of q, k and v behind one another. */
typedef struct ht_sdpa_params {
    float scale;
    bool causal;
    int64_t window;
} ht_sdpa_params;

/* QUANTIZE(w) -> one part of it: 0 the numbers, 1 the scales, 2 the biases. DEQUANTIZE(numbers, scales, biases or none) ->
 * `dtype`. QUANTIZED_MATMUL(x, numbers, scales, biases or none, left or none, right or none): include/hearth/quantize.h. Rows
 * of numbers, scales and biases are contiguous. Without indices the leading axes of the weights broadcast to those of x,
 * which the result has. */
typedef struct ht_quantize_params {
    ht_quantization how;
    int32_t part;
    ht_dtype dtype;
    bool transpose;
} ht_quantize_params;

typedef struct ht_matmul_params {
    bool transpose_b; /* b is [..., n, k] */
} ht_matmul_params;

/* GATHER(x, an index for each of some axes, all of one shape): slices of a size for every axis of x. */
typedef struct ht_gather_params {
    int64_t size[HT_MAX_DIMS];
    int8_t axis[HT_MAX_DIMS];
} ht_gather_params;

/* SCATTER(x, indices as for GATHER, updates [the shape of the indices, sizes of a slice] of x's dtype). */
typedef struct ht_scatter_params {
    ht_scatter_mode mode;
    int8_t axis[HT_MAX_DIMS];
} ht_scatter_params;

/* PUT_ALONG(x, index, values of the index's shape and x's dtype). */
typedef struct ht_put_along_params {
    ht_scatter_mode mode;
    int axis;
} ht_put_along_params;

/* PARTITION, ARGPARTITION: which place of a row is to be right. */
typedef struct ht_partition_params {
    int64_t kth;
} ht_partition_params;

/* DRAWN(x f16, bf16 or f32): a function of base/math_drawn.h. RANDOM_SUMS(x f32 [n]) -> f32 [n]: sums of exp(x) up to every
 * place, each rounded to f32. */
typedef enum ht_drawn_function {
    HT_DRAWN_LOG,
    HT_DRAWN_LOG1P,
    HT_DRAWN_ERF,
    HT_DRAWN_ERFINV,
} ht_drawn_function;
typedef struct ht_drawn_params {
    ht_drawn_function function;
} ht_drawn_params;

/* RANDOM_BITS(key u32 [2]): u8, u16 or u32, or f32 from 0 to below 1. */
typedef struct ht_random_bits_params {
    int64_t shape[HT_MAX_DIMS];
    int n_dims;
    ht_dtype dtype;
} ht_random_bits_params;

/* Room for any of them. */
enum { HT_MAX_PARAMS = 144 };

#endif
