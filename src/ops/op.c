/* The table of operations, and the one way a node comes into being. */
#include "ops/op.h"

#include "base/error.h"

#include <string.h>

static const ht_op_info table[HT_OP_COUNT] = {
    [HT_OP_LEAF] = {.name = "leaf"},
    [HT_OP_RESHAPE] = {.name = "reshape"},
    [HT_OP_TRANSPOSE] = {.name = "transpose"},
    [HT_OP_AS_STRIDED] = {.name = "as_strided"},
    [HT_OP_SLICE] = {.name = "slice"},
    [HT_OP_BROADCAST] = {.name = "broadcast"},
    [HT_OP_COPY] = {"copy", .shape = ht_shape_copy},
    [HT_OP_CAST] = {"cast", .shape = ht_shape_cast, .params_bytes = sizeof(ht_make_params)},
    [HT_OP_FULL] = {"full", .shape = ht_shape_full, .params_bytes = sizeof(ht_make_params)},
    [HT_OP_ARANGE] = {"arange", .shape = ht_shape_full, .params_bytes = sizeof(ht_make_params)},
    [HT_OP_NEG] = {"neg", .shape = ht_shape_any_unary, .in_place = true},
    [HT_OP_ABS] = {"abs", .shape = ht_shape_any_unary, .in_place = true},
    [HT_OP_SQUARE] = {"square", .shape = ht_shape_any_unary, .in_place = true},
    [HT_OP_SQRT] = {"sqrt", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_RSQRT] = {"rsqrt", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_EXP] = {"exp", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_LOG] = {"log", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_SIN] = {"sin", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_COS] = {"cos", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_TANH] = {"tanh", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_SIGMOID] = {"sigmoid", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_SILU] = {"silu", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_GELU_TANH] = {"gelu_tanh", .shape = ht_shape_unary, .in_place = true},
    [HT_OP_ADD] = {"add", .shape = ht_shape_binary, .in_place = true},
    [HT_OP_SUB] = {"sub", .shape = ht_shape_binary, .in_place = true},
    [HT_OP_MUL] = {"mul", .shape = ht_shape_binary, .in_place = true},
    [HT_OP_DIV] = {"div", .shape = ht_shape_binary, .in_place = true},
    [HT_OP_MINIMUM] = {"minimum", .shape = ht_shape_binary, .in_place = true},
    [HT_OP_MAXIMUM] = {"maximum", .shape = ht_shape_binary, .in_place = true},
    [HT_OP_SCALE] = {"scale", .shape = ht_shape_unary, .params_bytes = sizeof(ht_scale_params), .in_place = true},
    [HT_OP_SOFTCAP] = {"softcap", .shape = ht_shape_unary, .params_bytes = sizeof(ht_scale_params), .in_place = true},
    [HT_OP_SUM] = {"sum", .shape = ht_shape_reduce},
    [HT_OP_MEAN] = {"mean", .shape = ht_shape_reduce},
    [HT_OP_MAX] = {"max", .shape = ht_shape_reduce},
    [HT_OP_ARGMAX] = {"argmax", .shape = ht_shape_argreduce},
    [HT_OP_SOFTMAX] = {"softmax", .shape = ht_shape_softmax},
    [HT_OP_MATMUL] = {"matmul", .shape = ht_shape_matmul, .params_bytes = sizeof(ht_matmul_params)},
    [HT_OP_TAKE] = {"take", .shape = ht_shape_take},
    [HT_OP_RMS_NORM] = {"rms_norm", .shape = ht_shape_rms_norm, .params_bytes = sizeof(ht_rms_norm_params)},
    [HT_OP_ROPE] = {"rope", .shape = ht_shape_rope, .params_bytes = sizeof(ht_rope_params)},
    [HT_OP_LINEAR] = {"linear", .shape = ht_shape_linear, .params_bytes = sizeof(ht_linear_params)},
    [HT_OP_EMBED] = {"embed", .shape = ht_shape_embed, .params_bytes = sizeof(ht_linear_params)},
    [HT_OP_ATTEND] = {"attend", .shape = ht_shape_attend, .params_bytes = sizeof(ht_attend_params), .effect = true},
};

_Static_assert(sizeof(ht_make_params) <= HT_MAX_PARAMS, "parameters fit a node");
_Static_assert(sizeof(ht_rope_params) <= HT_MAX_PARAMS, "parameters fit a node");

const ht_op_info *ht_op_info_of(ht_op_id op) { return &table[op]; }

ht_array *ht_apply(ht_scope *s, ht_op_id op, const void *params, ht_array *const *in, int n_in) {
    for (int i = 0; i < n_in; i++)
        if (!in[i]) return NULL;
    const ht_op_info *info = &table[op];
    ht_result_type type = {0};
    ht_error err;
    int64_t size;
    if (info->shape(info->name, in, n_in, params, &type, &err)) return ht_scope_fail_with(s, &err);
    char text[HT_SHAPE_TEXT];
    if (!ht_shape_size(type.shape, type.n_dims, &size) || size > INT64_MAX / 16)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: the result's shape %s is negative or too large", info->name,
                             ht_shape_text(type.shape, type.n_dims, text));
    ht_array *a = ht_array_new(s, op, in, n_in);
    if (!a) return NULL;
    ht_array_set_contiguous(a, type.dtype, type.shape, type.n_dims);
    if (info->params_bytes) memcpy(a->params, params, info->params_bytes);
    return a;
}
