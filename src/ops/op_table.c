/* Operation table, and ht_apply, which creates nodes and composes operations for which the device has no kernel. */
#include "array/op.h"
#include "array/replay.h"
#include "array/user_function.h"
#include "base/error.h"
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <string.h>

/* Fields of a row. */
#define RULES(shape_rule, vjp_rule) .shape = ht_shape_##shape_rule, .vjp = ht_vjp_##vjp_rule
#define PARAMS(name)                .params_bytes = sizeof(ht_##name##_params)
#define COMPOSED(name)              .compose = ht_compose_##name
#define IN_PLACE                    .in_place = true

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
    [HT_OP_COPY] = {RULES(copy, copy)},
    [HT_OP_CAST] = {RULES(cast, cast), PARAMS(make)},
    [HT_OP_FULL] = {RULES(full, none), PARAMS(make)},
    [HT_OP_ARANGE] = {RULES(full, none), PARAMS(make)},
    [HT_OP_NEGATIVE] = {RULES(same, negative), IN_PLACE},
    [HT_OP_ABS] = {RULES(same, abs), IN_PLACE},
    [HT_OP_SIGN] = {RULES(same, none), IN_PLACE, COMPOSED(sign)},
    [HT_OP_SQUARE] = {RULES(same, square), IN_PLACE, COMPOSED(square)},
    [HT_OP_FLOOR] = {RULES(same, none), IN_PLACE},
    [HT_OP_CEIL] = {RULES(same, none), IN_PLACE},
    [HT_OP_ROUND] = {RULES(same, none), IN_PLACE},
    [HT_OP_NAN_TO_NUM] = {RULES(same, nan_to_num), PARAMS(nan_to_num), IN_PLACE, COMPOSED(nan_to_num)},
    [HT_OP_BITWISE_INVERT] = {RULES(same, none), IN_PLACE},
    [HT_OP_SQRT] = {RULES(float, sqrt), IN_PLACE},
    [HT_OP_RSQRT] = {RULES(float, rsqrt), IN_PLACE, COMPOSED(rsqrt)},
    [HT_OP_RECIPROCAL] = {RULES(float, reciprocal), IN_PLACE, COMPOSED(reciprocal)},
    [HT_OP_EXP] = {RULES(float, exp), IN_PLACE},
    [HT_OP_EXPM1] = {RULES(float, expm1), IN_PLACE},
    [HT_OP_LOG] = {RULES(float, log), IN_PLACE},
    [HT_OP_LOG2] = {RULES(float, log2), IN_PLACE},
    [HT_OP_LOG10] = {RULES(float, log10), IN_PLACE},
    [HT_OP_LOG1P] = {RULES(float, log1p), IN_PLACE},
    [HT_OP_SIN] = {RULES(float, sin), IN_PLACE},
    [HT_OP_COS] = {RULES(float, cos), IN_PLACE},
    [HT_OP_TAN] = {RULES(float, tan), IN_PLACE},
    [HT_OP_ARCSIN] = {RULES(float, arcsin), IN_PLACE},
    [HT_OP_ARCCOS] = {RULES(float, arccos), IN_PLACE},
    [HT_OP_ARCTAN] = {RULES(float, arctan), IN_PLACE},
    [HT_OP_SINH] = {RULES(float, sinh), IN_PLACE},
    [HT_OP_COSH] = {RULES(float, cosh), IN_PLACE},
    [HT_OP_TANH] = {RULES(float, tanh), IN_PLACE},
    [HT_OP_ERF] = {RULES(float, erf), IN_PLACE},
    [HT_OP_ERFINV] = {RULES(float, erfinv), IN_PLACE},
    [HT_OP_SIGMOID] = {RULES(float, sigmoid), IN_PLACE, COMPOSED(sigmoid)},
    [HT_OP_SILU] = {RULES(float, silu), IN_PLACE, COMPOSED(silu)},
    [HT_OP_GELU] = {RULES(float, gelu), IN_PLACE, COMPOSED(gelu)},
    [HT_OP_GELU_TANH] = {RULES(float, gelu_tanh), IN_PLACE, COMPOSED(gelu_tanh)},
    [HT_OP_IS_NAN] = {RULES(test, none)},
    [HT_OP_IS_INF] = {RULES(test, none), COMPOSED(is_inf)},
    [HT_OP_IS_FINITE] = {RULES(test, none), COMPOSED(is_finite)},
    [HT_OP_LOGICAL_NOT] = {RULES(test, none), IN_PLACE},
    [HT_OP_ADD] = {RULES(binary, add), IN_PLACE},
    [HT_OP_SUBTRACT] = {RULES(binary, subtract), IN_PLACE},
    [HT_OP_MULTIPLY] = {RULES(binary, multiply), IN_PLACE},
    [HT_OP_DIVIDE] = {RULES(binary, divide), IN_PLACE},
    [HT_OP_FLOOR_DIVIDE] = {RULES(binary, none), IN_PLACE},
    [HT_OP_REMAINDER] = {RULES(binary, remainder), IN_PLACE},
    [HT_OP_POWER] = {RULES(binary, power), IN_PLACE},
    [HT_OP_LOGADDEXP] = {RULES(binary, logaddexp), IN_PLACE, COMPOSED(logaddexp)},
    [HT_OP_ARCTAN2] = {RULES(binary, arctan2), IN_PLACE},
    [HT_OP_MINIMUM] = {RULES(binary, minimum), IN_PLACE},
    [HT_OP_MAXIMUM] = {RULES(binary, maximum), IN_PLACE},
    [HT_OP_BITWISE_AND] = {RULES(binary, none), IN_PLACE},
    [HT_OP_BITWISE_OR] = {RULES(binary, none), IN_PLACE},
    [HT_OP_BITWISE_XOR] = {RULES(binary, none), IN_PLACE},
    [HT_OP_LEFT_SHIFT] = {RULES(binary, none), IN_PLACE},
    [HT_OP_RIGHT_SHIFT] = {RULES(binary, none), IN_PLACE},
    [HT_OP_EQUAL] = {RULES(compare, none)},
    [HT_OP_NOT_EQUAL] = {RULES(compare, none)},
    [HT_OP_LESS] = {RULES(compare, none)},
    [HT_OP_LESS_EQUAL] = {RULES(compare, none)},
    [HT_OP_LOGICAL_AND] = {RULES(compare, none), IN_PLACE},
    [HT_OP_LOGICAL_OR] = {RULES(compare, none), IN_PLACE},
    [HT_OP_WHERE] = {RULES(where, where)},
    [HT_OP_SCALE] = {RULES(float, scale), PARAMS(scale), IN_PLACE, COMPOSED(scale)},
    [HT_OP_SOFTCAP] = {RULES(float, softcap), PARAMS(scale), IN_PLACE, COMPOSED(softcap)},
    [HT_OP_DRAWN] = {RULES(float, drawn), PARAMS(drawn), IN_PLACE},
    [HT_OP_SUM] = {RULES(sum, sum)},
    [HT_OP_PROD] = {RULES(sum, prod)},
    [HT_OP_MEAN] = {RULES(extreme, mean), COMPOSED(mean)},
    [HT_OP_MAX] = {RULES(extreme, extreme)},
    [HT_OP_MIN] = {RULES(extreme, extreme)},
    [HT_OP_ARGMAX] = {RULES(argextreme, none), COMPOSED(argmax)},
    [HT_OP_ARGMIN] = {RULES(argextreme, none), COMPOSED(argmin)},
    [HT_OP_VAR] = {RULES(extreme, var), PARAMS(var), COMPOSED(var)},
    [HT_OP_LOGSUMEXP] = {RULES(extreme, logsumexp), COMPOSED(logsumexp)},
    [HT_OP_SOFTMAX] = {RULES(softmax, softmax), PARAMS(along), COMPOSED(softmax)},
    [HT_OP_CUMSUM] = {RULES(scan, cumsum), PARAMS(scan)},
    [HT_OP_CUMPROD] = {RULES(scan, cumprod), PARAMS(scan)},
    [HT_OP_CUMMAX] = {RULES(scan, running_extreme), PARAMS(scan)},
    [HT_OP_CUMMIN] = {RULES(scan, running_extreme), PARAMS(scan)},
    [HT_OP_LOGCUMSUMEXP] = {RULES(scan, logcumsumexp), PARAMS(scan), COMPOSED(logcumsumexp)},
    [HT_OP_STRIDED_ADD] = {RULES(strided_add, strided_add), PARAMS(strided_add), COMPOSED(strided_add)},
    [HT_OP_RECURRENCE] = {RULES(recurrence, recurrence), PARAMS(recurrence)},
    [HT_OP_CONCATENATE] = {RULES(concatenate, concatenate), PARAMS(axis)},
    [HT_OP_TAKE] = {RULES(take, take), PARAMS(axis), COMPOSED(take)},
    [HT_OP_GATHER] = {RULES(gather, gather), PARAMS(gather)},
    [HT_OP_SCATTER] = {RULES(scatter, scatter), PARAMS(scatter), .updates = true},
    [HT_OP_TAKE_ALONG] = {RULES(take_along, take_along), PARAMS(axis), COMPOSED(take_along)},
    [HT_OP_PUT_ALONG] = {RULES(put_along, put_along), PARAMS(put_along), .updates = true, COMPOSED(put_along)},
    [HT_OP_SORT] = {RULES(scan, sort), COMPOSED(sort)},
    [HT_OP_ARGSORT] = {RULES(argsort, none)},
    [HT_OP_PARTITION] = {RULES(partition, partition), PARAMS(partition), COMPOSED(partition)},
    [HT_OP_ARGPARTITION] = {RULES(argpartition, none), PARAMS(partition), COMPOSED(argpartition)},
    [HT_OP_RANDOM_SUMS] = {RULES(scan, none), IN_PLACE},
    [HT_OP_RANDOM_BITS] = {RULES(random_bits, none), PARAMS(random_bits)},
    [HT_OP_SLICE_UPDATE] = {RULES(slice_update, slice_update), PARAMS(slice), .updates = true, COMPOSED(slice_update)},
    [HT_OP_MATMUL] = {RULES(matmul, matmul), PARAMS(matmul)},
    [HT_OP_TOP_K] = {RULES(top_k, none), PARAMS(top_k), COMPOSED(top_k)},
    [HT_OP_RMS_NORM] = {RULES(norm, rms_norm), PARAMS(rms_norm), COMPOSED(rms_norm)},
    [HT_OP_GATHER_MM] = {RULES(gather_mm, gather_mm), COMPOSED(gather_mm)},
    [HT_OP_QUANTIZE] = {RULES(quantize, none), PARAMS(quantize)},
    [HT_OP_DEQUANTIZE] = {RULES(dequantize, dequantize), PARAMS(quantize)},
    [HT_OP_QUANTIZED_MATMUL] = {RULES(quantized_matmul, quantized_matmul), PARAMS(quantize),
                                COMPOSED(quantized_matmul)},
    [HT_OP_LAYER_NORM] = {RULES(norm, layer_norm), PARAMS(layer_norm), COMPOSED(layer_norm)},
    [HT_OP_RMS_NORM_GRAD] = {RULES(norm_grad, rms_norm_grad), PARAMS(rms_norm), COMPOSED(rms_norm_grad)},
    [HT_OP_LAYER_NORM_GRAD] = {RULES(norm_grad, layer_norm_grad), PARAMS(layer_norm), COMPOSED(layer_norm_grad)},
    [HT_OP_SDPA] = {RULES(sdpa, sdpa), PARAMS(sdpa), COMPOSED(sdpa)},
    [HT_OP_SDPA_GRAD] = {RULES(sdpa_grad, sdpa_grad), PARAMS(sdpa), COMPOSED(sdpa_grad)},
    [HT_OP_ATTEND_ROWS] = {RULES(attend_rows, attend_rows), PARAMS(attend_rows), COMPOSED(attend_rows)},
    [HT_OP_ATTEND_ROWS_GRAD] = {.shape = ht_shape_attend_rows_grad, PARAMS(attend_rows), COMPOSED(attend_rows_grad)},
    [HT_OP_ROPE] = {RULES(rope, rope), PARAMS(rope), COMPOSED(rope)},
    [HT_OP_LINEAR] = {RULES(linear, linear), PARAMS(linear), COMPOSED(linear)},
    [HT_OP_LINEAR_BACK] = {RULES(linear_back, linear_back), PARAMS(linear), COMPOSED(linear_back)},
    [HT_OP_HEAD_LOSS] = {RULES(head_loss, head_loss), PARAMS(head_loss), COMPOSED(head_loss)},
    [HT_OP_HEAD_LOSS_GRAD] = {.shape = ht_shape_head_loss_grad, PARAMS(head_loss), COMPOSED(head_loss_grad)},
    [HT_OP_EMBED] = {.shape = ht_shape_embed, PARAMS(linear)},
    [HT_OP_LINEAR_GATHER] = {RULES(linear_gather, linear_gather), PARAMS(linear_gather), COMPOSED(linear_gather)},
    [HT_OP_LINEAR_GATHER_BACK] = {RULES(linear_gather_back, linear_gather_back), PARAMS(linear_gather),
                                  COMPOSED(linear_gather_back)},
    [HT_OP_ATTEND] = {.shape = ht_shape_attend, PARAMS(attend), .effect = true},
    [HT_OP_SHORT_CONV] = {.shape = ht_shape_short_conv, PARAMS(short_conv), .effect = true},
    [HT_OP_STATE_SCAN] = {.shape = ht_shape_state_scan, PARAMS(state_scan), .effect = true},
    [HT_OP_STATE_SCAN_ROWS] = {RULES(state_scan_rows, state_scan_rows), PARAMS(state_scan)},
    [HT_OP_STATE_SCAN_ROWS_GRAD] = {.shape = ht_shape_state_scan_rows_grad, PARAMS(state_scan)},
    [HT_OP_LORA] = {.shape = ht_shape_lora, PARAMS(lora), .updates = true},
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

/* The composition, row-contiguous as a kernel's result. A child scope frees nodes that the result does not need;
 * otherwise the evaluator would keep their inputs. */
static ht_array *compose(ht_scope *s, ht_op_id op, const ht_result_type *type, const void *params,
                         ht_array *const *in) {
    ht_scope *inner = ht_scope_child(s);
    if (!inner) return NULL;
    ht_array *y = ht_contiguous(inner, table[op].compose(inner, params, in));
    bool same = y && y->dtype == type->dtype && y->n_dims == type->n_dims;
    same = same && ht_shape_begins(y, type->shape, type->n_dims);
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
    if (info->shape(&(ht_op_call){ht_op_name(op), in, n_in, params}, &type, &err)) return ht_scope_fail_with(s, &err);
    char text[HT_SHAPE_TEXT];
    if (!ht_shape_size(type.shape, type.n_dims, &size) || size > INT64_MAX / 16)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: the result's shape %s is negative or too large", ht_op_name(op),
                             ht_shape_text(type.shape, type.n_dims, text));
    if (info->compose && !s->stream->device->kernels[op].run) return compose(s, op, &type, params, in);
    ht_array *a = ht_array_new(s, op, in, n_in);
    if (!a) return NULL;
    ht_array_set_contiguous(a, type.dtype, type.shape, type.n_dims);
    if (info->params_bytes) memcpy(a->params, params, info->params_bytes);
    return a;
}
