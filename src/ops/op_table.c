/* Operation table, and ht_apply, which makes all nodes that have a kernel and composes operations that have none. */
#include "array/op.h"
#include "array/replay.h"
#include "array/user_function.h"
#include "base/error.h"
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <string.h>

static const ht_op_info table[HT_OP_COUNT] = {
    /* Views and leaves have no shape rule: their constructors set the shape. */
    [HT_OP_RESHAPE] = {.vjp = ht_vjp_reshape},
    [HT_OP_TRANSPOSE] = {.vjp = ht_vjp_transpose},
    [HT_OP_AS_STRIDED] = {.vjp = ht_vjp_window},
    [HT_OP_SLICE] = {.vjp = ht_vjp_slice},
    [HT_OP_DIAGONAL] = {.vjp = ht_vjp_diagonal},
    [HT_OP_BROADCAST] = {.vjp = ht_vjp_broadcast},
    [HT_OP_VIEW_AS] = {.vjp = ht_vjp_none},
    [HT_OP_IDENTITY] = {.vjp = ht_vjp_copy},
    [HT_OP_AFTER] = {.vjp = ht_vjp_copy},
    [HT_OP_COPY] = {.shape = ht_shape_copy, .vjp = ht_vjp_copy},
    [HT_OP_CAST] = {.shape = ht_shape_cast, .params_bytes = sizeof(ht_make_params), .vjp = ht_vjp_cast},
    [HT_OP_FULL] = {.shape = ht_shape_full, .params_bytes = sizeof(ht_make_params), .vjp = ht_vjp_none},
    [HT_OP_ARANGE] = {.shape = ht_shape_full, .params_bytes = sizeof(ht_make_params), .vjp = ht_vjp_none},
    [HT_OP_NEGATIVE] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_negative},
    [HT_OP_ABS] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_abs},
    [HT_OP_SIGN] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_none, .compose = ht_compose_sign},
    [HT_OP_SQUARE] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_square, .compose = ht_compose_square},
    [HT_OP_FLOOR] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_CEIL] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_ROUND] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_NAN_TO_NUM] = {.shape = ht_shape_same,
                          .params_bytes = sizeof(ht_nan_to_num_params),
                          .in_place = true,
                          .vjp = ht_vjp_nan_to_num,
                          .compose = ht_compose_nan_to_num},
    [HT_OP_BITWISE_INVERT] = {.shape = ht_shape_same, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_SQRT] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_sqrt},
    [HT_OP_RSQRT] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_rsqrt, .compose = ht_compose_rsqrt},
    [HT_OP_RECIPROCAL] = {.shape = ht_shape_float,
                          .in_place = true,
                          .vjp = ht_vjp_reciprocal,
                          .compose = ht_compose_reciprocal},
    [HT_OP_EXP] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_exp},
    [HT_OP_EXPM1] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_expm1},
    [HT_OP_LOG] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_log},
    [HT_OP_LOG2] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_log2},
    [HT_OP_LOG10] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_log10},
    [HT_OP_LOG1P] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_log1p},
    [HT_OP_SIN] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_sin},
    [HT_OP_COS] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_cos},
    [HT_OP_TAN] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_tan},
    [HT_OP_ARCSIN] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_arcsin},
    [HT_OP_ARCCOS] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_arccos},
    [HT_OP_ARCTAN] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_arctan},
    [HT_OP_SINH] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_sinh},
    [HT_OP_COSH] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_cosh},
    [HT_OP_TANH] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_tanh},
    [HT_OP_ERF] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_erf},
    [HT_OP_ERFINV] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_erfinv},
    [HT_OP_SIGMOID] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_sigmoid, .compose = ht_compose_sigmoid},
    [HT_OP_SILU] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_silu, .compose = ht_compose_silu},
    [HT_OP_GELU] = {.shape = ht_shape_float, .in_place = true, .vjp = ht_vjp_gelu, .compose = ht_compose_gelu},
    [HT_OP_GELU_TANH] = {.shape = ht_shape_float,
                         .in_place = true,
                         .vjp = ht_vjp_gelu_tanh,
                         .compose = ht_compose_gelu_tanh},
    [HT_OP_IS_NAN] = {.shape = ht_shape_test, .vjp = ht_vjp_none},
    [HT_OP_IS_INF] = {.shape = ht_shape_test, .vjp = ht_vjp_none, .compose = ht_compose_is_inf},
    [HT_OP_IS_FINITE] = {.shape = ht_shape_test, .vjp = ht_vjp_none, .compose = ht_compose_is_finite},
    [HT_OP_LOGICAL_NOT] = {.shape = ht_shape_test, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_ADD] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_add},
    [HT_OP_SUBTRACT] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_subtract},
    [HT_OP_MULTIPLY] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_multiply},
    [HT_OP_DIVIDE] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_divide},
    [HT_OP_FLOOR_DIVIDE] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_REMAINDER] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_remainder},
    [HT_OP_POWER] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_power},
    [HT_OP_LOGADDEXP] = {.shape = ht_shape_binary,
                         .in_place = true,
                         .vjp = ht_vjp_logaddexp,
                         .compose = ht_compose_logaddexp},
    [HT_OP_ARCTAN2] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_arctan2},
    [HT_OP_MINIMUM] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_minimum},
    [HT_OP_MAXIMUM] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_maximum},
    [HT_OP_BITWISE_AND] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_BITWISE_OR] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_BITWISE_XOR] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_LEFT_SHIFT] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_RIGHT_SHIFT] = {.shape = ht_shape_binary, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_EQUAL] = {.shape = ht_shape_compare, .vjp = ht_vjp_none},
    [HT_OP_NOT_EQUAL] = {.shape = ht_shape_compare, .vjp = ht_vjp_none},
    [HT_OP_LESS] = {.shape = ht_shape_compare, .vjp = ht_vjp_none},
    [HT_OP_LESS_EQUAL] = {.shape = ht_shape_compare, .vjp = ht_vjp_none},
    [HT_OP_LOGICAL_AND] = {.shape = ht_shape_compare, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_LOGICAL_OR] = {.shape = ht_shape_compare, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_WHERE] = {.shape = ht_shape_where, .vjp = ht_vjp_where},
    [HT_OP_SCALE] = {.shape = ht_shape_float,
                     .params_bytes = sizeof(ht_scale_params),
                     .in_place = true,
                     .vjp = ht_vjp_scale,
                     .compose = ht_compose_scale},
    [HT_OP_SOFTCAP] = {.shape = ht_shape_float,
                       .params_bytes = sizeof(ht_scale_params),
                       .in_place = true,
                       .vjp = ht_vjp_softcap,
                       .compose = ht_compose_softcap},
    [HT_OP_DRAWN] = {.shape = ht_shape_float,
                     .params_bytes = sizeof(ht_drawn_params),
                     .in_place = true,
                     .vjp = ht_vjp_drawn},
    [HT_OP_SUM] = {.shape = ht_shape_sum, .vjp = ht_vjp_sum},
    [HT_OP_PROD] = {.shape = ht_shape_sum, .vjp = ht_vjp_prod},
    [HT_OP_MEAN] = {.shape = ht_shape_extreme, .vjp = ht_vjp_mean, .compose = ht_compose_mean},
    [HT_OP_MAX] = {.shape = ht_shape_extreme, .vjp = ht_vjp_extreme},
    [HT_OP_MIN] = {.shape = ht_shape_extreme, .vjp = ht_vjp_extreme},
    [HT_OP_ARGMAX] = {.shape = ht_shape_argextreme, .vjp = ht_vjp_none, .compose = ht_compose_argmax},
    [HT_OP_ARGMIN] = {.shape = ht_shape_argextreme, .vjp = ht_vjp_none, .compose = ht_compose_argmin},
    [HT_OP_VAR] = {.shape = ht_shape_extreme,
                   .params_bytes = sizeof(ht_var_params),
                   .vjp = ht_vjp_var,
                   .compose = ht_compose_var},
    [HT_OP_LOGSUMEXP] = {.shape = ht_shape_extreme, .vjp = ht_vjp_logsumexp, .compose = ht_compose_logsumexp},
    [HT_OP_SOFTMAX] = {.shape = ht_shape_softmax,
                       .params_bytes = sizeof(ht_along_params),
                       .vjp = ht_vjp_softmax,
                       .compose = ht_compose_softmax},
    [HT_OP_CUMSUM] = {.shape = ht_shape_scan, .params_bytes = sizeof(ht_scan_params), .vjp = ht_vjp_cumsum},
    [HT_OP_CUMPROD] = {.shape = ht_shape_scan, .params_bytes = sizeof(ht_scan_params), .vjp = ht_vjp_cumprod},
    [HT_OP_CUMMAX] = {.shape = ht_shape_scan, .params_bytes = sizeof(ht_scan_params), .vjp = ht_vjp_running_extreme},
    [HT_OP_CUMMIN] = {.shape = ht_shape_scan, .params_bytes = sizeof(ht_scan_params), .vjp = ht_vjp_running_extreme},
    [HT_OP_LOGCUMSUMEXP] = {.shape = ht_shape_scan,
                            .params_bytes = sizeof(ht_scan_params),
                            .vjp = ht_vjp_logcumsumexp,
                            .compose = ht_compose_logcumsumexp},
    [HT_OP_STRIDED_ADD] = {.shape = ht_shape_strided_add,
                           .params_bytes = sizeof(ht_strided_add_params),
                           .vjp = ht_vjp_strided_add,
                           .compose = ht_compose_strided_add},
    [HT_OP_RECURRENCE] = {.shape = ht_shape_recurrence,
                          .params_bytes = sizeof(ht_recurrence_params),
                          .vjp = ht_vjp_recurrence},
    [HT_OP_CONCATENATE] = {.shape = ht_shape_concatenate,
                           .params_bytes = sizeof(ht_axis_params),
                           .vjp = ht_vjp_concatenate},
    [HT_OP_TAKE] = {.shape = ht_shape_take,
                    .params_bytes = sizeof(ht_axis_params),
                    .vjp = ht_vjp_take,
                    .compose = ht_compose_take},
    [HT_OP_GATHER] = {.shape = ht_shape_gather, .params_bytes = sizeof(ht_gather_params), .vjp = ht_vjp_gather},
    [HT_OP_SCATTER] = {.shape = ht_shape_scatter,
                       .params_bytes = sizeof(ht_scatter_params),
                       .updates = true,
                       .vjp = ht_vjp_scatter},
    [HT_OP_TAKE_ALONG] = {.shape = ht_shape_take_along,
                          .params_bytes = sizeof(ht_axis_params),
                          .vjp = ht_vjp_take_along,
                          .compose = ht_compose_take_along},
    [HT_OP_PUT_ALONG] = {.shape = ht_shape_put_along,
                         .params_bytes = sizeof(ht_put_along_params),
                         .updates = true,
                         .vjp = ht_vjp_put_along,
                         .compose = ht_compose_put_along},
    [HT_OP_SORT] = {.shape = ht_shape_scan, .vjp = ht_vjp_sort, .compose = ht_compose_sort},
    [HT_OP_ARGSORT] = {.shape = ht_shape_argsort, .vjp = ht_vjp_none},
    [HT_OP_PARTITION] = {.shape = ht_shape_partition,
                         .params_bytes = sizeof(ht_partition_params),
                         .vjp = ht_vjp_partition,
                         .compose = ht_compose_partition},
    [HT_OP_ARGPARTITION] = {.shape = ht_shape_argpartition,
                            .params_bytes = sizeof(ht_partition_params),
                            .vjp = ht_vjp_none,
                            .compose = ht_compose_argpartition},
    [HT_OP_RANDOM_SUMS] = {.shape = ht_shape_scan, .in_place = true, .vjp = ht_vjp_none},
    [HT_OP_RANDOM_BITS] = {.shape = ht_shape_random_bits,
                           .params_bytes = sizeof(ht_random_bits_params),
                           .vjp = ht_vjp_none},
    [HT_OP_SLICE_UPDATE] = {.shape = ht_shape_slice_update,
                            .params_bytes = sizeof(ht_slice_params),
                            .updates = true,
                            .vjp = ht_vjp_slice_update,
                            .compose = ht_compose_slice_update},
    [HT_OP_MATMUL] = {.shape = ht_shape_matmul, .params_bytes = sizeof(ht_matmul_params), .vjp = ht_vjp_matmul},
    [HT_OP_TOP_K] = {.shape = ht_shape_top_k,
                     .params_bytes = sizeof(ht_top_k_params),
                     .vjp = ht_vjp_none,
                     .compose = ht_compose_top_k},
    [HT_OP_RMS_NORM] = {.shape = ht_shape_norm,
                        .params_bytes = sizeof(ht_rms_norm_params),
                        .vjp = ht_vjp_rms_norm,
                        .compose = ht_compose_rms_norm},
    [HT_OP_GATHER_MM] = {.shape = ht_shape_gather_mm, .vjp = ht_vjp_gather_mm, .compose = ht_compose_gather_mm},
    [HT_OP_QUANTIZE] = {.shape = ht_shape_quantize, .params_bytes = sizeof(ht_quantize_params), .vjp = ht_vjp_none},
    [HT_OP_DEQUANTIZE] = {.shape = ht_shape_dequantize,
                          .params_bytes = sizeof(ht_quantize_params),
                          .vjp = ht_vjp_dequantize},
    [HT_OP_QUANTIZED_MATMUL] = {.shape = ht_shape_quantized_matmul,
                                .params_bytes = sizeof(ht_quantize_params),
                                .vjp = ht_vjp_quantized_matmul,
                                .compose = ht_compose_quantized_matmul},
    [HT_OP_LAYER_NORM] = {.shape = ht_shape_norm,
                          .params_bytes = sizeof(ht_layer_norm_params),
                          .vjp = ht_vjp_layer_norm,
                          .compose = ht_compose_layer_norm},
    [HT_OP_RMS_NORM_GRAD] = {.shape = ht_shape_norm_grad,
                             .params_bytes = sizeof(ht_rms_norm_params),
                             .vjp = ht_vjp_rms_norm_grad,
                             .compose = ht_compose_rms_norm_grad},
    [HT_OP_LAYER_NORM_GRAD] = {.shape = ht_shape_norm_grad,
                               .params_bytes = sizeof(ht_layer_norm_params),
                               .vjp = ht_vjp_layer_norm_grad,
                               .compose = ht_compose_layer_norm_grad},
    [HT_OP_SDPA] = {.shape = ht_shape_sdpa,
                    .params_bytes = sizeof(ht_sdpa_params),
                    .vjp = ht_vjp_sdpa,
                    .compose = ht_compose_sdpa},
    [HT_OP_SDPA_GRAD] = {.shape = ht_shape_sdpa_grad,
                         .params_bytes = sizeof(ht_sdpa_params),
                         .vjp = ht_vjp_sdpa_grad,
                         .compose = ht_compose_sdpa_grad},
    [HT_OP_ATTEND_ROWS] = {.shape = ht_shape_attend_rows,
                           .params_bytes = sizeof(ht_attend_rows_params),
                           .vjp = ht_vjp_attend_rows,
                           .compose = ht_compose_attend_rows},
    [HT_OP_ATTEND_ROWS_GRAD] = {.shape = ht_shape_attend_rows_grad,
                                .params_bytes = sizeof(ht_attend_rows_params),
                                .compose = ht_compose_attend_rows_grad},
    [HT_OP_ROPE] = {.shape = ht_shape_rope,
                    .params_bytes = sizeof(ht_rope_params),
                    .vjp = ht_vjp_rope,
                    .compose = ht_compose_rope},
    [HT_OP_LINEAR] = {.shape = ht_shape_linear,
                      .params_bytes = sizeof(ht_linear_params),
                      .vjp = ht_vjp_linear,
                      .compose = ht_compose_linear},
    [HT_OP_LINEAR_BACK] = {.shape = ht_shape_linear_back,
                           .params_bytes = sizeof(ht_linear_params),
                           .vjp = ht_vjp_linear_back,
                           .compose = ht_compose_linear_back},
    [HT_OP_HEAD_LOSS] = {.shape = ht_shape_head_loss,
                         .params_bytes = sizeof(ht_head_loss_params),
                         .vjp = ht_vjp_head_loss,
                         .compose = ht_compose_head_loss},
    [HT_OP_HEAD_LOSS_GRAD] = {.shape = ht_shape_head_loss_grad,
                              .params_bytes = sizeof(ht_head_loss_params),
                              .compose = ht_compose_head_loss_grad},
    [HT_OP_EMBED] = {.shape = ht_shape_embed, .params_bytes = sizeof(ht_linear_params)},
    [HT_OP_LINEAR_GATHER] = {.shape = ht_shape_linear_gather,
                             .params_bytes = sizeof(ht_linear_gather_params),
                             .vjp = ht_vjp_linear_gather,
                             .compose = ht_compose_linear_gather},
    [HT_OP_LINEAR_GATHER_BACK] = {.shape = ht_shape_linear_gather_back,
                                  .params_bytes = sizeof(ht_linear_gather_params),
                                  .vjp = ht_vjp_linear_gather_back,
                                  .compose = ht_compose_linear_gather_back},
    [HT_OP_ATTEND] = {.shape = ht_shape_attend, .params_bytes = sizeof(ht_attend_params), .effect = true},
    [HT_OP_LORA] = {.shape = ht_shape_lora, .params_bytes = sizeof(ht_lora_params), .updates = true},
};

_Static_assert(sizeof(ht_make_params) <= HT_MAX_PARAMS, "parameters fit a node");
_Static_assert(sizeof(ht_strided_add_params) <= HT_MAX_PARAMS, "parameters fit a node");
_Static_assert(sizeof(ht_slice_params) <= HT_MAX_PARAMS, "parameters fit a node");
_Static_assert(sizeof(ht_gather_params) <= HT_MAX_PARAMS, "parameters fit a node");
_Static_assert(sizeof(ht_rope_params) <= HT_MAX_PARAMS, "parameters fit a node");

const ht_op_info *ht_op_info_of(ht_op_id op) { return &table[op]; }

const char *ht_op_name(ht_op_id op) {
    static const char *const names[HT_OP_COUNT] = {
#define NAME(id, name) [HT_OP_##id] = #name,
        HT_OP_LIST(NAME)
#undef NAME
    };
    return names[op];
}

/* ---- recording: replayed nodes get their sizes from the shape rule ---- */

typedef struct apply_args {
    ht_op_id op;
    _Alignas(8) unsigned char params[HT_MAX_PARAMS];
} apply_args;

static bool apply_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    const apply_args *a = args;
    out[0] = ht_apply(s, a->op, a->params, in, n_in);
    return out[0] != NULL;
}

static ht_array *record_apply(ht_scope *s, ht_op_id op, const void *params, ht_array *const *in, int n_in) {
    apply_args a = {.op = op};
    if (table[op].params_bytes) memcpy(a.params, params, table[op].params_bytes);
    return ht_record_one(s, apply_again, &a, sizeof a, in, n_in);
}

/* ---- application ---- */

/* The composition, row-contiguous as a kernel's result. Its nodes are made in a scope of their own, which lets go of those
 * that the result does not need: the evaluator would keep what they read. */
static ht_array *compose(ht_scope *s, ht_op_id op, const ht_result_type *type, const void *params, ht_array *const *in,
                         int n_in) {
    ht_scope *inner = ht_scope_child(s);
    if (!inner) return NULL;
    ht_array *y = ht_contiguous(inner, table[op].compose(inner, params, in, n_in));
    bool same = y && y->dtype == type->dtype && y->n_dims == type->n_dims;
    for (int i = 0; same && i < y->n_dims; i++) same = y->shape[i] == type->shape[i];
    if (y && !same)
        ht_scope_fail(inner, HT_ERR_INTERNAL, "%s: its composition has another dtype or shape", ht_op_name(op));
    return ht_scope_give(s, inner, same, &y, 1) ? y : NULL;
}

ht_array *ht_apply(ht_scope *s, ht_op_id op, const void *params, ht_array *const *in, int n_in) {
    if (ht_recording()) return record_apply(s, op, params, in, n_in);
    for (int i = 0; i < n_in; i++)
        if (!in[i]) return NULL;
    const ht_op_info *info = &table[op];
    ht_result_type type = {0};
    ht_error err;
    int64_t size;
    if (info->shape(ht_op_name(op), in, n_in, params, &type, &err)) return ht_scope_fail_with(s, &err);
    char text[HT_SHAPE_TEXT];
    if (!ht_shape_size(type.shape, type.n_dims, &size) || size > INT64_MAX / 16)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: the result's shape %s is negative or too large", ht_op_name(op),
                             ht_shape_text(type.shape, type.n_dims, text));
    if (info->compose && !s->stream->device->kernels[op].run) return compose(s, op, &type, params, in, n_in);
    ht_array *a = ht_array_new(s, op, in, n_in);
    if (!a) return NULL;
    ht_array_set_contiguous(a, type.dtype, type.shape, type.n_dims);
    if (info->params_bytes) memcpy(a->params, params, info->params_bytes);
    return a;
}
