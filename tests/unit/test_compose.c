/* Operations made of others, on a device that lacks their kernels, against the kernels.
 *
 * Tolerances are those of f32 arithmetic in another order. A composition of a few roundings is off by as many units of the
 * last place (2^-24), where functions contribute what tests/ops/test_math.c allows them: e^x 2 units, and as many as x is
 * large where its argument was rounded before; so exponentials of differences, of up to 30 here, have more. Sums of n products
 * are kept in f32 or better by both sides, and differ by the square root of n, up to 12 here. Kernels of f64 are as close in its
 * own units (2^-53), with the exception of ROPE, whose angle has an error of 1e5 * 2^-65 turns. */
#include "array/op.h"
#include "cpu/matrix.h"
#include "models/model.h"
#include "support/compositions.h"
#include "support/golden.h"
#include "support/model_run.h"
#include "support/multiply.h"
#include "support/options.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/fast.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define ANY      {2, {M, N}, -2, 2, HT_BOOL}
#define WIDE     {2, {M, N}, -15, 15, HT_BOOL}
#define POSITIVE {2, {M, N}, 0.3, 2, HT_BOOL}
#define ROW      {1, {N}, 0.2, 1.7, HT_BOOL}
#define WHOLE(type) {2, {M, N}, -3, 4, type}
#define COUNTS(type) {2, {M, N}, 0, 3, type}

/* X(operation, name, expression of x, y, z and w, ulps, ulps of f64, floor, flags, number of operands, operands) */
#define ELEMENTWISE(X)                                                                       \
    X(SIGN, sign, ht_sign(s, x), 0, 0, 0, SPECIAL, 1, ANY)                                   \
    X(SIGN, sign_i32, ht_sign(s, x), 0, 0, 0, CONSTANT, 1, WHOLE(HT_I32))                    \
    X(SIGN, sign_u8, ht_sign(s, x), 0, 0, 0, CONSTANT, 1, COUNTS(HT_U8))                     \
    X(SIGN, sign_bool, ht_sign(s, ht_astype(s, x, HT_BOOL)), 0, 0, 0, CONSTANT, 1, COUNTS(HT_U8)) \
    X(SQUARE, square, ht_square(s, x), 0, 0, 0, SPECIAL, 1, ANY)                             \
    X(SQUARE, square_i32, ht_square(s, x), 0, 0, 0, CONSTANT, 1, WHOLE(HT_I32))              \
    X(SQUARE, square_bool, ht_square(s, ht_astype(s, x, HT_BOOL)), 0, 0, 0, CONSTANT, 1, COUNTS(HT_U8)) \
    X(RSQRT, rsqrt, ht_rsqrt(s, x), 4, 0, 0, SPECIAL, 1, POSITIVE)                           \
    X(RECIPROCAL, reciprocal, ht_reciprocal(s, x), 2, 0, 0, SPECIAL, 1, POSITIVE)            \
    X(SIGMOID, sigmoid, ht_sigmoid(s, x), 8, 16, 1e-6, SPECIAL, 1, WIDE)                     \
    X(SILU, silu, ht_silu(s, x), 8, 16, 1e-6, SPECIAL, 1, WIDE)                              \
    X(GELU, gelu, ht_gelu(s, x), 8, 0, 0, SPECIAL, 1, ANY)                                   \
    X(GELU_TANH, gelu_tanh, ht_gelu_tanh(s, x), 16, 0, 0, SPECIAL, 1, ANY)                   \
    X(IS_INF, is_inf, ht_isinf(s, x), 0, 0, 0, SPECIAL | CONSTANT, 1, ANY)                   \
    X(IS_INF, is_inf_i32, ht_apply(s, HT_OP_IS_INF, NULL, in, 1), 0, 0, 0, CONSTANT, 1, WHOLE(HT_I32)) \
    X(IS_FINITE, is_finite, ht_isfinite(s, x), 0, 0, 0, SPECIAL | CONSTANT, 1, ANY)          \
    X(IS_FINITE, is_finite_i32, ht_apply(s, HT_OP_IS_FINITE, NULL, in, 1), 0, 0, 0, CONSTANT, 1, WHOLE(HT_I32)) \
    X(NAN_TO_NUM, nan_to_num, ht_nan_to_num(s, x, 7, NAN, NAN), 0, 0, 0, SPECIAL, 1, ANY)    \
    X(NAN_TO_NUM, nan_to_num_by, ht_nan_to_num(s, x, 0, 3, -4), 0, 0, 0, SPECIAL, 1, ANY)    \
    X(SCALE, scale, ht_scale(s, x, -1.7f), 0, 0, 0, SPECIAL, 1, ANY)                         \
    X(SOFTCAP, softcap, ht_softcap(s, x, 4), 2, 8, 0, SPECIAL, 1, WIDE)                      \
    X(LOGADDEXP, logaddexp, ht_logaddexp(s, x, y), 4, 8, 0, SPECIAL, 2, ANY, WIDE)           \
    X(LOGADDEXP, logaddexp_equal, ht_logaddexp(s, x, ht_multiply(s, x, ht_ones_like(s, x))), 4, 8, 0, 0, 1, ANY)

#define REDUCTIONS(X)                                                                        \
    X(MEAN, mean, ht_mean(s, x, (int[]){1}, 1, false), 2, 16, 0, SPECIAL | SOME, 1, WIDE)    \
    X(MEAN, mean_first, ht_mean(s, x, (int[]){0}, 1, true), 2, 16, 0, SOME, 1, {3, {2, M, N}, -9, 9, HT_BOOL}) \
    X(VAR, var, ht_var(s, x, (int[]){1}, 1, false, 0), 8, 64, 0, SPECIAL | SOME, 1, ANY)     \
    X(VAR, var_infinite, ht_var(s, x, (int[]){1}, 1, false, 5), 8, 64, 0, SOME | CONSTANT, 1, ANY) \
    X(VAR, var_of_close, ht_var(s, x, (int[]){1}, 1, false, 0), 1, 1e4, 0, SOME | ONLY_F32, 1, {2, {M, N}, 9000, 9000.5, HT_F32}) \
    X(LOGSUMEXP, logsumexp, ht_logsumexp(s, x, (int[]){1}, 1, false), 4, 16, 0, SPECIAL | SOME, 1, WIDE) \
    X(LOGSUMEXP, logsumexp_hidden, ht_logsumexp(s, hidden(s, x, 1), (int[]){1}, 1, false), 4, 16, 0, SOME | ONCE, 1, WIDE) \
    X(LOGSUMEXP, logsumexp_infinite, ht_logsumexp(s, hidden(s, x, -1), (int[]){1}, 1, false), 4, 16, 0, SOME | ONCE, 1, WIDE) \
    X(SOFTMAX, softmax, ht_softmax(s, x, -1), 48, 96, 1e-9, SPECIAL, 1, WIDE)                \
    X(SOFTMAX, softmax_first, ht_softmax(s, x, 0), 48, 96, 1e-9, SPECIAL, 1, WIDE)           \
    X(SOFTMAX, softmax_hidden, ht_softmax(s, ht_concatenate(s, (ht_array *[]){x, hidden(s, x, 1)}, 2, 1), 1), 48, 96, 1e-9, 0, 1, WIDE) \
    X(LOGCUMSUMEXP, logcumsumexp, ht_logcumsumexp(s, x, 1, false, true), 8, 64, 0, SPECIAL, 1, WIDE) \
    X(LOGCUMSUMEXP, logcumsumexp_back, ht_logcumsumexp(s, x, 1, true, true), 8, 64, 0, SPECIAL, 1, WIDE) \
    X(LOGCUMSUMEXP, logcumsumexp_first, ht_logcumsumexp(s, x, 0, false, true), 8, 64, 0, 0, 1, WIDE) \
    X(LOGCUMSUMEXP, logcumsumexp_before, ht_logaddexp(s, ht_logcumsumexp(s, x, 1, false, false), x), 8, 64, 0, 0, 1, WIDE) \
    X(LOGCUMSUMEXP, logcumsumexp_behind, ht_logaddexp(s, ht_logcumsumexp(s, x, 1, true, false), x), 8, 64, 0, 0, 1, WIDE) \
    X(LOGCUMSUMEXP, logcumsumexp_hidden, ht_logaddexp(s, x, ht_logcumsumexp(s, hidden(s, x, 1), 1, false, true)), 8, 64, 0, ONCE, 1, WIDE) \
    X(ARGMAX, argmax, ht_argmax(s, x, (int[]){1}, false), 0, 0, 0, SPECIAL | SOME | CONSTANT, 1, ANY) \
    X(ARGMAX, argmax_i32, ht_argmax(s, x, (int[]){1}, false), 0, 0, 0, SOME | CONSTANT, 1, WHOLE(HT_I32)) \
    X(ARGMIN, argmin, ht_argmin(s, x, (int[]){1}, false), 0, 0, 0, SPECIAL | SOME | CONSTANT, 1, ANY) \
    X(ARGMIN, argmin_u8, ht_argmin(s, x, (int[]){1}, false), 0, 0, 0, SOME | CONSTANT, 1, COUNTS(HT_U8))

#define PLACES(X)                                                                            \
    X(TAKE, take, ht_take(s, x, y, 1), 0, 0, 0, SPECIAL | SOME | NARROW_STEPS, 2, {3, {2, N, M}, -1, 1, HT_BOOL}, {2, {2, 3}, 0, N, HT_I32}) \
    X(TAKE, take_rows, ht_take(s, x, y, 0), 0, 0, 0, NARROW_STEPS, 2, {2, {3, N}, -2, 2, HT_BOOL}, {1, {M}, 0, 3, HT_I64}) \
    X(TAKE, take_one, ht_take(s, x, ht_full(s, -1, HT_I32, NULL, 0), 1), 0, 0, 0, SOME, 1, ANY) \
    X(TAKE_ALONG, take_along, ht_take_along_axis(s, x, y, 1), 0, 0, 0, SPECIAL | NARROW_STEPS, 2, ANY, {2, {M, N}, 0, N, HT_I32}) \
    X(TAKE_ALONG, take_along_first, ht_take_along_axis(s, x, y, 0), 0, 0, 0, NARROW_STEPS, 2, {3, {M, 3, N}, -1, 1, HT_BOOL}, {3, {M, 3, N}, 0, M, HT_I64}) \
    X(TAKE_ALONG, take_along_few, ht_take_along_axis(s, x, y, 1), 0, 0, 0, SOME | NARROW_STEPS, 2, ANY, {2, {M, 2}, 0, N, HT_I32}) \
    X(PUT_ALONG, put_along, ht_put_along_axis(s, x, y, z, 1), 0, 0, 0, SPECIAL, 3, ANY, {2, {M, N}, 0, N, HT_I32}, WIDE) \
    X(PUT_ALONG, put_along_first, ht_put_along_axis(s, x, y, z, 0), 0, 0, 0, 0, 3, {3, {M, 3, N}, -1, 1, HT_BOOL}, {3, {M, 3, N}, 0, M, HT_I64}, {3, {M, 3, N}, -1, 1, HT_BOOL}) \
    X(PUT_ALONG, add_along, ht_scatter_add_axis(s, x, y, z, 1), 0, 0, 0, NARROW_STEPS, 3, ANY, {2, {M, N}, 0, N, HT_I32}, ANY) \
    X(SLICE_UPDATE, slice_update, ht_slice_update(s, x, ht_full(s, 3, x->dtype, NULL, 0), (int64_t[]){HT_OPEN, HT_OPEN}, (int64_t[]){HT_OPEN, HT_OPEN}, (int64_t[]){-2, 3}), 0, 0, 0, 0, 1, ANY) \
    X(SLICE_UPDATE, slice_update_part, ht_slice_update(s, x, y, (int64_t[]){HT_OPEN, 1}, (int64_t[]){HT_OPEN, 4}, (int64_t[]){1, 2}), 0, 0, 0, FIXED, 2, ANY, {2, {M, 2}, -1, 1, HT_BOOL}) \
    X(STRIDED_ADD, strided_add, ht_strided_add(s, x, (int64_t[]){4, 5}, 2, (int64_t[]){3, 1}, 2), 0, 0, 0, FIXED | NARROW_STEPS, 1, ANY) \
    X(STRIDED_ADD, strided_add_back, ht_strided_add(s, x, (int64_t[]){17}, 1, (int64_t[]){-5, 1}, 12), 0, 0, 0, FIXED, 1, ANY) \
    X(SORT, sort, ht_sort(s, x, 1), 0, 0, 0, SPECIAL, 1, ANY)                                \
    X(SORT, sort_first, ht_sort(s, x, 0), 0, 0, 0, 0, 1, ANY)                                \
    X(SORT, sort_i32, ht_sort(s, x, 1), 0, 0, 0, CONSTANT, 1, WHOLE(HT_I32))                 \
    X(PARTITION, partition, middle(s, ht_partition(s, x, 0, 1)), 0, 0, 0, SPECIAL | SOME, 1, ANY) \
    X(PARTITION, partition_last, last(s, ht_partition(s, x, -1, 1)), 0, 0, 0, SPECIAL | SOME, 1, ANY) \
    X(ARGPARTITION, argpartition, middle(s, ht_take_along_axis(s, x, ht_argpartition(s, x, 0, 1), 1)), 0, 0, 0, SOME, 1, ANY) \
    X(TOP_K, top_1, ht_argtopk(s, x, 1), 0, 0, 0, SPECIAL | SOME | CONSTANT | ONLY_F32, 1, {2, {M, N}, -2, 2, HT_F32}) \
    X(TOP_K, top_of_ties, ht_argtopk(s, ht_astype(s, x, HT_F32), 5), 0, 0, 0, FIXED | CONSTANT, 1, WHOLE(HT_I32)) \
    X(TOP_K, top_3, ht_argtopk(s, ht_concatenate(s, (ht_array *[]){x, x, x}, 3, 1), 3), 0, 0, 0, SPECIAL | SOME | CONSTANT | ONLY_F32, 1, {2, {M, N}, -2, 2, HT_F32})

#define NORMS(X)                                                                             \
    X(RMS_NORM, rms_norm, ht_rms_norm(s, x, y, 1e-5f, 0), 8, 16, 0, SPECIAL, 2, ANY, ROW)    \
    X(RMS_NORM, rms_norm_plain, ht_rms_norm(s, x, HT_NONE, 1e-2f, 1), 8, 16, 0, 0, 1, {3, {2, M, N}, -9, 9, HT_BOOL}) \
    X(RMS_NORM, rms_norm_offset, ht_rms_norm(s, x, y, 1e-5f, 1), 8, 16, 0, 0, 2, ANY, ROW)   \
    X(LAYER_NORM, layer_norm, ht_layer_norm(s, x, y, z, 1e-2f), 16, 64, 0, 0, 3, ANY, ROW, ROW) \
    X(LAYER_NORM, layer_norm_plain, ht_layer_norm(s, x, HT_NONE, HT_NONE, 1e-2f), 16, 64, 0, 0, 1, ANY) \
    X(RMS_NORM_GRAD, rms_norm_grad, ht_apply(s, HT_OP_RMS_NORM_GRAD, &rms, in, 3), 32, 64, 0, 0, 3, ANY, ROW, ANY) \
    X(RMS_NORM_GRAD, rms_norm_grad_plain, ht_apply(s, HT_OP_RMS_NORM_GRAD, &rms, (ht_array *[]){x, HT_NONE, y}, 3), 32, 64, 0, 0, 2, ANY, ANY) \
    X(LAYER_NORM_GRAD, layer_norm_grad, ht_apply(s, HT_OP_LAYER_NORM_GRAD, &layer, in, 4), 32, 128, 0, 0, 4, ANY, ROW, ROW, ANY) \
    X(LAYER_NORM_GRAD, layer_norm_grad_bias, ht_apply(s, HT_OP_LAYER_NORM_GRAD, &layer, (ht_array *[]){x, HT_NONE, y, z}, 4), 32, 128, 0, 0, 3, ANY, ROW, ANY)

#define HEADS {3, {M, 2, 10}, -1, 1, HT_BOOL}
#define FAR {1, {M}, -100001, 100001, HT_I32}
#define ROTARY(X)                                                                            \
    X(ROPE, rope, turned(s, x, y, HT_NONE, false, 10, 1), 12, 4e5, 0, 0, 2, HEADS, FAR)      \
    X(ROPE, rope_pairs, turned(s, x, y, HT_NONE, true, 10, 1), 12, 4e5, 0, 0, 2, HEADS, FAR) \
    X(ROPE, rope_part, turned(s, x, y, HT_NONE, false, 6, 1.3f), 12, 4e5, 0, 0, 2, HEADS, FAR) \
    X(ROPE, rope_part_of_pairs, turned(s, x, y, HT_NONE, true, 4, 0.25f), 12, 4e5, 0, 0, 2, HEADS, FAR) \
    X(ROPE, rope_none, ht_square(s, turned(s, x, y, HT_NONE, true, 0, 1)), 0, 0, 0, 0, 2, HEADS, FAR) \
    X(ROPE, rope_factors, turned(s, x, y, z, false, 10, 1), 12, 4e5, 0, 0, 3, HEADS, FAR, {1, {5}, 0.5, 40, HT_F32}) \
    X(ROPE, rope_axes, turned(s, x, y, HT_NONE, false, 8, 1), 12, 4e5, 0, 0, 2, {4, {2, M, 3, 8}, -1, 1, HT_BOOL}, {2, {2, M}, 0, 100001, HT_I32})

#define Q {4, {2, 4, M, 5}, -2, 2, HT_BOOL}
#define KV {4, {2, 2, N, 5}, -2, 2, HT_BOOL}
#define SCORES {4, {2, 4, M, N}, -2, 2, HT_BOOL}
#define SINKS {1, {4}, -1, 1, HT_F32}
#define FLAT(heads) {3, {9, heads, 4}, -2, 2, HT_F32}
#define ATTENTION(X)                                                                         \
    X(SDPA, attention, attended(s, x, y, z, HT_NONE, HT_NONE, false, 0), 32, 64, 0, SOME, 3, Q, KV, KV) \
    X(SDPA, attention_causal, attended(s, x, x, y, HT_NONE, HT_NONE, true, 0), 32, 64, 0, 0, 2, {4, {1, 2, M, 3}, -2, 2, HT_BOOL}, {4, {1, 2, M, 7}, -2, 2, HT_BOOL}) \
    X(SDPA, attention_window, attended(s, x, x, x, HT_NONE, HT_NONE, true, 2), 32, 64, 0, 0, 1, {4, {1, 2, M, 3}, -2, 2, HT_BOOL}) \
    X(SDPA, attention_added, attended(s, x, y, y, z, HT_NONE, false, 0), 32, 64, 0, SOME, 3, Q, KV, SCORES) \
    X(SDPA, attention_hidden, attended(s, x, y, y, seen(s, z), HT_NONE, false, 0), 32, 64, 0, SOME | ONCE, 3, Q, KV, SCORES) \
    X(SDPA, attention_sinks, attended(s, x, y, y, HT_NONE, z, false, 0), 32, 64, 0, SOME, 3, Q, KV, {1, {4}, -1, 1, HT_BOOL}) \
    X(SDPA_GRAD, attention_grad, sdpa_grad(s, x, y, z, w, HT_NONE, false), 64, 128, 0, NARROW_STEPS | SOME, 4, Q, KV, KV, Q) \
    X(SDPA_GRAD, attention_grad_of_one, sdpa_grad(s, x, x, x, y, HT_NONE, true), 64, 128, 0, NARROW_STEPS, 2, {4, {1, 2, M, 3}, -2, 2, HT_BOOL}, {4, {1, 2, M, 3}, -2, 2, HT_BOOL}) \
    X(SDPA_GRAD, attention_grad_hidden, sdpa_grad(s, x, y, y, z, seen(s, w), false), 64, 128, 0, NARROW_STEPS | SOME | ONCE, 4, Q, KV, Q, SCORES) \
    X(ATTEND_ROWS, attend_rows, rows_of(s, in, HT_NONE, NULL, &everything), 32, 0, 0, ONLY_F32 | FIXED, 3, FLAT(4), FLAT(2), FLAT(2)) \
    X(ATTEND_ROWS, attend_rows_window, rows_of(s, in, HT_NONE, NULL, &short_window), 32, 0, 0, ONLY_F32 | FIXED, 3, FLAT(4), FLAT(2), FLAT(2)) \
    X(ATTEND_ROWS, attend_rows_sinks, rows_of(s, in, w, NULL, &short_window), 32, 0, 0, ONLY_F32 | FIXED, 4, FLAT(4), FLAT(2), FLAT(2), SINKS) \
    X(ATTEND_ROWS, attend_rows_chunks, rows_of(s, in, w, NULL, &chunks), 32, 0, 0, ONLY_F32 | FIXED, 4, FLAT(4), FLAT(2), FLAT(2), SINKS) \
    X(ATTEND_ROWS, attend_rows_both_sides, rows_of(s, in, HT_NONE, NULL, &both_sides), 32, 0, 0, ONLY_F32 | FIXED, 3, FLAT(4), FLAT(2), FLAT(2)) \
    X(ATTEND_ROWS, attend_rows_near_sides, rows_of(s, in, w, NULL, &near_sides), 32, 0, 0, ONLY_F32 | FIXED, 4, FLAT(4), FLAT(2), FLAT(2), SINKS) \
    X(ATTEND_ROWS_GRAD, attend_rows_grad_near_sides, rows_of(s, in, HT_NONE, w, &near_sides), 64, 0, 0, ONLY_F32 | FIXED | CONSTANT, 4, FLAT(4), FLAT(2), FLAT(2), FLAT(4)) \
    X(ATTEND_ROWS_GRAD, attend_rows_grad, rows_of(s, in, HT_NONE, w, &everything), 64, 0, 0, ONLY_F32 | FIXED | CONSTANT, 4, FLAT(4), FLAT(2), FLAT(2), FLAT(4)) \
    X(ATTEND_ROWS_GRAD, attend_rows_grad_window, rows_of(s, in, HT_NONE, w, &long_window), 64, 0, 0, ONLY_F32 | FIXED | CONSTANT, 4, FLAT(4), FLAT(2), FLAT(2), FLAT(4)) \
    X(ATTEND_ROWS_GRAD, attend_rows_grad_chunks, rows_of(s, in, some_sinks(s), w, &chunks), 64, 0, 0, ONLY_F32 | FIXED | CONSTANT, 4, FLAT(4), FLAT(2), FLAT(2), FLAT(4))

#define DEEP {2, {M, 64}, -1, 1, HT_BOOL}
#define OF_K(n) {2, {M, n}, -1, 1, HT_F32}
#define PRODUCTS(X)                                                                          \
    X(GATHER_MM, gather_mm, ht_gather_mm(s, x, y, z, w), 32, 64, 0, 0, 4, {3, {3, M, N}, -1, 1, HT_BOOL}, {3, {2, N, 5}, -1, 1, HT_BOOL}, {1, {4}, 0, 3, HT_I32}, {1, {4}, 0, 2, HT_I32}) \
    X(QUANTIZED_MATMUL, quantized, quantised(s, x, HT_QUANT_AFFINE, true, false), 32, 0, 0, 0, 1, DEEP) \
    X(QUANTIZED_MATMUL, quantized_mxfp4, quantised(s, x, HT_QUANT_MXFP4, true, false), 32, 0, 0, 0, 1, DEEP) \
    X(QUANTIZED_MATMUL, quantized_other, quantised(s, x, HT_QUANT_AFFINE, false, false), 32, 0, 0, 0, 1, {2, {M, 3}, -1, 1, HT_BOOL}) \
    X(QUANTIZED_MATMUL, quantized_of_batch, quantised_of_batch(s, x, y, 0), 32, 0, 0, 0, 2, {4, {3, 2, M, 32}, -1, 1, HT_BOOL}, {3, {2, 4, 32}, -1, 1, HT_BOOL}) \
    X(QUANTIZED_MATMUL, quantized_of_one, quantised_of_batch(s, x, y, 3), 32, 0, 0, 0, 2, {4, {3, 2, M, 32}, -1, 1, HT_BOOL}, {3, {1, 4, 32}, -1, 1, HT_BOOL}) \
    X(QUANTIZED_MATMUL, gather_qmm, quantised(s, x, HT_QUANT_NVFP4, true, true), 32, 0, 0, 0, 1, {3, {2, M, 64}, -1, 1, HT_BOOL}) \
    X(LINEAR, linear, linear(s, &dense, x, HT_NONE), 32, 0, 0, ONLY_F32, 1, OF_K(5))         \
    X(LINEAR, linear_bias, linear(s, &dense, x, y), 32, 0, 0, ONLY_F32, 2, {3, {2, M, 5}, -1, 1, HT_F32}, {1, {37}, -1, 1, HT_F32}) \
    X(LINEAR, linear_quantised, linear(s, &blocks, x, HT_NONE), 256, 0, 0, ONLY_F32, 1, OF_K(64)) \
    X(LINEAR, linear_row, linear(s, &dense, x, HT_NONE), 32, 0, 0, ONLY_F32, 1, {1, {5}, -1, 1, HT_F32}) \
    X(LINEAR_BACK, linear_back, linear_back(s, &dense, x), 64, 0, 0, ONLY_F32, 1, OF_K(37))  \
    X(LINEAR_BACK, linear_back_quantised, linear_back(s, &blocks, x), 512, 0, 0, ONLY_F32, 1, {3, {2, M, 70}, -1, 1, HT_F32}) \
    X(LINEAR_GATHER, linear_gather, ht_apply(s, HT_OP_LINEAR_GATHER, &one_set, in, 2), 64, 0, 0, ONLY_F32, 2, OF_K(5), IDS) \
    X(LINEAR_GATHER, linear_gather_two, ht_apply(s, HT_OP_LINEAR_GATHER, &two_sets, in, 2), 64, 0, 0, ONLY_F32, 2, {3, {M, 2, 5}, -1, 1, HT_F32}, IDS) \
    X(LINEAR_GATHER_BACK, linear_gather_back, ht_apply(s, HT_OP_LINEAR_GATHER_BACK, &one_set, in, 2), 128, 0, 0, ONLY_F32, 2, {3, {M, 2, 37}, -1, 1, HT_F32}, IDS) \
    X(LINEAR_GATHER_BACK, linear_gather_back_two, ht_apply(s, HT_OP_LINEAR_GATHER_BACK, &two_sets, in, 2), 128, 0, 0, ONLY_F32, 2, {3, {M, 2, 74}, -1, 1, HT_F32}, IDS) \
    X(HEAD_LOSS, head_loss, head_loss(s, &plain_head, x, y), 32, 0, 0, ONLY_F32, 2, OF_K(5), {1, {M}, -9, 37, HT_I32}) \
    X(HEAD_LOSS, head_loss_capped, head_loss(s, &capped_head, x, y), 64, 0, 0, ONLY_F32, 2, OF_K(64), {1, {M}, -9, 70, HT_I32}) \
    X(HEAD_LOSS_GRAD, head_loss_grad, head_loss_grad(s, &plain_head, x, y, z), 64, 0, 0, ONLY_F32 | CONSTANT, 3, OF_K(5), {1, {M}, -9, 37, HT_I32}, {1, {M}, -1, 1, HT_F32}) \
    X(HEAD_LOSS_GRAD, head_loss_grad_capped, head_loss_grad(s, &capped_head, x, y, z), 256, 0, 0, ONLY_F32 | CONSTANT, 3, OF_K(64), {1, {M}, -9, 70, HT_I32}, {1, {M}, -1, 1, HT_F32})
#define IDS {2, {M, 2}, 0, 3, HT_I32}
/* clang-format on */

/* ---- functions of the cases ---- */

/* x with minus infinity, times `sign`, where it is negative: in all places of some rows. */
static ht_array *hidden(ht_scope *s, ht_array *x, double sign) {
    ht_array *zero = ht_full(s, 0, ht_array_dtype(x), NULL, 0);
    return ht_where(s, ht_less(s, x, zero), ht_full(s, -sign * (double)INFINITY, ht_array_dtype(x), NULL, 0), x);
}

/* The first element of the last axis. */
static ht_array *middle(ht_scope *s, ht_array *x) {
    return ht_slice(s, x, (int64_t[]){HT_OPEN, 0}, (int64_t[]){HT_OPEN, 1}, NULL);
}
static ht_array *last(ht_scope *s, ht_array *x) {
    return middle(s, ht_slice(s, x, (int64_t[]){HT_OPEN, HT_OPEN}, (int64_t[]){HT_OPEN, HT_OPEN}, (int64_t[]){1, -1}));
}

static const ht_rms_norm_params rms = {1e-3f, 0.5f};
static const ht_layer_norm_params layer = {1e-2f};

static ht_array *turned(ht_scope *s, ht_array *x, ht_array *pos, ht_array *factors, bool pairs, int32_t dims,
                        float magnitude) {
    const ht_rope_config how = {10000, 1, magnitude, dims, pairs};
    return ht_rope(s, x, pos, factors, &how);
}

static ht_array *attended(ht_scope *s, ht_array *q, ht_array *k, ht_array *v, ht_array *mask, ht_array *sinks,
                          bool causal, int64_t window) {
    const ht_attention_config how = {0.7f, causal, window};
    return ht_scaled_dot_product_attention(s, q, k, v, mask, sinks, &how);
}

/* A mask of bool, which hides some queries' keys altogether. */
static ht_array *seen(ht_scope *s, ht_array *x) { return ht_less(s, x, ht_full(s, -0.5, ht_array_dtype(x), NULL, 0)); }

/* The kernel's result, whose rounding both sides share. */
static ht_array *sdpa_grad(ht_scope *s, ht_array *q, ht_array *k, ht_array *v, ht_array *grad, ht_array *mask,
                           bool causal) {
    const ht_sdpa_params p = {0.7f, causal, 0};
    ht_array *y = ht_apply(s, HT_OP_SDPA, &p, (ht_array *[]){q, k, v, mask, HT_NONE}, 5);
    return ht_apply(s, HT_OP_SDPA_GRAD, &p, (ht_array *[]){q, k, v, mask, HT_NONE, y, grad}, 7);
}

static const ht_attend_rows_params everything = {0.6f, 0, 0, false, false},
                                   short_window = {0.6f, 1.5f, 2, false, false},
                                   long_window = {0.6f, 2, 3, false, false}, chunks = {0.6f, 2, 3, true, false},
                                   both_sides = {0.6f, 0, 0, false, true}, near_sides = {0.6f, 1.5f, 2, false, true};

static ht_array *some_sinks(ht_scope *s) {
    const int64_t n = 4;
    return ht_array_from(s, (float[]){-1, 0.5f, 1, 2}, HT_F32, &n, 1);
}

/* q, k and v of two sequences, of which the second has five rows; or with `grad` the gradients of the three. */
static ht_array *rows_of(ht_scope *s, ht_array *const *in, ht_array *sinks, ht_array *grad,
                         const ht_attend_rows_params *p) {
    static const int32_t first[9] = {0, 0, 0, 0, 4, 4, 4, 4, 4};
    const int64_t n = 9;
    static const int32_t last[9] = {3, 3, 3, 3, 8, 8, 8, 8, 8}, near[9] = {2, 3, 3, 3, 6, 7, 8, 8, 8};
    ht_array *own = ht_arange(s, 0, 9, 1, HT_I32), *begin = ht_array_from(s, first, HT_I32, &n, 1);
    if (p->two_sided) own = ht_array_from(s, p->window ? near : last, HT_I32, &n, 1);
    ht_array *all[8] = {in[0], in[1], in[2], own, begin, sinks};
    ht_array *y = ht_apply(s, HT_OP_ATTEND_ROWS, p, all, 6);
    if (!grad) return y;
    all[6] = y;
    all[7] = grad;
    return ht_apply(s, HT_OP_ATTEND_ROWS_GRAD, p, all, 8);
}

/* One query at row `own` of a sequence that begins at row `first`, of two rows of keys. */
static ht_array *rows_at(ht_scope *s, int32_t own, int32_t first) {
    const ht_attend_rows_params p = {.scale = 1};
    const int64_t n = 1;
    ht_array *q = ht_ones(s, HT_F32, (int64_t[]){1, 1, 4}, 3), *k = ht_ones(s, HT_F32, (int64_t[]){2, 1, 4}, 3);
    ht_array *at = ht_full(s, own, HT_I32, &n, 1), *begin = ht_full(s, first, HT_I32, &n, 1);
    return ht_apply(s, HT_OP_ATTEND_ROWS, &p, (ht_array *[]){q, k, k, at, begin, HT_NONE}, 6);
}

/* By a matrix [3, 64], or two of two. */
static ht_array *quantised(ht_scope *s, ht_array *x, ht_quantization_mode mode, bool transpose, bool gather) {
    const ht_quantization how = {mode, 0, 0};
    ht_array *parts[3], *w = ht_sin(s, ht_arange(s, 0, 384, 1, HT_F32));
    w = ht_astype(s, ht_reshape(s, w, (int64_t[]){2, 3, 64}, 3),
                  ht_array_dtype(x) == HT_F64 ? HT_F32 : ht_array_dtype(x));
    if (!gather) w = ht_take(s, w, ht_full(s, 1, HT_I32, NULL, 0), 0);
    if (!ht_quantize(s, w, &how, parts)) return NULL;
    if (!gather) return ht_quantized_matmul(s, x, parts, transpose, &how);
    const int64_t n = 3;
    ht_array *left = ht_array_from(s, (const int32_t[]){1, 0, 1}, HT_I32, &n, 1);
    ht_array *right = ht_array_from(s, (const int32_t[]){0, 1, 1}, HT_I32, &n, 1);
    return ht_gather_qmm(s, x, parts, left, right, transpose, &how);
}

/* By matrices [..., 4, 32] of w, one of which is repeated `times` times. */
static ht_array *quantised_of_batch(ht_scope *s, ht_array *x, ht_array *w, int64_t times) {
    const ht_quantization how = {HT_QUANT_AFFINE, 32, 4};
    ht_array *parts[3];
    if (!ht_quantize(s, ht_stop_gradient(s, w), &how, parts)) return NULL;
    for (int i = 0; times && i < 3; i++)
        parts[i] =
            ht_broadcast_to(s, ht_expand_dims(s, parts[i], 0), (int64_t[]){times, 1, 4, ht_array_dim(parts[i], 2)}, 4);
    return ht_quantized_matmul(s, x, parts, true, &how);
}

/* ---- packed matrices ---- */

static ht_matrix dense, blocks, expert[3];
static ht_matrix *expert_matrices[6] = {&expert[0], &expert[1], &expert[2]};
static ht_matrix *other_matrices[6] = {&expert[2], &expert[0], &expert[1]};
static ht_matrix_list experts = {expert_matrices, 3, 0}, others = {other_matrices, 3, 0};
static const ht_linear_gather_params one_set = {{&experts}, 1}, two_sets = {{&experts, &others}, 2};
static const ht_head_loss_params plain_head = {&dense, 1, 0}, capped_head = {&blocks, 0.5f, 3};

static ht_matrix pack(ht_weight_type type, int64_t n_rows, int64_t k, uint64_t seed) {
    void *stored = malloc((size_t)n_rows * test_row_bytes(type, k));
    assert_non_null(stored);
    test_random_weights(type, n_rows, k, &seed, stored);
    ht_matrix m =
        test_pack(ht_cpu_matrix_ops(ht_cpu_isa_best(), type, HT_PRECISION_REFERENCE), type, n_rows, k, stored);
    free(stored);
    return m;
}

static ht_array *linear(ht_scope *s, const ht_matrix *m, ht_array *x, ht_array *bias) {
    const ht_linear_params p = {.matrix = m};
    return ht_apply(s, HT_OP_LINEAR, &p, (ht_array *[]){x, bias}, 2);
}
static ht_array *linear_back(ht_scope *s, const ht_matrix *m, ht_array *dy) {
    const ht_linear_params p = {.matrix = m};
    return ht_apply(s, HT_OP_LINEAR_BACK, &p, &dy, 1);
}

/* The losses: the gradient of the log-sum-exps below them is the reverse rule's business alone. */
static ht_array *head_loss(ht_scope *s, const ht_head_loss_params *p, ht_array *x, ht_array *targets) {
    ht_array *both = ht_apply(s, HT_OP_HEAD_LOSS, p, (ht_array *[]){x, targets}, 2), *half[2];
    if (!both || !ht_split_equally(s, both, 2, 0, half)) return NULL;
    return ht_concatenate(s, (ht_array *[]){half[0], ht_stop_gradient(s, half[1])}, 2, 0);
}
static ht_array *head_loss_grad(ht_scope *s, const ht_head_loss_params *p, ht_array *x, ht_array *targets,
                                ht_array *grad) {
    ht_array *both = ht_apply(s, HT_OP_HEAD_LOSS, p, (ht_array *[]){x, targets}, 2);
    return ht_apply(s, HT_OP_HEAD_LOSS_GRAD, p, (ht_array *[]){x, targets, both, grad}, 4);
}

static int open_all(void **state) {
    dense = pack(HT_W_F32, 37, 5, 1);
    blocks = pack(HT_W_Q8_0, 70, 64, 2);
    for (int i = 0; i < 3; i++) expert[i] = pack(HT_W_F32, 37, 5, 3 + (uint64_t)i);
    ht_matrix_list_find_kinds(&experts);
    ht_matrix_list_find_kinds(&others);
    return compositions_open(state);
}

static int close_all(void **state) {
    free(dense.packed);
    free(blocks.packed);
    for (int i = 0; i < 3; i++) free(expert[i].packed);
    return compositions_close(state);
}

/* ---- the cases ---- */

#define FUNCTION(op, name, expression, ...)                                                                            \
    static ht_array *do_##name(ht_scope *s, ht_array *const *in) {                                                     \
        ht_array *x = in[0], *y = in[1], *z = in[2], *w = in[3];                                                       \
        (void)x, (void)y, (void)z, (void)w;                                                                            \
        return expression;                                                                                             \
    }
#define CASE(op, name, expression, ulps, ulps_f64, floor, flags, count, ...)                                           \
    {#name, HT_OP_##op, do_##name, ulps, ulps_f64, floor, flags, count, {__VA_ARGS__}},
#define TEST(name, LIST)                                                                                               \
    LIST(FUNCTION)                                                                                                     \
    static void name(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        static const composition_case cases[] = {LIST(CASE)};                                                          \
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) test_composition(&cases[i]);                         \
    }
TEST(elements, ELEMENTWISE)
TEST(reductions_and_scans, REDUCTIONS)
TEST(places_and_order, PLACES)
TEST(norms, NORMS)
TEST(rotary_embedding, ROTARY)
TEST(attention, ATTENTION)
TEST(products_and_losses, PRODUCTS)

UNIT_TEST(every_composition_was_run) { test_every_composition_was_run(); }

/* ---- accuracy that a straightforward composition would not have: against the same in f64 ---- */

static ht_array *close_numbers(ht_scope *s, ht_dtype dtype) {
    ht_array *x = ht_sin(s, ht_arange(s, 0, 600, 1, HT_F32));
    x = ht_add(s, ht_scale(s, x, 0.25f), ht_full(s, 9000, HT_F32, NULL, 0));
    return ht_astype(s, ht_reshape(s, x, (int64_t[]){4, 150}, 2), dtype);
}

static ht_array *layer_norm_of_close(ht_scope *s, ht_dtype dtype) {
    return ht_layer_norm(s, close_numbers(s, dtype), HT_NONE, HT_NONE, 1e-6f);
}
static ht_array *variance_of_close(ht_scope *s, ht_dtype dtype) {
    return ht_var(s, close_numbers(s, dtype), (int[]){1}, 1, false, 0);
}
/* Small results, of which 1 + e^x and 1 + tanh x would leave little. */
static ht_array *softplus_of_low(ht_scope *s, ht_dtype dtype) {
    return ht_softplus(s, ht_astype(s, ht_arange(s, -80, -1, 1, HT_F32), dtype));
}
static ht_array *gelu_of_low(ht_scope *s, ht_dtype dtype) {
    return ht_gelu_tanh(s, ht_astype(s, ht_arange(s, -4, -0.1, 0.25, HT_F32), dtype));
}

UNIT_TEST(digits_are_kept) {
    static ht_array *(*const functions[])(ht_scope * s, ht_dtype dtype) = {layer_norm_of_close, variance_of_close,
                                                                           softplus_of_low, gelu_of_low};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        withhold_all();
        ht_scope *s = ht_scope_new(composing_stream);
        ht_array *y = functions[i](s, HT_F32), *exact = functions[i](s, HT_F64);
        ht_array *off = ht_abs(s, ht_subtract(s, ht_astype(s, y, HT_F64), exact));
        ht_array *size = ht_abs(s, exact), *relative = ht_full(s, i < 2 ? 0.01 : 0, HT_F64, NULL, 0);
        double most;
        ht_array *worst = ht_max(s, ht_divide(s, off, ht_add(s, size, relative)), NULL, 0, false);
        assert_works(ht_array_read, s, worst, &most, sizeof most);
        print_message("function %d: off by %.1e\n", (int)i, most);
        assert_true(most < 2e-6); /* 32 units of the last place */
        ht_scope_free(s);
        give_back_kernels();
    }
}

/* ---- what is refused ---- */

static void expect_refusal(ht_scope *s, ht_array *y) {
    ht_error err = {0};
    if (ht_array_eval(s, &y, 1, &err) == HT_OK) fail_msg("an index outside was accepted");
    ht_scope_free(s);
}

static ht_array *number(ht_scope *s, double value, const int64_t *shape, int n_dims) {
    return ht_full(s, value, HT_I32, shape, n_dims);
}

/* A composition does not read what it happens to find at an index outside. */
UNIT_TEST(indices_outside_are_refused) {
    const int64_t one = 1, two[2] = {1, 1}, wide[2] = {1, 5}, matrices[3] = {2, 1, 5};
    for (int i = 0; i < 2; i++) {
        const double bad = i ? 40 : -40;
#define REFUSED(op, ...)                                                                                               \
    {                                                                                                                  \
        withhold(HT_OP_##op);                                                                                          \
        ht_scope *s = ht_scope_new(composing_stream);                                                                  \
        ht_array *x = ht_ones(s, HT_F32, wide, 2), *m = ht_ones(s, HT_F32, matrices, 3);                               \
        (void)x, (void)m;                                                                                              \
        expect_refusal(s, __VA_ARGS__);                                                                                \
        give_back_kernels();                                                                                           \
    }
        REFUSED(TAKE, ht_take(s, x, number(s, bad, &one, 1), 1))
        REFUSED(TAKE_ALONG, ht_take_along_axis(s, x, number(s, bad, two, 2), 1))
        REFUSED(PUT_ALONG, ht_put_along_axis(s, x, number(s, bad, two, 2), number(s, 1, NULL, 0), 1))
        REFUSED(GATHER_MM, ht_gather_mm(s, m, ht_swapaxes(s, m, 1, 2), number(s, i ? 2 : -1, &one, 1), HT_NONE))
        REFUSED(LINEAR_GATHER,
                ht_apply(s, HT_OP_LINEAR_GATHER, &one_set, (ht_array *[]){x, number(s, i ? 3 : -1, two, 2)}, 2))
        REFUSED(ATTEND_ROWS, rows_at(s, i ? 0 : 2, i ? -1 : 0))
        REFUSED(ATTEND_ROWS, rows_at(s, i ? 0 : -1, i ? 1 : 0))
        if (i)
            REFUSED(HEAD_LOSS, ht_apply(s, HT_OP_HEAD_LOSS, &plain_head, (ht_array *[]){x, number(s, 37, &one, 1)}, 2))
    }
}

UNIT_TEST(what_has_no_composition_is_refused) {
    withhold(HT_OP_MATMUL);
    ht_scope *s = ht_scope_new(composing_stream);
    ht_array *x = ht_ones(s, HT_F32, (int64_t[]){2, 2}, 2), *y = ht_matmul(s, x, x, false);
    assert_fails(HT_ERR_UNSUPPORTED, "matmul: not supported", ht_array_eval, s, &y, 1);
    ht_scope_free(s);
    give_back_kernels();
}

/* ---- models ---- */

static float *logits_of(const char *path, const golden *g, ht_stream *stream) {
    ht_model *m;
    ht_model_options options = OPTIONS(ht_model_options, with.device = ht_stream_device(stream),
                                       with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32);
    assert_works(ht_model_load, path, &options, &m);
    float *logits = calloc((size_t)(g->n * g->vocab), sizeof *logits);
    assert_non_null(logits);
    model_run r = model_run_open(m, g->n, 7); /* traced for any number of rows, run with two of them */
    model_run_feed(&r, g->ids, g->n, logits);
    model_run_close(&r);
    ht_model_free(m);
    return logits;
}

/* Kernels that the step of a model needs (docs/contributing.md): with them and compositions, any checkpoint runs. */
static const ht_op_id least[] = {
    HT_OP_CAST,  HT_OP_NEGATIVE, HT_OP_SQRT,     HT_OP_EXP,      HT_OP_SIN,    HT_OP_COS,   HT_OP_TANH,
    HT_OP_ERF,   HT_OP_ADD,      HT_OP_SUBTRACT, HT_OP_MULTIPLY, HT_OP_DIVIDE, HT_OP_EQUAL, HT_OP_LESS_EQUAL,
    HT_OP_WHERE, HT_OP_COPY,     HT_OP_FULL,     HT_OP_ARANGE,   HT_OP_SUM,    HT_OP_MAX,   HT_OP_CONCATENATE,
    HT_OP_ROUND, HT_OP_GATHER,   HT_OP_ARGSORT,  HT_OP_MATMUL,   HT_OP_EMBED,  HT_OP_ATTEND};

static void withhold_all_but_the_least(void) {
    bool kept[HT_OP_COUNT] = {false};
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) kept[least[i]] = true;
    for (int op = 0; op < HT_OP_COUNT; op++)
        if (!kept[op]) withhold((ht_op_id)op);
}

/* Everything composed, in plans: the differences of a few layers, in units of the logits' deviation. */
UNIT_TEST(models_are_composed) {
    static const char *const names[][2] = {{"llama-yarn-f16", "llama-yarn-f16/"},
                                           {"llama-llama3-bf16", "llama-llama3-bf16/"},
                                           {"gemma2-q4_1.gguf", "gemma2-q4_1."},
                                           {"qwen3-moe-f32", "qwen3-moe-f32/"},
                                           {"gemma4-experts-bf16", "gemma4-experts-bf16/"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128], reference[128];
        (void)snprintf(path, sizeof path, "tests/golden/tiny/%s", names[i][0]);
        (void)snprintf(reference, sizeof reference, "tests/golden/tiny/%sreference.json", names[i][1]);
        golden g = golden_open(reference);
        float *want = logits_of(path, &g, composing_stream);
        withhold_all_but_the_least();
        float *got = logits_of(path, &g, composing_stream);
        give_back_kernels();
        double most = 0;
        for (int64_t k = 0; k < g.n * g.vocab; k++) most = fmax(most, fabs((double)got[k] - (double)want[k]));
        print_message("%s, composed: largest difference %.2e of the deviation\n", names[i][0], most / g.std);
        assert_true(most > 0 && most < 1e-4 * g.std);
        free(want);
        free(got);
        golden_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements),
        cmocka_unit_test(reductions_and_scans),
        cmocka_unit_test(places_and_order),
        cmocka_unit_test(norms),
        cmocka_unit_test(rotary_embedding),
        cmocka_unit_test(attention),
        cmocka_unit_test(products_and_losses),
        cmocka_unit_test(every_composition_was_run),
        cmocka_unit_test(digits_are_kept),
        cmocka_unit_test(indices_outside_are_refused),
        cmocka_unit_test(what_has_no_composition_is_refused),
        cmocka_unit_test(models_are_composed),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
