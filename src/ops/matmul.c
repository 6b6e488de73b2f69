/* Matrix products of arrays, of packed weights and of selected experts, adapters, and embedding lookups. */
#include "array/op.h"
#include "base/error.h"
#include "ops/gradient.h"
#include "ops/replay_arguments.h"

#include <hearth/ops.h>

#include <string.h>

ht_status ht_shape_matmul(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *a = c->in[0], *b = c->in[1];
    bool transposed = ((const ht_matmul_params *)c->params)->transpose_b;
    char ta[HT_SHAPE_TEXT], tb[HT_SHAPE_TEXT];
    bool ok = a->n_dims >= 2 && b->n_dims == a->n_dims;
    int n = a->n_dims;
    for (int i = 0; ok && i < n - 2; i++) ok = a->shape[i] == b->shape[i];
    ok = ok && a->shape[n - 1] == b->shape[transposed ? n - 1 : n - 2];
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %s by %s%s do not multiply", c->op, ht_shape_text(a->shape, n, ta),
                       ht_shape_text(b->shape, b->n_dims, tb), transposed ? " transposed" : "");
    if (a->dtype != b->dtype || !ht_dtype_is_float(a->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: operands are %s and %s, expected one floating-point dtype", c->op,
                       ht_dtype_name(a->dtype), ht_dtype_name(b->dtype));
    ht_result_like(a, a->dtype, out);
    out->shape[n - 1] = b->shape[transposed ? n - 2 : n - 1];
    return HT_OK;
}

/* Broadcasts the leading axes of x to those of `shape`, keeping its last two. */
static ht_array *broadcast_batch(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims) {
    int64_t full[HT_MAX_DIMS];
    memcpy(full, shape, sizeof full);
    for (int i = 1; i <= 2; i++) full[n_dims - i] = x->shape[x->n_dims - i];
    return x->n_dims == n_dims && ht_shape_begins(x, full, n_dims) ? x : ht_broadcast_to(s, x, full, n_dims);
}

/* Broadcasts the leading axes of both operands. */
static void broadcast_both(ht_scope *s, ht_array **a, ht_array **b) {
    ht_array one = **a, other = **b;
    int64_t shape[HT_MAX_DIMS];
    int n_dims;
    for (int i = 1; i <= 2; i++) one.shape[one.n_dims - i] = other.shape[other.n_dims - i] = 1;
    if (!ht_broadcast_shapes(&one, &other, shape, &n_dims)) return;
    *a = broadcast_batch(s, *a, shape, n_dims);
    *b = broadcast_batch(s, *b, shape, n_dims);
}

/* Product with a vector operand: a row on the left, a column on the right; the added axis is removed from the result. */
static ht_array *with_vectors(ht_scope *s, ht_array *a, ht_array *b, bool transpose_b) {
    bool row = a->n_dims == 1, column = b->n_dims == 1;
    if (a->n_dims == 0 || b->n_dims == 0)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "matmul: operands have %d and %d axes, expected at least one",
                             a->n_dims, b->n_dims);
    if (row) a = ht_expand_dims(s, a, 0);
    if (column) b = ht_expand_dims(s, b, transpose_b ? 0 : 1);
    ht_array *y = ht_matmul(s, a, b, transpose_b);
    if (y && column) y = ht_squeeze(s, y, -1);
    return y && row ? ht_squeeze(s, y, column ? -1 : -2) : y;
}

HT_REPLAY(matmul_again, ht_matmul(s, in[0], in[1], a->number[0]))

ht_array *ht_matmul(ht_scope *s, ht_array *a, ht_array *b, bool transpose_b) {
    if (!a || !b) return NULL;
    if (ht_recording())
        return ht_record_plain(s, matmul_again, (ht_plain_args){.number = {transpose_b}}, (ht_array *[]){a, b}, 2);
    if (a->n_dims < 2 || b->n_dims < 2) return with_vectors(s, a, b, transpose_b);
    if (a->dtype != b->dtype) {
        ht_dtype dtype = ht_dtype_promote(a->dtype, b->dtype);
        a = ht_astype(s, a, dtype);
        b = ht_astype(s, b, dtype);
        if (!a || !b) return NULL;
    }
    broadcast_both(s, &a, &b);
    const ht_matmul_params p = {transpose_b};
    return ht_apply(s, HT_OP_MATMUL, &p, (ht_array *[]){a, b}, 2);
}

ht_status ht_shape_linear(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_matrix *m = ((const ht_linear_params *)c->params)->matrix;
    const ht_array *x = c->in[0], *bias = c->in[1];
    char text[HT_SHAPE_TEXT];
    if (x->dtype != HT_F32 || x->n_dims < 1 || x->shape[x->n_dims - 1] != m->k)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: activations are %s of %s, the weight [%lld, %lld] needs f32 [..., %lld]", c->op,
                       ht_shape_text(x->shape, x->n_dims, text), ht_dtype_name(x->dtype), (long long)m->n_rows,
                       (long long)m->k, (long long)m->k);
    if (bias != HT_NONE && (bias->dtype != HT_F32 || bias->n_dims != 1 || bias->shape[0] != m->n_rows))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the bias is %s of %s, the weight needs f32 [%lld]", c->op,
                       ht_shape_text(bias->shape, bias->n_dims, text), ht_dtype_name(bias->dtype),
                       (long long)m->n_rows);
    ht_result_like(x, HT_F32, out);
    out->shape[x->n_dims - 1] = m->n_rows;
    return HT_OK;
}

ht_status ht_shape_linear_back(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_matrix *m = ((const ht_linear_params *)c->params)->matrix;
    const ht_array *dy = c->in[0];
    char text[HT_SHAPE_TEXT];
    if (dy->dtype != HT_F32 || dy->n_dims < 1 || dy->shape[dy->n_dims - 1] != m->n_rows)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: gradients are %s of %s, the weight [%lld, %lld] needs f32 [..., %lld]", c->op,
                       ht_shape_text(dy->shape, dy->n_dims, text), ht_dtype_name(dy->dtype), (long long)m->n_rows,
                       (long long)m->k, (long long)m->n_rows);
    ht_result_like(dy, HT_F32, out);
    out->shape[dy->n_dims - 1] = m->k;
    return HT_OK;
}

void ht_vjp_linear(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_apply(s, HT_OP_LINEAR_BACK, node->params, &grad, 1);
    if (node->in[1] == HT_NONE) return;
    int axes[HT_MAX_DIMS];
    for (int i = 0; i + 1 < grad->n_dims; i++) axes[i] = i;
    grad_in[1] = grad->n_dims > 1 ? ht_sum(s, grad, axes, grad->n_dims - 1, false) : grad;
}

void ht_vjp_linear_back(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_apply(s, HT_OP_LINEAR, node->params, (ht_array *[]){grad, HT_NONE}, 2);
}

ht_status ht_shape_head_loss(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_matrix *m = ((const ht_head_loss_params *)c->params)->matrix;
    const ht_array *x = c->in[0], *targets = c->in[1];
    char a[HT_SHAPE_TEXT], b[HT_SHAPE_TEXT];
    if (x->dtype != HT_F32 || x->n_dims != 2 || x->shape[1] != m->k || targets->dtype != HT_I32 ||
        targets->n_dims != 1 || targets->shape[0] != x->shape[0])
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: activations are %s of %s and targets %s of %s, expected f32 [T, %lld] and int32 [T]", c->op,
                       ht_shape_text(x->shape, x->n_dims, a), ht_dtype_name(x->dtype),
                       ht_shape_text(targets->shape, targets->n_dims, b), ht_dtype_name(targets->dtype),
                       (long long)m->k);
    *out = (ht_result_type){.dtype = HT_F32, .n_dims = 2, .shape = {2, x->shape[0]}};
    return HT_OK;
}

ht_status ht_shape_head_loss_grad(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    (void)err;
    return ht_result_like(c->in[0], HT_F32, out);
}

/* Gradient through the losses, row 0. Row 1, the log-sum-exps, exists only for this rule. */
void ht_vjp_head_loss(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const int64_t t = node->shape[1];
    ht_array *of_losses = ht_slice(s, grad, (int64_t[]){0, 0}, (int64_t[]){1, t}, NULL);
    of_losses = ht_reshape(s, of_losses, &t, 1);
    ht_array *in[] = {node->in[0], node->in[1], ht_node_output(node), of_losses};
    grad_in[0] = ht_apply(s, HT_OP_HEAD_LOSS_GRAD, node->params, in, 4);
}

static ht_status check_index(const char *op, const ht_array *index, ht_error *err) {
    char text[HT_SHAPE_TEXT];
    if (index->dtype == HT_I32 && index->n_dims == 1) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: the index is %s of %s, expected one axis of i32", op,
                   ht_shape_text(index->shape, index->n_dims, text), ht_dtype_name(index->dtype));
}

ht_status ht_shape_embed(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_index(c->op, c->in[0], err);
    if (st) return st;
    *out = (ht_result_type){HT_F32, 2, {c->in[0]->shape[0], ((const ht_linear_params *)c->params)->matrix->k}};
    return HT_OK;
}

/* ---- products with the selected experts, and adapters of a step ---- */

ht_status ht_shape_linear_gather(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_linear_gather_params *p = c->params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    const ht_array *x = c->in[0], *ids = c->in[1];
    char tx[HT_SHAPE_TEXT], ti[HT_SHAPE_TEXT];
    bool ok = ids->dtype == HT_I32 && ids->n_dims == 2 && x->dtype == HT_F32 && (x->n_dims == 2 || x->n_dims == 3);
    ok = ok && x->shape[0] == ids->shape[0] && x->shape[x->n_dims - 1] == m->k;
    if (ok && x->n_dims == 3) ok = x->shape[1] == ids->shape[1];
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: x %s of %s, experts %s of %s; expected f32 [T, %lld] or [T, m, %lld], and i32 [T, m]",
                       c->op, ht_shape_text(x->shape, x->n_dims, tx), ht_dtype_name(x->dtype),
                       ht_shape_text(ids->shape, ids->n_dims, ti), ht_dtype_name(ids->dtype), (long long)m->k,
                       (long long)m->k);
    *out = (ht_result_type){HT_F32, 3, {ids->shape[0], ids->shape[1], p->n_sets * m->n_rows}};
    return HT_OK;
}

ht_status ht_shape_linear_gather_back(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_linear_gather_params *p = c->params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    const ht_array *dy = c->in[0], *ids = c->in[1];
    char ty[HT_SHAPE_TEXT], ti[HT_SHAPE_TEXT];
    bool ok = ids->dtype == HT_I32 && ids->n_dims == 2 && dy->dtype == HT_F32 && dy->n_dims == 3;
    if (!ok || !ht_shape_begins(dy, ids->shape, 2) || dy->shape[2] != p->n_sets * m->n_rows)
        return ht_fail(
            err, HT_ERR_ARGUMENT, "%s: gradients %s of %s, experts %s of %s; expected f32 [T, m, %lld] and i32 [T, m]",
            c->op, ht_shape_text(dy->shape, dy->n_dims, ty), ht_dtype_name(dy->dtype),
            ht_shape_text(ids->shape, ids->n_dims, ti), ht_dtype_name(ids->dtype), (long long)(p->n_sets * m->n_rows));
    *out = (ht_result_type){HT_F32, 3, {ids->shape[0], ids->shape[1], m->k}};
    return HT_OK;
}

/* Gradient of the rows. A row shared by the m experts of a token gets the sum of their gradients. */
void ht_vjp_linear_gather(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *dx = ht_apply(s, HT_OP_LINEAR_GATHER_BACK, node->params, (ht_array *[]){grad, node->in[1]}, 2);
    grad_in[0] = node->in[0]->n_dims == 3 ? dx : ht_sum(s, dx, (int[]){1}, 1, false);
}

void ht_vjp_linear_gather_back(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_apply(s, HT_OP_LINEAR_GATHER, node->params, (ht_array *[]){grad, node->in[1]}, 2);
}

ht_status ht_shape_lora(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const bool experts = ((const ht_lora_params *)c->params)->n_experts > 0;
    const ht_array *y = c->in[0], *x = c->in[1], *ids = c->in[2];
    const int n_dims = experts ? 3 : 2;
    bool ok = y->dtype == HT_F32 && y->n_dims == n_dims && x->dtype == HT_F32;
    ok = ok && (x->n_dims == 2 || (experts && x->n_dims == 3 && x->shape[1] == y->shape[1]));
    ok = ok && x->shape[0] == y->shape[0] && experts == (ids != HT_NONE);
    if (ok && experts)
        ok = ids->dtype == HT_I32 && ids->n_dims == 2 && ids->shape[0] == y->shape[0] && ids->shape[1] == y->shape[1];
    if (ok) return ht_result_like(y, HT_F32, out);
    char ty[HT_SHAPE_TEXT], tx[HT_SHAPE_TEXT];
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%s: y %s of %s, x %s of %s; expected f32 [T, n] and [T, k], or with the i32 ids of experts [T, m] "
                   "f32 [T, m, n] and [T, k] or [T, m, k]",
                   c->op, ht_shape_text(y->shape, y->n_dims, ty), ht_dtype_name(y->dtype),
                   ht_shape_text(x->shape, x->n_dims, tx), ht_dtype_name(x->dtype));
}

/* ---- reverse rules ---- */

/* Reverse rule of y = a b, or y = a b^T. */

void ht_vjp_matmul(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *a = node->in[0], *b = node->in[1];
    bool transposed = ((const ht_matmul_params *)(const void *)node->params)->transpose_b;
    grad_in[0] = ht_matmul(s, grad, b, !transposed); /* g b^T, or g b */
    if (transposed)
        grad_in[1] = ht_matmul(s, ht_swapaxes(s, grad, -1, -2), a, false); /* g^T a */
    else
        grad_in[1] = ht_matmul(s, ht_swapaxes(s, a, -1, -2), grad, false); /* a^T g */
}
