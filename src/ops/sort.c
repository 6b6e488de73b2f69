/* Sorting, partitioning and top-k along an axis. */
#include "array/op.h"
#include "base/error.h"
#include "ops/gradient.h"
#include "ops/replay_arguments.h"

#include <hearth/index.h>
#include <hearth/ops.h>
#include <hearth/order.h>

#include <string.h>

static ht_status places(const char *op, const ht_array *x, ht_result_type *out, ht_error *err) {
    if (x->n_dims < 1) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis, got a scalar", op);
    if (x->shape[x->n_dims - 1] > UINT32_MAX)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %lld elements along an axis are more than u32 can index", op,
                       (long long)x->shape[x->n_dims - 1]);
    return ht_result_like(x, HT_U32, out);
}

static ht_status check_kth(const char *op, const ht_array *x, const void *params, ht_error *err) {
    const int64_t kth = ((const ht_partition_params *)params)->kth;
    char text[HT_SHAPE_TEXT];
    if (x->n_dims >= 1 && kth >= 0 && kth < x->shape[x->n_dims - 1]) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: there is no place %lld along the axis of %s", op, (long long)kth,
                   ht_shape_text(x->shape, x->n_dims, text));
}

ht_status ht_shape_argsort(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    return places(c->op, c->in[0], out, err);
}

ht_status ht_shape_partition(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_kth(c->op, c->in[0], c->params, err);
    return st ? st : ht_shape_scan(c, out, err);
}

ht_status ht_shape_argpartition(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_kth(c->op, c->in[0], c->params, err);
    return st ? st : places(c->op, c->in[0], out, err);
}

ht_array *ht_sort(ht_scope *s, ht_array *x, int axis) { return ht_apply_along(s, HT_OP_SORT, NULL, x, axis); }
ht_array *ht_argsort(ht_scope *s, ht_array *x, int axis) { return ht_apply_along(s, HT_OP_ARGSORT, NULL, x, axis); }

static ht_array *partition(ht_scope *s, ht_op_id op, ht_array *x, int64_t kth, int axis);
HT_REPLAY(partition_again, partition(s, (ht_op_id)a->number[0], in[0], a->number[1], a->axis[0]))

static ht_array *partition(ht_scope *s, ht_op_id op, ht_array *x, int64_t kth, int axis) {
    int at;
    if (x && ht_recording())
        return ht_record_plain(s, partition_again, (ht_plain_args){.number = {(int64_t)op, kth}, .axis = {axis}}, &x,
                               1);
    if (!x || !ht_find_axis(s, ht_op_name(op), x, axis, &at)) return NULL;
    const ht_partition_params p = {kth < 0 ? kth + x->shape[at] : kth};
    return ht_apply_along(s, op, &p, x, at);
}

ht_array *ht_partition(ht_scope *s, ht_array *x, int64_t kth, int axis) {
    return partition(s, HT_OP_PARTITION, x, kth, axis);
}
ht_array *ht_argpartition(ht_scope *s, ht_array *x, int64_t kth, int axis) {
    return partition(s, HT_OP_ARGPARTITION, x, kth, axis);
}

HT_REPLAY(topk_again, ht_topk(s, in[0], a->number[0], a->axis[0]))

ht_array *ht_topk(ht_scope *s, ht_array *x, int64_t k, int axis) {
    int at;
    if (x && ht_recording())
        return ht_record_plain(s, topk_again, (ht_plain_args){.number = {k}, .axis = {axis}}, &x, 1);
    if (!x || !ht_find_axis(s, "topk", x, axis, &at)) return NULL;
    const int64_t n = x->shape[at];
    if (k < 0 || k > n)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "topk: the %lld largest of %lld elements", (long long)k, (long long)n);
    return ht_axis_part(s, k == 0 || k == n ? x : ht_partition(s, x, n - k, at), at, n - k, n);
}

ht_status ht_shape_top_k(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *x = c->in[0];
    int64_t k = ((const ht_top_k_params *)c->params)->k;
    char text[HT_SHAPE_TEXT];
    if (x->n_dims < 1 || x->dtype != HT_F32 || k < 1 || k > x->shape[x->n_dims - 1])
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %lld of %s of %s, expected 1 to n of f32 [..., n]", c->op,
                       (long long)k, ht_shape_text(x->shape, x->n_dims, text), ht_dtype_name(x->dtype));
    ht_result_like(x, HT_I32, out);
    out->shape[x->n_dims - 1] = k;
    return HT_OK;
}

ht_array *ht_argtopk(ht_scope *s, ht_array *x, int32_t k) {
    const ht_top_k_params p = {k};
    return ht_apply(s, HT_OP_TOP_K, &p, &x, 1);
}

/* ---- reverse rules ---- */

/* The gradient of a sorted element goes to its original position. */

static ht_array *put_back(ht_scope *s, const ht_array *node, ht_array *places, ht_array *grad) {
    return ht_scatter_add_axis(s, ht_zeros(s, node->dtype, node->shape, node->n_dims), places, grad, -1);
}

void ht_vjp_sort(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = put_back(s, node, ht_argsort(s, node->in[0], -1), grad);
}

/* Operand and result are permutations of each other, so their sorted orders match the elements. */
void ht_vjp_partition(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *ordered = ht_take_along_axis(s, grad, ht_argsort(s, ht_node_output(node), -1), -1);
    grad_in[0] = put_back(s, node, ht_argsort(s, node->in[0], -1), ordered);
}
