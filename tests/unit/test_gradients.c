/* The gradient of every operation, against finite differences in f64. */
#include "array/op.h"
#include "cpu/matrix.h"
#include "device/params.h"
#include "support/arrays.h"
#include "support/gradients.h"
#include "support/multiply.h"
#include "support/test.h"

#include <hearth/fast.h>

#include <math.h>
#include <stdlib.h>

/* clang-format off */
#define ANY      {2, {3, 4}, -1.5, 1.5}
#define POSITIVE {2, {3, 4}, 0.3, 2.0}
#define INSIDE   {2, {3, 4}, -0.9, 0.9}
#define ROW      {1, {4}, 0.2, 1.7}

/* X(name, expression of x, y and z, number of operands, their shapes and ranges) */
#define ELEMENTWISE(X)                                                       \
    X(negative, ht_negative(s, x), 1, ANY)                                   \
    X(abs, ht_abs(s, x), 1, ANY)                                             \
    X(square, ht_square(s, x), 1, ANY)                                       \
    X(sqrt, ht_sqrt(s, x), 1, POSITIVE)                                      \
    X(rsqrt, ht_rsqrt(s, x), 1, POSITIVE)                                    \
    X(reciprocal, ht_reciprocal(s, x), 1, POSITIVE)                          \
    X(exp, ht_exp(s, x), 1, ANY)                                             \
    X(expm1, ht_expm1(s, x), 1, ANY)                                         \
    X(log, ht_log(s, x), 1, POSITIVE)                                        \
    X(log2, ht_log2(s, x), 1, POSITIVE)                                      \
    X(log10, ht_log10(s, x), 1, POSITIVE)                                    \
    X(log1p, ht_log1p(s, x), 1, POSITIVE)                                    \
    X(sin, ht_sin(s, x), 1, ANY)                                             \
    X(cos, ht_cos(s, x), 1, ANY)                                             \
    X(tan, ht_tan(s, x), 1, INSIDE)                                          \
    X(arcsin, ht_arcsin(s, x), 1, INSIDE)                                    \
    X(arccos, ht_arccos(s, x), 1, INSIDE)                                    \
    X(arctan, ht_arctan(s, x), 1, ANY)                                       \
    X(sinh, ht_sinh(s, x), 1, ANY)                                           \
    X(cosh, ht_cosh(s, x), 1, ANY)                                           \
    X(tanh, ht_tanh(s, x), 1, ANY)                                           \
    X(erf, ht_erf(s, x), 1, ANY)                                             \
    X(erfinv, ht_erfinv(s, x), 1, INSIDE)                                    \
    X(sigmoid, ht_sigmoid(s, x), 1, ANY)                                     \
    X(silu, ht_silu(s, x), 1, ANY)                                           \
    X(gelu, ht_gelu(s, x), 1, ANY)                                           \
    X(gelu_tanh, ht_gelu_tanh(s, x), 1, ANY)                                 \
    X(relu, ht_relu(s, x), 1, ANY)                                           \
    X(softplus, ht_softplus(s, x), 1, ANY)                                   \
    X(sign, ht_sign(s, x), 1, ANY)                                           \
    X(floor, ht_floor(s, x), 1, ANY)                                         \
    X(scale, ht_scale(s, ht_square(s, x), 3), 1, ANY)                        \
    X(softcap, ht_softcap(s, x, 2), 1, ANY)                                  \
    X(nan_to_num, ht_nan_to_num(s, ht_square(s, x), 0, 1, -1), 1, ANY)       \
    X(clip, ht_clip(s, x, ht_full(s, -0.5, HT_F64, NULL, 0), ht_full(s, 0.5, HT_F64, NULL, 0)), 1, ANY) \
    X(add, ht_add(s, x, y), 2, ANY, ROW)                                     \
    X(subtract, ht_subtract(s, x, y), 2, ROW, ANY)                           \
    X(multiply, ht_multiply(s, x, y), 2, ANY, ROW)                           \
    X(divide, ht_divide(s, x, y), 2, ANY, ROW)                               \
    X(remainder, ht_remainder(s, x, y), 2, ANY, POSITIVE)                    \
    X(power, ht_power(s, x, y), 2, POSITIVE, ANY)                            \
    X(logaddexp, ht_logaddexp(s, x, y), 2, ANY, ROW)                         \
    X(arctan2, ht_arctan2(s, x, y), 2, ANY, POSITIVE)                        \
    X(minimum, ht_minimum(s, x, y), 2, ANY, POSITIVE)                        \
    X(maximum, ht_maximum(s, x, y), 2, ROW, ANY)                             \
    X(where, ht_where(s, ht_less(s, x, y), ht_square(s, x), z), 3, ANY, ROW, INSIDE)

#define REDUCTIONS(X)                                                        \
    X(sum, ht_square(s, ht_sum(s, x, (int[]){1}, 1, false)), 1, ANY)         \
    X(sum_all, ht_square(s, ht_sum(s, ht_exp(s, x), NULL, 0, false)), 1, ANY) \
    X(mean, ht_square(s, ht_mean(s, x, (int[]){0}, 1, true)), 1, ANY)        \
    X(prod, ht_prod(s, x, (int[]){-1}, 1, false), 1, ANY)                    \
    X(prod_with_zero, ht_prod(s, ht_multiply(s, x, ht_tri(s, 3, 4, 2, HT_F64)), (int[]){1}, 1, false), 1, ANY) \
    X(max, ht_square(s, ht_max(s, x, (int[]){-1}, 1, false)), 1, ANY)        \
    X(min, ht_square(s, ht_min(s, x, (int[]){0}, 1, false)), 1, ANY)         \
    X(var, ht_var(s, x, (int[]){1}, 1, false, 1), 1, ANY)                    \
    X(std, ht_std(s, x, (int[]){0, 1}, 2, false, 0), 1, ANY)                 \
    X(logsumexp, ht_logsumexp(s, x, (int[]){1}, 1, false), 1, ANY)           \
    X(softmax, ht_softmax(s, x, 0), 1, ANY)                                  \
    X(cumsum, ht_square(s, ht_cumsum(s, x, 1, false, false)), 1, ANY)        \
    X(cumsum_back, ht_square(s, ht_cumsum(s, x, 1, true, true)), 1, ANY)     \
    X(cumprod, ht_cumprod(s, x, 1, false, true), 1, ANY)                     \
    X(cumprod_back, ht_cumprod(s, x, 1, true, false), 1, ANY)                \
    X(cumprod_with_zero, ht_cumprod(s, ht_multiply(s, x, ht_tri(s, 3, 4, 1, HT_F64)), 1, false, true), 1, ANY) \
    X(cummax, ht_square(s, ht_cummax(s, x, 1, false, true)), 1, ANY)         \
    X(cummax_before, ht_square(s, ht_maximum(s, ht_cummax(s, x, 1, false, false), y)), 2, ANY, ROW) \
    X(cummin_back, ht_square(s, ht_cummin(s, x, 0, true, true)), 1, ANY)     \
    X(logcumsumexp, ht_logcumsumexp(s, x, 1, false, true), 1, ANY)           \
    X(logcumsumexp_back, ht_logcumsumexp(s, x, 1, true, true), 1, ANY)       \
    X(logcumsumexp_before, ht_logaddexp(s, ht_logcumsumexp(s, x, 1, false, false), y), 2, ANY, ROW) \
    X(softmax_behind, ht_square(s, ht_softmax(s, x, 1)), 1, {3, {2, 4, 3}, -1.5, 1.5}) \
    X(logsumexp_first, ht_square(s, ht_logsumexp(s, x, (int[]){0}, 1, false)), 1, ANY) \
    X(cumsum_first, ht_square(s, ht_cumsum(s, x, 0, false, true)), 1, ANY)   \
    X(cumsum_middle, ht_square(s, ht_cumsum(s, x, 1, true, false)), 1, {3, {2, 4, 3}, -1.5, 1.5}) \
    X(cumprod_first, ht_cumprod(s, x, 0, true, true), 1, ANY)                \
    X(cumprod_first_with_zero, ht_cumprod(s, ht_multiply(s, x, ht_tri(s, 3, 4, 1, HT_F64)), 0, false, true), 1, ANY) \
    X(cummax_first_before, ht_square(s, ht_maximum(s, ht_cummax(s, x, 0, false, false), y)), 2, ANY, ROW) \
    X(logcumsumexp_first, ht_logcumsumexp(s, x, 0, false, true), 1, ANY)     \
    X(logcumsumexp_first_before, ht_logaddexp(s, ht_logcumsumexp(s, x, 0, true, false), y), 2, ANY, ROW) \
    X(recurrence, ht_recurrence(s, x, y, false), 2, ANY, INSIDE)             \
    X(recurrence_back, ht_recurrence(s, x, y, true), 2, ANY, INSIDE)

#define SHAPES(X)                                                            \
    X(contiguous, ht_square(s, ht_contiguous(s, ht_transpose(s, x, NULL))), 1, ANY) \
    X(reshape, ht_square(s, ht_reshape(s, x, (int64_t[]){4, 3}, 2)), 1, ANY) \
    X(transpose, ht_square(s, ht_transpose(s, x, (int[]){2, 0, 1})), 1, {3, {2, 3, 2}, -1, 1}) \
    X(slice, ht_square(s, ht_slice(s, x, (int64_t[]){2, 1}, (int64_t[]){-1, 4}, (int64_t[]){-2, 2})), 1, ANY) \
    X(windows, ht_square(s, ht_as_strided(s, x, (int64_t[]){3, 3}, (int64_t[]){2, 1}, 2, 1)), 1, ANY) \
    X(diagonal, ht_square(s, ht_diagonal(s, x, 1, 0, 2)), 1, {3, {3, 2, 4}, -1, 1}) \
    X(diagonal_below, ht_square(s, ht_diagonal(s, x, -1, 1, 0)), 1, ANY)     \
    X(broadcast, ht_square(s, ht_broadcast_to(s, x, (int64_t[]){2, 3, 4}, 3)), 1, ROW) \
    X(squeeze, ht_square(s, ht_squeeze(s, ht_expand_dims(s, x, 1), 1)), 1, ANY) \
    X(concatenate, ht_square(s, ht_concatenate(s, (ht_array *[]){x, y}, 2, 1)), 2, ANY, {2, {3, 2}, -1, 1}) \
    X(pad_reflected, ht_square(s, ht_pad_mirrored(s, x, (const int64_t[2][2]){{1, 0}, {2, 7}}, false)), 1, ANY) \
    X(pad_symmetric, ht_square(s, ht_pad_mirrored(s, x, (const int64_t[2][2]){{4, 0}, {1, 2}}, true)), 1, ANY) \
    X(pad, ht_square(s, ht_pad(s, x, (const int64_t[2][2]){{1, 0}, {0, 2}}, HT_NONE)), 1, ANY) \
    X(roll, ht_multiply(s, x, ht_roll(s, x, 1, 1)), 1, ANY)                  \
    X(tile, ht_square(s, ht_tile(s, x, (int64_t[]){2, 2}, 2)), 1, ANY)       \
    X(tril, ht_square(s, ht_tril(s, x, 0)), 1, {3, {2, 3, 3}, -1, 1})        \
    X(matmul, ht_matmul(s, x, y, false), 2, {3, {2, 2, 3}, -1, 1}, {2, {3, 4}, -1, 1}) \
    X(matmul_transposed, ht_matmul(s, x, y, true), 2, {2, {2, 3}, -1, 1}, {3, {2, 4, 3}, -1, 1}) \
    X(addmm, ht_addmm(s, z, x, y, 0.5f, -2), 3, {2, {2, 3}, -1, 1}, {2, {3, 4}, -1, 1}, ROW) \
    X(inner, ht_inner(s, x, y), 2, {2, {2, 3}, -1, 1}, {2, {4, 3}, -1, 1})   \
    X(outer, ht_outer(s, x, y), 2, ROW, {1, {3}, -1, 1})                     \
    X(tensordot, ht_tensordot(s, x, y, (int[]){0, 2}, (int[]){1, 0}, 2), 2, {3, {2, 3, 4}, -1, 1}, {3, {4, 2, 3}, -1, 1}) \
    X(einsum, ht_einsum(s, "ij,kj->ik", (ht_array *[]){x, y}, 2), 2, ANY, {2, {2, 4}, -1, 1}) \
    X(einsum_chain, ht_einsum(s, "ab,bcd,dd->ca", (ht_array *[]){x, y, z}, 3), 3, {2, {2, 3}, -1, 1}, {3, {3, 2, 2}, -1, 1}, \
      {2, {2, 2}, -1, 1})                                                    \
    X(stack, ht_square(s, ht_stack(s, (ht_array *[]){x, y, x}, 3, 1)), 2, ANY, ANY) \
    X(split, split_in_two(s, x), 1, ANY)                                     \
    X(repeat, ht_exp(s, ht_repeat(s, x, 3, 1)), 1, ANY)                      \
    X(moveaxis, ht_exp(s, ht_moveaxis(s, x, 0, -1)), 1, {3, {2, 3, 2}, -1, 1}) \
    X(meshgrid, meshed(s, x, y), 2, ROW, {1, {3}, -1, 1})                    \
    X(norm, ht_norm(s, x, 3, (int[]){1}, 1, false), 1, ANY)                  \
    X(norm_of_largest, ht_norm(s, ht_square(s, x), INFINITY, NULL, 0, true), 1, ANY) \
    X(network, ht_softmax(s, ht_matmul(s, ht_gelu(s, ht_add(s, ht_matmul(s, x, y, false), z)), y, true), 1), 3, \
      {2, {2, 3}, -1, 1}, {2, {3, 4}, -1, 1}, ROW)

#define AT2(...) ht_array_from(s, (int32_t[]){__VA_ARGS__}, HT_I32, (int64_t[]){2}, 1)
#define AT22(...) ht_array_from(s, (int32_t[]){__VA_ARGS__}, HT_I32, (int64_t[]){2, 2}, 2)
#define AT34 ht_array_from(s, (int32_t[]){0, 1, 1, 2, 2, 2, 1, 0, 0, 0, 1, -1}, HT_I32, (int64_t[]){3, 4}, 2)
#define SCATTERED(mode) \
    ht_square(s, ht_scatter(s, x, (ht_array *[]){AT22(0, 2, 2, -3), AT2(3, 1)}, (int[]){0, 1}, 2, y, HT_SCATTER_##mode))
#define SLICES {4, {2, 2, 1, 1}, -1.3, 1.4}
#define WITH_ZEROS(a) ht_multiply(s, a, ht_tri(s, 3, 4, 1, HT_F64))

#define PLACES(X)                                                            \
    X(take, ht_square(s, ht_take(s, x, AT22(3, 0, -1, 3), 1)), 1, {3, {2, 4, 3}, -1, 1}) \
    X(take_rows, ht_exp(s, ht_take(s, x, AT2(2, 2), 0)), 1, ANY)             \
    X(take_one, ht_square(s, ht_take(s, x, ht_full(s, 1, HT_I32, NULL, 0), 0)), 1, ANY) \
    X(take_along, ht_square(s, ht_take_along_axis(s, x, AT34, 0)), 1, ANY)   \
    X(put_along, ht_square(s, ht_put_along_axis(s, x, AT34, y, 1)), 2, ANY, ANY) \
    X(put_along_row, ht_square(s, ht_put_along_axis(s, x, AT34, y, 0)), 2, ANY, ROW) \
    X(add_along, ht_square(s, ht_scatter_add_axis(s, x, AT34, y, 1)), 2, ANY, ANY) \
    X(gather, ht_square(s, ht_gather(s, x, (ht_array *[]){AT22(0, 2, 2, 0), AT2(3, -4)}, (int[]){0, 1}, 2, \
                                     (int64_t[]){1, 1})), 1, ANY)            \
    X(gather_windows, ht_square(s, ht_gather(s, x, (ht_array *[]){AT2(1, 2)}, (int[]){1}, 1, (int64_t[]){2, 2})), 1, ANY) \
    X(scatter_set, SCATTERED(SET), 2, ANY, SLICES)                           \
    X(scatter_add, SCATTERED(ADD), 2, ANY, SLICES)                           \
    X(scatter_prod, SCATTERED(PROD), 2, ANY, SLICES)                         \
    X(scatter_min, SCATTERED(MIN), 2, ANY, SLICES)                           \
    X(scatter_max, SCATTERED(MAX), 2, ANY, SLICES)                           \
    X(scatter_prod_of_zeros, ht_scatter(s, WITH_ZEROS(x), (ht_array *[]){AT2(0, 0)}, (int[]){0}, 1, \
                                        ht_expand_dims(s, y, 1), HT_SCATTER_PROD), 2, ANY, {2, {2, 4}, -1, 1}) \
    X(slice_update, ht_square(s, ht_slice_update(s, x, y, (int64_t[]){2, 1}, (int64_t[]){-1, 4}, (int64_t[]){-2, 2})), 2, \
      ANY, {2, {2, 2}, -1, 1})                                               \
    X(sort, ht_multiply(s, ht_sort(s, x, 0), y), 2, ANY, ROW)                \
    X(partition, ht_square(s, ht_slice(s, ht_partition(s, x, 1, 1), (int64_t[]){0, 1}, (int64_t[]){3, 2}, NULL)), 1, ANY) \
    X(topk, ht_square(s, ht_topk(s, x, 2, -1)), 1, ANY)                      \
    X(one_hot, ht_multiply(s, x, ht_one_hot(s, AT34, 3, HT_F64)), 1, {3, {3, 4, 3}, -1, 1})
#define FUSED(X)                                                             \
    X(rms_norm, ht_rms_norm(s, x, y, 1e-2f, 0), 2, ANY, ROW)                 \
    X(rms_norm_plain, ht_rms_norm(s, x, HT_NONE, 1e-2f, 1), 1, ANY)          \
    X(layer_norm, ht_layer_norm(s, x, y, z, 1e-2f), 3, ANY, ROW, ROW)        \
    X(layer_norm_plain, ht_layer_norm(s, x, HT_NONE, HT_NONE, 1e-2f), 1, ANY) \
    X(layer_norm_bias, ht_layer_norm(s, x, HT_NONE, y, 1e-2f), 2, ANY, ROW)  \
    X(rope, ht_square(s, turned(s, x, false)), 1, {4, {1, 2, 3, 6}, -1, 1})  \
    X(rope_pairs, ht_square(s, turned(s, x, true)), 1, {3, {2, 3, 4}, -1, 1}) \
    X(attention, attended(s, in, false, 0), 3, {4, {1, 4, 2, 3}, -1, 1}, {4, {1, 2, 3, 3}, -1, 1}, {4, {1, 2, 3, 2}, -1, 1}) \
    X(attention_causal, attended(s, in, true, 0), 3, {4, {1, 2, 3, 3}, -1, 1}, {4, {1, 2, 3, 3}, -1, 1}, {4, {1, 2, 3, 2}, -1, 1}) \
    X(attention_window, attended(s, in, true, 2), 3, {4, {1, 2, 3, 3}, -1, 1}, {4, {1, 1, 4, 3}, -1, 1}, {4, {1, 1, 4, 2}, -1, 1}) \
    X(attention_sinks, masked(s, in), 4, {4, {1, 2, 2, 3}, -1, 1}, {4, {1, 1, 3, 3}, -1, 1}, {2, {2, 3}, -1, 1}, {1, {2}, -1, 1}) \
    X(gather_mm, ht_gather_mm(s, x, y, numbers(s, 3, 1, 0, 1), numbers(s, 3, 0, 1, 1)), 2, {3, {2, 2, 3}, -1, 1}, {3, {2, 3, 2}, -1, 1}) \
    X(quantized_matmul, ht_square(s, quantised(s, x, true, false)), 1, {2, {3, 32}, -1, 1}) \
    X(quantized_matmul_other, ht_square(s, quantised(s, x, false, false)), 1, {2, {3, 2}, -1, 1}) \
    X(gather_qmm, ht_square(s, quantised(s, x, true, true)), 1, {3, {2, 1, 32}, -1, 1}) \
    X(checkpoint, checkpointed(s, in), 2, ANY, ROW)
/* clang-format on */

static ht_array *split_in_two(ht_scope *s, ht_array *x) {
    ht_array *half[2];
    return ht_split_equally(s, x, 2, 1, half) ? ht_multiply(s, half[0], ht_exp(s, half[1])) : NULL;
}

static ht_array *meshed(ht_scope *s, ht_array *x, ht_array *y) {
    ht_array *grid[2];
    return ht_meshgrid(s, (ht_array *[]){x, y}, 2, false, true, grid) ? ht_multiply(s, grid[0], grid[1]) : NULL;
}

static ht_array *turned(ht_scope *s, ht_array *x, bool interleaved) {
    const ht_rope_config how = {100.0f, 0.5f, 1.0f, 4, interleaved};
    return ht_rope_rows(s, x, ht_full(s, 3, HT_I32, NULL, 0), HT_NONE, &how);
}

static ht_array *attended(ht_scope *s, ht_array *const *in, bool causal, int64_t window) {
    const ht_attention_config how = {0.7f, causal, window};
    return ht_scaled_dot_product_attention(s, in[0], in[1], in[2], HT_NONE, HT_NONE, &how);
}

/* The keys are the values, too. */
static ht_array *masked(ht_scope *s, ht_array *const *in) {
    const ht_attention_config how = {0.7f, false, 0};
    return ht_scaled_dot_product_attention(s, in[0], in[1], in[1], in[2], in[3], &how);
}

static ht_array *numbers(ht_scope *s, int64_t n, int32_t a, int32_t b, int32_t c) {
    return ht_array_from(s, (int32_t[]){a, b, c}, HT_I32, &n, 1);
}

/* By a matrix [2, 32], or one of two. */
static ht_array *quantised(ht_scope *s, ht_array *x, bool transpose, bool gather) {
    const ht_quantization how = {HT_QUANT_AFFINE, 32, 4};
    ht_array *parts[3], *w = ht_sin(s, ht_arange(s, 0, 128, 1, HT_F32));
    w = ht_reshape(s, w, (int64_t[]){2, 2, 32}, 3);
    if (!gather) w = ht_take(s, w, ht_full(s, 1, HT_I32, NULL, 0), 0);
    if (!ht_quantize(s, w, &how, parts)) return NULL;
    if (!gather) return ht_quantized_matmul(s, x, parts, transpose, &how);
    return ht_gather_qmm(s, x, parts, numbers(s, 3, 1, 0, 1), numbers(s, 3, 0, 1, 1), transpose, &how);
}

static int sines_of_products(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    out[0] = ht_sin(s, ht_multiply(s, ht_exp(s, in[0]), in[1]));
    return out[0] ? 1 : -1;
}

static ht_array *checkpointed(ht_scope *s, ht_array *const *in) {
    const ht_function f = {sines_of_products, NULL};
    ht_array *out[1];
    ht_array *computed[2] = {ht_negative(s, in[0]), in[1]}; /* one of them not evaluated */
    return ht_checkpoint(s, &f, computed, 2, out, 1) == 1 ? ht_square(s, out[0]) : NULL;
}

#define FUNCTION(name, expression, count, ...)                                                                         \
    static ht_array *do_##name(ht_scope *s, ht_array *const *in) {                                                     \
        ht_array *x = in[0], *y = in[1], *z = in[2];                                                                   \
        (void)x, (void)y, (void)z;                                                                                     \
        return expression;                                                                                             \
    }
ELEMENTWISE(FUNCTION)
REDUCTIONS(FUNCTION)
SHAPES(FUNCTION)
FUSED(FUNCTION)
PLACES(FUNCTION)

#define CASE(name, expression, count, ...) {#name, do_##name, count, {__VA_ARGS__}},

static void run(const gradient_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) test_gradient(test_stream, &cases[i]);
}
#define RUN(name, LIST)                                                                                                \
    static void name(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        const gradient_case cases[] = {LIST(CASE)};                                                                    \
        run(cases, sizeof cases / sizeof *cases);                                                                      \
    }
RUN(gradients_of_elements, ELEMENTWISE)
RUN(gradients_of_reductions_and_scans, REDUCTIONS)
RUN(gradients_of_shapes_and_products, SHAPES)
RUN(gradients_of_fused_operations, FUSED)
RUN(gradients_of_places, PLACES)

/* ---- what computes in f32 at most: against the same in f64 ---- */

#define DRAWN(X)                                                                                                       \
    X(log, LOG, 0.3, 2.0)                                                                                              \
    X(log1p, LOG1P, -0.5, 2.0)                                                                                         \
    X(erf, ERF, -1.5, 1.5)                                                                                             \
    X(erfinv, ERFINV, -0.9, 0.9)
#define DRAWN_FUNCTIONS(name, function, low, high)                                                                     \
    static ht_array *drawn_##name(ht_scope *s, ht_array *const *in) {                                                  \
        const ht_drawn_params p = {HT_DRAWN_##function};                                                               \
        return ht_apply(s, HT_OP_DRAWN, &p, in, 1);                                                                    \
    }                                                                                                                  \
    static ht_array *exact_##name(ht_scope *s, ht_array *const *in) { return ht_##name(s, in[0]); }
DRAWN(DRAWN_FUNCTIONS)

/* [2, 32] numbers of 4 bits with scales and biases [2, 1], squared. */
static ht_array *dequantised(ht_scope *s, ht_array *scales, ht_array *biases) {
    const ht_quantization how = {HT_QUANT_AFFINE, 32, 4};
    ht_array *parts[3], *w = ht_reshape(s, ht_sin(s, ht_arange(s, 0, 64, 1, HT_F32)), (int64_t[]){2, 32}, 2);
    if (!ht_quantize(s, w, &how, parts)) return NULL;
    return ht_square(s,
                     ht_dequantize_groups(s, (ht_array *[]){parts[0], scales, biases}, &how, ht_array_dtype(scales)));
}

static ht_array *pair(ht_scope *s, double value, ht_dtype dtype) {
    return ht_full(s, value, dtype, (int64_t[]){2, 1}, 2);
}

/* Of the numbers themselves, which are whole, everything else is f64's arithmetic. */
static ht_array *exactly_dequantised(ht_scope *s, ht_array *scales, ht_array *biases) {
    ht_array *numbers = ht_sqrt(s, dequantised(s, pair(s, 1, HT_F64), pair(s, 0, HT_F64)));
    return ht_square(s, ht_add(s, ht_multiply(s, numbers, scales), biases));
}

static ht_array *by_scales(ht_scope *s, ht_array *const *in) { return dequantised(s, in[0], pair(s, -1.5, HT_F32)); }
static ht_array *exactly_by_scales(ht_scope *s, ht_array *const *in) {
    return exactly_dequantised(s, in[0], pair(s, -1.5, HT_F64));
}
static ht_array *by_biases(ht_scope *s, ht_array *const *in) { return dequantised(s, pair(s, 0.25, HT_F32), in[0]); }
static ht_array *exactly_by_biases(ht_scope *s, ht_array *const *in) {
    return exactly_dequantised(s, pair(s, 0.25, HT_F64), in[0]);
}

/* ---- products by the packed matrix of a model, and the loss of its head ---- */

enum { MATRIX_ROWS = 5, MATRIX_K = 3 };
static const float matrix_values[MATRIX_ROWS * MATRIX_K] = {0.5f, -1, 0.25f, 2,     0.75f, -0.5f, 1.5f, 1,
                                                            -2,   1,  0,     -0.3f, 0.4f,  0.7f,  -0.6f};
static ht_matrix matrix;

static ht_array *matrix_array(ht_scope *s) {
    return ht_astype(s, ht_array_from(s, matrix_values, HT_F32, (int64_t[]){MATRIX_ROWS, MATRIX_K}, 2), HT_F64);
}

static ht_array *linear_of(ht_scope *s, ht_array *x, ht_array *bias) {
    const ht_linear_params p = {.matrix = &matrix};
    return ht_square(s, ht_apply(s, HT_OP_LINEAR, &p, (ht_array *[]){x, bias}, 2));
}

static ht_array *linear(ht_scope *s, ht_array *const *in) { return linear_of(s, in[0], HT_NONE); }

static ht_array *exact_linear(ht_scope *s, ht_array *const *in) {
    return ht_square(s, ht_matmul(s, in[0], matrix_array(s), true));
}

static ht_array *linear_bias(ht_scope *s, ht_array *const *in) {
    return linear_of(s, ht_ones(s, HT_F32, (int64_t[]){4, MATRIX_K}, 2), in[0]);
}

static ht_array *exact_linear_bias(ht_scope *s, ht_array *const *in) {
    ht_array *ones = ht_ones(s, HT_F64, (int64_t[]){4, MATRIX_K}, 2);
    return ht_square(s, ht_add(s, ht_matmul(s, ones, matrix_array(s), true), in[0]));
}

static ht_array *linear_back(ht_scope *s, ht_array *const *in) {
    const ht_linear_params p = {.matrix = &matrix};
    return ht_square(s, ht_apply(s, HT_OP_LINEAR_BACK, &p, in, 1));
}

static ht_array *exact_linear_back(ht_scope *s, ht_array *const *in) {
    return ht_square(s, ht_matmul(s, in[0], matrix_array(s), false));
}

/* The losses alone: the log-sum-exps below them have no gradient. */
static ht_array *head_loss(ht_scope *s, ht_array *const *in) {
    const ht_head_loss_params p = {&matrix, 0.5f, 2};
    const int64_t n = 3;
    ht_array *targets = ht_array_from(s, (const int32_t[]){4, -1, 0}, HT_I32, &n, 1);
    ht_array *both = ht_apply(s, HT_OP_HEAD_LOSS, &p, (ht_array *[]){in[0], targets}, 2);
    return ht_slice(s, both, (int64_t[]){0, 0}, (int64_t[]){1, n}, NULL);
}

static ht_array *exact_head_loss(ht_scope *s, ht_array *const *in) {
    const int64_t shape[] = {3, 1};
    ht_array *y = ht_softcap(s, ht_scale(s, ht_matmul(s, in[0], matrix_array(s), true), 0.5), 2);
    ht_array *at = ht_array_from(s, (const int32_t[]){4, 0, 0}, HT_I32, shape, 2);
    ht_array *learned = ht_array_from(s, (const double[]){1, 0, 1}, HT_F64, shape, 2);
    ht_array *loss = ht_subtract(s, ht_logsumexp(s, y, (int[]){1}, 1, true), ht_take_along_axis(s, y, at, 1));
    return ht_reshape(s, ht_multiply(s, loss, learned), (int64_t[]){1, 3}, 2);
}

/* Two experts of equal matrices. */
static ht_matrix *expert_matrices[4] = {&matrix, &matrix};
static ht_matrix_list expert_list = {expert_matrices, 2, 0};

static ht_array *expert_ids(ht_scope *s) {
    return ht_array_from(s, (const int32_t[]){1, 0, 0, 1}, HT_I32, (int64_t[]){2, 2}, 2);
}

static ht_array *linear_gather(ht_scope *s, ht_array *const *in) {
    const ht_linear_gather_params p = {{&expert_list}, 1};
    return ht_square(s, ht_apply(s, HT_OP_LINEAR_GATHER, &p, (ht_array *[]){in[0], expert_ids(s)}, 2));
}

static ht_array *exact_linear_gather(ht_scope *s, ht_array *const *in) {
    ht_array *y = ht_expand_dims(s, ht_matmul(s, in[0], matrix_array(s), true), 1);
    return ht_square(s, ht_broadcast_to(s, y, (int64_t[]){2, 2, MATRIX_ROWS}, 3));
}

static ht_array *linear_gather_back(ht_scope *s, ht_array *const *in) {
    const ht_linear_gather_params p = {{&expert_list}, 1};
    return ht_square(s, ht_apply(s, HT_OP_LINEAR_GATHER_BACK, &p, (ht_array *[]){in[0], expert_ids(s)}, 2));
}

static ht_array *exact_linear_gather_back(ht_scope *s, ht_array *const *in) {
    return ht_square(s, ht_matmul(s, in[0], ht_expand_dims(s, matrix_array(s), 0), false));
}

/* x [5, 4] as the queries of two heads, its squares as keys, its double as values. */
static ht_array *attend_rows_with(ht_scope *s, ht_array *x, ht_array *sinks, const ht_attend_rows_params *p) {
    const int64_t n = 5, shape[] = {5, 2, 2};
    x = ht_reshape(s, x, shape, 3);
    ht_array *own = ht_arange(s, 0, 5, 1, HT_I32), *first = ht_zeros(s, HT_I32, &n, 1);
    ht_array *in[] = {x, ht_square(s, x), ht_scale(s, x, 2), own, first, sinks};
    return ht_apply(s, HT_OP_ATTEND_ROWS, p, in, 6);
}

static ht_array *attend_rows(ht_scope *s, ht_array *const *in) {
    return attend_rows_with(s, in[0], HT_NONE, &(ht_attend_rows_params){0.5f, 0, 3, false, false});
}

/* The first elements of x are the sinks, too. */
static ht_array *first_two(ht_scope *s, ht_array *x) {
    return ht_reshape(s, ht_slice(s, x, (int64_t[]){0, 0}, (int64_t[]){1, 2}, NULL), (int64_t[]){2}, 1);
}

static ht_array *attend_rows_sinks(ht_scope *s, ht_array *const *in) {
    return attend_rows_with(s, in[0], first_two(s, in[0]), &(ht_attend_rows_params){0.5f, 0, 3, false, false});
}

static ht_array *attend_rows_chunks(ht_scope *s, ht_array *const *in) {
    return attend_rows_with(s, in[0], first_two(s, in[0]), &(ht_attend_rows_params){0.5f, 0, 3, true, false});
}

static ht_array *exactly_attended(ht_scope *s, ht_array *x, ht_array *mask, ht_array *sinks, int64_t window) {
    const ht_attention_config how = {.scale = 0.5f, .causal = true, .window = window};
    x = ht_swapaxes(s, ht_reshape(s, x, (int64_t[]){1, 5, 2, 2}, 4), 1, 2);
    ht_array *y = ht_scaled_dot_product_attention(s, x, ht_square(s, x), ht_scale(s, x, 2), mask, sinks, &how);
    return ht_reshape(s, ht_swapaxes(s, y, 1, 2), (int64_t[]){5, 2, 2}, 3);
}

static ht_array *exact_attend_rows(ht_scope *s, ht_array *const *in) {
    return exactly_attended(s, in[0], HT_NONE, HT_NONE, 3);
}

static ht_array *exact_attend_rows_sinks(ht_scope *s, ht_array *const *in) {
    return exactly_attended(s, in[0], HT_NONE, first_two(s, in[0]), 3);
}

static ht_array *exact_attend_rows_chunks(ht_scope *s, ht_array *const *in) {
    static const bool chunk_of_three[25] = {1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1};
    ht_array *mask = ht_array_from(s, chunk_of_three, HT_BOOL, (int64_t[]){1, 1, 5, 5}, 4);
    return exactly_attended(s, in[0], mask, first_two(s, in[0]), 0);
}

/* Column `column` .. column + 1 of x [5, 4] as [5, 2], in 0 .. 1. */
static ht_array *gates_of(ht_scope *s, ht_array *x, int64_t column) {
    return ht_sigmoid(s, ht_slice(s, x, (int64_t[]){0, column}, (int64_t[]){5, column + 2}, NULL));
}

/* x as the queries of two heads, a part of its squares as keys, its double as values: sequences of three and of two rows. */
static ht_array *state_scan_rows(ht_scope *s, ht_array *const *in) {
    static const int32_t first[] = {0, 0, 0, 3, 3};
    const int64_t n = 5;
    ht_array *x = ht_reshape(s, in[0], (int64_t[]){5, 2, 2}, 3);
    ht_array *all[] = {x,
                       ht_scale(s, ht_square(s, x), 0.25f),
                       ht_scale(s, x, 2),
                       gates_of(s, in[0], 0),
                       gates_of(s, in[0], 2),
                       ht_array_from(s, first, HT_I32, &n, 1)};
    return ht_apply(s, HT_OP_STATE_SCAN_ROWS, &(ht_state_scan_params){0}, all, 6);
}

/* Row t of x, of any shape. */
static ht_array *row_as(ht_scope *s, ht_array *x, int64_t t, const int64_t *shape, int n_dims) {
    const int64_t begin[] = {t, 0}, end[] = {t + 1, x ? x->shape[1] : 0};
    return ht_reshape(s, ht_slice(s, x, begin, end, NULL), shape, n_dims);
}

static ht_array *exact_state_scan_rows(ht_scope *s, ht_array *const *in) {
    static const int64_t key[] = {2, 2, 1}, value[] = {2, 1, 2}, gate[] = {2, 1, 1};
    ht_array *state = NULL, *y[5], *decay = gates_of(s, in[0], 0), *rate = gates_of(s, in[0], 2);
    for (int64_t t = 0; t < 5; t++) {
        ht_array *q = row_as(s, in[0], t, key, 3), *k = ht_scale(s, ht_square(s, q), 0.25f);
        ht_array *d = ht_scale(s, row_as(s, in[0], t, value, 3), 2); /* [heads, 1, value_dim] */
        if (t != 0 && t != 3) {
            state = ht_multiply(s, state, row_as(s, decay, t, gate, 3)); /* [heads, key_dim, value_dim] */
            d = ht_subtract(s, d, ht_sum(s, ht_multiply(s, state, k), (int[]){1}, 1, true));
        }
        d = ht_multiply(s, ht_multiply(s, d, row_as(s, rate, t, gate, 3)), k);
        state = t != 0 && t != 3 ? ht_add(s, state, d) : d;
        y[t] = ht_sum(s, ht_multiply(s, state, q), (int[]){1}, 1, false);
    }
    return ht_stack(s, y, 5, 0);
}

UNIT_TEST(gradients_of_packed_matrices) {
    const ht_matrix_ops *ops = ht_cpu_matrix_ops(ht_cpu_isa_best(), HT_W_F32, HT_PRECISION_REFERENCE);
    matrix = test_pack(ops, HT_W_F32, MATRIX_ROWS, MATRIX_K, matrix_values);
    test_gradient_of_f32(test_stream, &(gradient_case){"linear", linear, 1, {{2, {4, MATRIX_K}, -1.5, 1.5}}},
                         exact_linear);
    test_gradient_of_f32(test_stream, &(gradient_case){"linear's bias", linear_bias, 1, {{1, {MATRIX_ROWS}, -1, 1}}},
                         exact_linear_bias);
    test_gradient_of_f32(test_stream,
                         &(gradient_case){"linear_back", linear_back, 1, {{2, {4, MATRIX_ROWS}, -1.5, 1.5}}},
                         exact_linear_back);
    test_gradient_of_f32(test_stream, &(gradient_case){"head_loss", head_loss, 1, {{2, {3, MATRIX_K}, -1.5, 1.5}}},
                         exact_head_loss);
    ht_matrix_list_find_kinds(&expert_list);
    test_gradient_of_f32(test_stream,
                         &(gradient_case){"linear_gather", linear_gather, 1, {{2, {2, MATRIX_K}, -1.5, 1.5}}},
                         exact_linear_gather);
    test_gradient_of_f32(
        test_stream,
        &(gradient_case){"linear_gather_back", linear_gather_back, 1, {{3, {2, 2, MATRIX_ROWS}, -1.5, 1.5}}},
        exact_linear_gather_back);
    free(matrix.packed);
}

UNIT_TEST(gradients_of_rows) {
    test_gradient_of_f32(test_stream, &(gradient_case){"attend_rows", attend_rows, 1, {{2, {5, 4}, -1.5, 1.5}}},
                         exact_attend_rows);
    test_gradient_of_f32(test_stream, &(gradient_case){"sinks", attend_rows_sinks, 1, {{2, {5, 4}, -1.5, 1.5}}},
                         exact_attend_rows_sinks);
    test_gradient_of_f32(test_stream, &(gradient_case){"chunks", attend_rows_chunks, 1, {{2, {5, 4}, -1.5, 1.5}}},
                         exact_attend_rows_chunks);
    test_gradient_of_f32(test_stream, &(gradient_case){"state_scan_rows", state_scan_rows, 1, {{2, {5, 4}, -1.5, 1.5}}},
                         exact_state_scan_rows);
}

UNIT_TEST(gradients_of_what_computes_in_f32) {
#define DRAWN_CASE(name, function, low, high)                                                                          \
    test_gradient_of_f32(test_stream, &(gradient_case){"drawn " #name, drawn_##name, 1, {{1, {17}, low, high}}},       \
                         exact_##name);
    DRAWN(DRAWN_CASE)
    test_gradient_of_f32(test_stream, &(gradient_case){"scales", by_scales, 1, {{2, {2, 1}, 0.1, 0.5}}},
                         exactly_by_scales);
    test_gradient_of_f32(test_stream, &(gradient_case){"biases", by_biases, 1, {{2, {2, 1}, -2, -1}}},
                         exactly_by_biases);
}

UNIT_TEST(every_rule_was_run) { test_every_rule_was_run(); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_elements),
        cmocka_unit_test(gradients_of_reductions_and_scans),
        cmocka_unit_test(gradients_of_shapes_and_products),
        cmocka_unit_test(gradients_of_fused_operations),
        cmocka_unit_test(gradients_of_places),
        cmocka_unit_test(gradients_of_what_computes_in_f32),
        cmocka_unit_test(gradients_of_packed_matrices),
        cmocka_unit_test(gradients_of_rows),
        cmocka_unit_test(every_rule_was_run),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
