/* Operation parameters: one plain struct per operation, copied into graph nodes and plans. Operations are described as
 * OP(inputs) -> output. */
#ifndef HT_DEVICE_PARAMS_H
#define HT_DEVICE_PARAMS_H

#include "device/kernel.h"
#include "device/matrix.h"

#include <hearth/dtype.h>
#include <hearth/index.h>
#include <hearth/quantize.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- views: parameters of their construction, for derivatives and replay ---- */

typedef struct ht_transpose_params { /* axis[i]: the axis of x that becomes axis i */
    int8_t axis[HT_MAX_DIMS];
} ht_transpose_params;

/* SLICE(x): element i of an axis is element start + i * step of x. SLICE_UPDATE(x, update of x's dtype) -> x with that
 * slice replaced by `update`. */
typedef struct ht_slice_params {
    int64_t start[HT_MAX_DIMS], step[HT_MAX_DIMS];
} ht_slice_params;

typedef struct ht_diagonal_params { /* element i of the last axis is at start[0] + i, start[1] + i of two axes of x */
    int axis1, axis2;
    int64_t start[2];
} ht_diagonal_params;

/* AS_STRIDED(x): strides and offset in elements of x in row-major order. STRIDED_ADD(x) -> zeros with every element of
 * x added at its position in such a window: the gradient of AS_STRIDED. */
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

/* NAN_TO_NUM: the replacements; NAN for `posinf` and `neginf` is the largest and the smallest finite value. */
typedef struct ht_nan_to_num_params {
    double nan, posinf, neginf;
} ht_nan_to_num_params;

/* CONCATENATE, TAKE, TAKE_ALONG: the axis. */
typedef struct ht_axis_params {
    int axis;
} ht_axis_params;

/* VAR: sum((x - mean)^2) / (n - ddof), or sum * infinity when n <= ddof. */
typedef struct ht_var_params {
    int32_t ddof;
} ht_var_params;

/* SOFTMAX: the axis, as the number of axes after it. */
typedef struct ht_along_params {
    int32_t behind;
} ht_along_params;

/* Scans (CUMSUM, ...): the axis, as the number of axes after it; `reverse` scans from the end; an `inclusive` scan
 * includes the element at its own position. */
typedef struct ht_scan_params {
    int32_t behind;
    bool reverse, inclusive;
} ht_scan_params;

/* RECURRENCE(x, d): y_i = x_i + d_i * y_(i-1); `reverse` runs from the end. */
typedef struct ht_recurrence_params {
    bool reverse;
} ht_recurrence_params;

/* RMS_NORM(x [..., n], weight [n] or none) -> x / sqrt(mean(x^2) + eps) * (weight_offset + weight), over the last axis; the
 * sum of squares and the scale are f32. RMS_NORM_GRAD(x, weight, grad) -> the gradients of x and weight, concatenated; sums
 * over rows are f32, in an order that only the shape decides. */
typedef struct ht_rms_norm_params {
    float eps;
    float weight_offset; /* 1 for the (1 + w) form, else 0 */
} ht_rms_norm_params;

/* LAYER_NORM(x [..., n], weight [n] or none, bias [n] or none) -> (x - mean) / sqrt(var + eps) * weight + bias.
 * LAYER_NORM_GRAD(x, weight, bias, grad) -> the gradients of x, weight and bias, concatenated. */
typedef struct ht_layer_norm_params {
    float eps;
} ht_layer_norm_params;

/* ROPE(x [..., heads, head_dim], pos i32 [...], freq_factors f32 [dims / 2] or none): rotates pair (i, i + dims / 2),
 * or (2 i, 2 i + 1) when `interleaved`, by the angle pos * scale * theta^(-2 i / dims) / freq_factors[i]; elements from
 * `dims` on are copied. cos and sin are multiplied by `magnitude` (YaRN; else 1). Angles are computed in f64. */
typedef struct ht_rope_params {
    float theta;
    float scale; /* position scale (linear scaling: 1 / factor) */
    float magnitude;
    int32_t dims;
    bool interleaved;
} ht_rope_params;

/* LINEAR(x [..., k], bias f32 [n] or none) -> f32 [..., n]. LINEAR_BACK(dy [..., n]) -> f32 [..., k]: dy W. EMBED(ids i32 [...]) -> f32 [..., k], rows of the matrix times
 * `scale`; an id outside its rows is an error. */
typedef struct ht_linear_params {
    const ht_matrix *matrix; /* lent: outlives the graph and the plan */
    float scale;             /* EMBED only */
} ht_linear_params;

/* HEAD_LOSS(x f32 [T, k], targets i32 [T]) -> f32 [2, T]: -log softmax(logits)[target] of every row, then its log-sum-exp,
 * of logits scale * x W^T, capped to softcap * tanh(logit / softcap) when softcap > 0. Both are 0 where the target is negative;
 * one outside the rows of W is an error. HEAD_LOSS_GRAD(x, targets, result, grad f32 [T]) -> f32 [T, k], the gradient of x. */
typedef struct ht_head_loss_params {
    const ht_matrix *matrix; /* lent, as above */
    float scale, softcap;
} ht_head_loss_params;

/* LINEAR_GATHER(x f32 [T, k] or [T, m, k], ids i32 [T, m]) -> f32 [T, m, n_sets * n]: mixture-of-experts product. y[t,
 * i] is experts[0]->matrix[ids[t, i]] times x[t] or x[t, i], followed by the product with the same expert of the next
 * set (gate and up). An id out of range is an error. Experts that no row selects are not read.
 * LINEAR_GATHER_BACK(dy f32 [T, m, n], ids) -> f32 [T, m, k], the gradient of x[t, i]. */
enum { HT_EXPERT_SETS = 2 };
typedef struct ht_linear_gather_params {
    const ht_matrix_list *experts[HT_EXPERT_SETS]; /* equally many in each, all [n, k]; lent, as above */
    int32_t n_sets;
} ht_linear_gather_params;

/* LORA(y f32 [T, n], x f32 [T, k], none) -> f32 [T, n]: y plus the adapters of each row's sequence at a projection
 * (device/lora.h); rows of sequences without any are copied bit for bit. With experts: y [T, m, n], x [T, k] or [T, m, k],
 * ids i32 [T, m], as LINEAR_GATHER. T is the number of rows of the step or of its output rows.
 * With head_rows, the experts are heads of a dense projection: rows [h * head_rows + first_row, ...) of its B are those
 * of head h. With `transposed`, the head's product is transposed: y plus scale * A^T (B_h^T x). */
typedef struct ht_lora_params {
    int64_t projection; /* index in ht_lora_set.use */
    int64_t n_experts;  /* or heads; 0: dense */
    int64_t head_rows, first_row;
    bool transposed;
} ht_lora_params;

/* TOP_K(x f32 [..., n]) -> i32 [..., k]: indices of the k largest elements in descending order, ties by ascending
 * index; NaN counts as largest. */
typedef struct ht_top_k_params {
    int32_t k;
} ht_top_k_params;

/* ATTEND(q f32 [T, n_heads, head_dim], k and v f32 [T, n_kv_heads, head_dim], sinks f32 [n_heads] or none) -> f32 [T,
 * n_heads, head_dim]: appends k and v to the KV caches of the step, then attends. Rows and positions are those of the
 * step. A query at position p attends to the keys j <= p of its sequence, with a window to those from ht_first_visible
 * on (device/window.h). Score: scale * q.k, then softcap * tanh(score / softcap) when softcap > 0. The sink of a head is
 * one more score of each of its queries, which has no value: it only adds to the sum of the softmax, after all keys.
 * Query head h reads K/V head h / (n_heads / n_kv_heads). With `asked` the rows of q are the output rows of the step,
 * and k and v are absent: they are in the cache already. With `v_dim`, v is absent, the values are the first v_dim
 * elements of the keys, and the result is [T, n_heads, v_dim]. */
typedef struct ht_attend_params {
    int32_t layer;
    float scale;
    float softcap;
    bool asked;
    int32_t v_dim; /* 0: values are apart from the keys */
} ht_attend_params;

/* SHORT_CONV(x f32 [T, n], w f32 [n, taps], bias f32 [n] or none) -> f32 [T, n]: a causal convolution of every channel over
 * the rows of its sequence, y[t][c] = bias[c] + sum over j of w[c][j] * x[t - taps + 1 + j][c], by fma in order of j from bias[c] or 0. The inputs
 * before the step's first row, and after it the last taps - 1 ones, are channels [first, first + n) of the `channels` at the
 * beginning of the state of cache layer `layer` (device/step.h). */
typedef struct ht_short_conv_params {
    int32_t layer;
    int64_t first, channels;
} ht_short_conv_params;

/* STATE_SCAN(q f32 [T, key_heads, key_dim], k like q, v f32 [T, heads, value_dim], decay f32 [T, heads] or [T, heads, key_dim],
 * rate f32 [T, heads] or none) -> f32 [T, heads, value_dim]. Every head has a state S [key_dim, value_dim], at value `first` of
 * the state of cache layer `layer`. For each row in turn, the rows of S are multiplied by its decay; d = v, or with a rate
 * d = rate * (v - S^T k), the delta rule; k d^T is added to S; and the result is S^T q. Head h uses q and k of head
 * h / (heads / key_heads).
 *
 * Per element, products of a sum over key_dim are added in order of the key's dimension, by fma.
 *
 * STATE_SCAN_ROWS(q, k, v, decay, rate, first i32 [T]) -> the same without a cache, for all sequences of a plain pass: S is
 * zero before the row first[t] of the sequence of row t, which is t or the first row of the previous row's sequence, else an error.
 * STATE_SCAN_ROWS_GRAD(q, k, v, decay, rate, first, grad) -> the gradients of q, k, v, decay and the rate, if any, concatenated;
 * sums over columns and heads are f32, in an order that only the shape decides. */
typedef struct ht_state_scan_params {
    int32_t layer;
    int64_t first;
} ht_state_scan_params;

/* SDPA(q [B, heads, L, d], k [B, kv_heads, S, d], v [B, kv_heads, S, dv], mask [B, heads, L, S] or none, sinks [heads]
 * or none) -> [B, heads, L, dv]: include/hearth/fast.h. All operands have one dtype, except a bool mask. SDPA_GRAD(q,
 * k, v, mask, sinks, result, grad) -> the gradients of q, k and v, concatenated. */
typedef struct ht_sdpa_params {
    float scale;
    bool causal;
    int64_t window;
} ht_sdpa_params;

/* ATTEND_ROWS(q f32 [N, heads, d], k f32 [T, kv_heads, d], v f32 [T, kv_heads, dv], own i32 [N], first i32 [N], sinks
 * f32 [heads] or none) -> f32 [N, heads, dv]: query i attends to rows first[i] .. own[i] of the keys, within the window
 * of a row at position own[i] - first[i], with scores scale * q.k, capped to softcap * tanh(score / softcap) when
 * softcap > 0, and to sinks as ATTEND does. Queries of one sequence, which have one `first`, are adjacent and in order.
 * Two-sided: query i is row i of the keys, N is T, and own[i] >= i is its last row; its window begins `window` rows
 * before it.
 * ATTEND_ROWS_GRAD(q, k, v, own, first, sinks, result, grad) -> the gradients of q, k and v, concatenated. */
typedef struct ht_attend_rows_params {
    float scale, softcap;
    int64_t window; /* 0: none */
    bool chunked;
    bool two_sided;
} ht_attend_rows_params;

/* QUANTIZE(w) -> one part: 0 packed elements, 1 scales, 2 biases. DEQUANTIZE(numbers, scales, biases or none) ->
 * `dtype`. QUANTIZED_MATMUL(x, numbers, scales, biases or none, left or none, right or none):
 * include/hearth/quantize.h. The last axes of numbers, scales and biases are contiguous. Without indices the leading
 * axes of the weights broadcast to those of x and of the result. */
typedef struct ht_quantize_params {
    ht_quantization how;
    int32_t part;
    ht_dtype dtype;
    bool transpose;
} ht_quantize_params;

typedef struct ht_matmul_params {
    bool transpose_b; /* b is [..., n, k] */
} ht_matmul_params;

/* GATHER(x, one index per indexed axis, all of one shape): slices of shape `size`; index k is of axis[k]. */
typedef struct ht_gather_params {
    int64_t size[HT_MAX_DIMS];
    int8_t axis[HT_MAX_DIMS];
} ht_gather_params;

/* SCATTER(x, indices as for GATHER, updates [index shape, slice shape] of x's dtype). */
typedef struct ht_scatter_params {
    ht_scatter_mode mode;
    int8_t axis[HT_MAX_DIMS];
} ht_scatter_params;

/* PUT_ALONG(x, index, values of the index's shape and x's dtype). */
typedef struct ht_put_along_params {
    ht_scatter_mode mode;
    int axis;
} ht_put_along_params;

/* PARTITION, ARGPARTITION: the index of the pivot in the sorted row. */
typedef struct ht_partition_params {
    int64_t kth;
} ht_partition_params;

/* DRAWN(x f16, bf16 or f32): a function of base/math_drawn.h. RANDOM_SUMS(x f32 [n]) -> f32 [n]: cumulative sums of exp(x),
 * every partial sum rounded to f32. */
typedef enum ht_drawn_function {
    HT_DRAWN_LOG,
    HT_DRAWN_LOG1P,
    HT_DRAWN_ERF,
    HT_DRAWN_ERFINV,
} ht_drawn_function;
typedef struct ht_drawn_params {
    ht_drawn_function function;
} ht_drawn_params;

/* RANDOM_BITS(key u32 [2]) -> uniform u8, u16 or u32, or f32 in [0, 1). */
typedef struct ht_random_bits_params {
    int64_t shape[HT_MAX_DIMS];
    int n_dims;
    ht_dtype dtype;
} ht_random_bits_params;

/* Upper bound of sizeof any parameter struct; array/op.h checks it. */
enum { HT_MAX_PARAMS = 144 };

#endif
