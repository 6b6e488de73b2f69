/* Fused transformer operations: normalisation, rotary embedding, attention over KV caches, and their reverse rules. */
#include "array/differentiate.h"
#include "array/op.h"
#include "base/error.h"
#include "ops/compose.h"
#include "ops/gradient.h"
#include "ops/replay_arguments.h"

#include <hearth/fast.h>
#include <hearth/index.h>
#include <hearth/linalg.h>
#include <hearth/ops.h>

#include <string.h>

/* ---- norms ---- */

/* Checks x and its optional weight and bias: one dtype, matching last axis. */
static ht_status check_norm(const char *op, ht_array *const *in, int n_in, ht_error *err) {
    const ht_array *x = in[0];
    char tx[HT_SHAPE_TEXT], tw[HT_SHAPE_TEXT];
    if (x->n_dims < 1 || !ht_dtype_is_float(x->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: x is %s of %s, expected floating point with a last axis", op,
                       ht_shape_text(x->shape, x->n_dims, tx), ht_dtype_name(x->dtype));
    for (int i = 1; i < n_in; i++) {
        const ht_array *w = in[i];
        if (w == HT_NONE || (w->dtype == x->dtype && w->n_dims == 1 && w->shape[0] == x->shape[x->n_dims - 1]))
            continue;
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the %s is %s of %s, x %s needs %s [%lld]", op,
                       i == 1 ? "weight" : "bias", ht_shape_text(w->shape, w->n_dims, tw), ht_dtype_name(w->dtype),
                       ht_shape_text(x->shape, x->n_dims, tx), ht_dtype_name(x->dtype),
                       (long long)x->shape[x->n_dims - 1]);
    }
    return HT_OK;
}

ht_status ht_shape_norm(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_norm(c->op, c->in, c->n_in, err);
    return st ? st : ht_result_like(c->in[0], c->in[0]->dtype, out);
}

/* Operands: those of the norm, then the gradient of its result. */
ht_status ht_shape_norm_grad(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_norm(c->op, c->in, c->n_in - 1, err);
    if (st) return st;
    *out = (ht_result_type){c->in[0]->dtype, 1, {0}};
    for (int i = 0; i < c->n_in - 1; i++)
        if (c->in[i] != HT_NONE) out->shape[0] += ht_array_size(c->in[i]);
    return HT_OK;
}

/* Converts the operands, except HT_NONE, to their promoted floating-point dtype; false when one is NULL. */
static bool promote_all(ht_scope *s, ht_array **in, int n) {
    ht_dtype dtype = HT_BOOL;
    for (int i = 0; i < n; i++) {
        if (!in[i]) return false;
        if (in[i] != HT_NONE) dtype = ht_dtype_promote(dtype, in[i]->dtype);
    }
    dtype = ht_dtype_at_least_float(dtype);
    for (int i = 0; i < n; i++)
        if (in[i] != HT_NONE) in[i] = ht_astype(s, in[i], dtype);
    return true;
}

ht_array *ht_rms_norm(ht_scope *s, ht_array *x, ht_array *weight, float eps, float weight_offset) {
    const ht_rms_norm_params p = {eps, weight_offset};
    ht_array *in[2] = {x, weight};
    return promote_all(s, in, 2) ? ht_apply(s, HT_OP_RMS_NORM, &p, in, 2) : NULL;
}

ht_array *ht_layer_norm(ht_scope *s, ht_array *x, ht_array *weight, ht_array *bias, float eps) {
    const ht_layer_norm_params p = {eps};
    ht_array *in[3] = {x, weight, bias};
    return promote_all(s, in, 3) ? ht_apply(s, HT_OP_LAYER_NORM, &p, in, 3) : NULL;
}

/* ---- rotary embedding ---- */

ht_status ht_shape_rope(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *x = c->in[0], *pos = c->in[1], *factors = c->in[2];
    const ht_rope_params *p = c->params;
    char text[HT_SHAPE_TEXT], rows[HT_SHAPE_TEXT];
    if (x->n_dims < 3 || !ht_dtype_is_float(x->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: x is %s of %s, expected floating point [..., heads, head_dim]", c->op,
                       ht_shape_text(x->shape, x->n_dims, text), ht_dtype_name(x->dtype));
    if (pos->dtype != HT_I32 || pos->n_dims != x->n_dims - 2 || !ht_shape_begins(x, pos->shape, pos->n_dims))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: positions are %s of %s, expected i32 %s", c->op,
                       ht_shape_text(pos->shape, pos->n_dims, text), ht_dtype_name(pos->dtype),
                       ht_shape_text(x->shape, x->n_dims - 2, rows));
    int64_t head_dim = x->shape[x->n_dims - 1];
    if (p->dims < 0 || p->dims % 2 != 0 || p->dims > head_dim)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %d rotated dimensions, expected an even number up to %lld", c->op,
                       (int)p->dims, (long long)head_dim);
    if (factors != HT_NONE && (factors->dtype != HT_F32 || factors->n_dims != 1 || factors->shape[0] != p->dims / 2))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: frequency factors are %s of %s, expected f32 [%d]", c->op,
                       ht_shape_text(factors->shape, factors->n_dims, text), ht_dtype_name(factors->dtype),
                       (int)p->dims / 2);
    return ht_result_like(x, x->dtype, out);
}

ht_array *ht_rope(ht_scope *s, ht_array *x, ht_array *pos, ht_array *freq_factors, const ht_rope_config *how) {
    const ht_rope_params p = {how->theta, how->scale, how->magnitude, how->dims, how->interleaved};
    return ht_apply(s, HT_OP_ROPE, &p, (ht_array *[]){x, pos, freq_factors}, 3);
}

/* Positions [batch, rows]: the offset of the batch entry plus the row index. */
static ht_array *positions(ht_scope *s, ht_array *offset, int64_t batch, int64_t rows) {
    char text[HT_SHAPE_TEXT];
    bool ok = !ht_dtype_is_float(offset->dtype) && offset->dtype != HT_BOOL && offset->n_dims <= 1;
    int64_t n = ht_array_size(offset);
    if (!ok || (n != 1 && n != batch))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "rope: the offset is %s of %s, expected one integer or [%lld]",
                             ht_shape_text(offset->shape, offset->n_dims, text), ht_dtype_name(offset->dtype),
                             (long long)batch);
    ht_array *first = ht_reshape(s, ht_astype(s, offset, HT_I32), (int64_t[]){n, 1}, 2);
    ht_array *pos = ht_add(s, first, ht_arange(s, 0, (double)rows, 1, HT_I32));
    return ht_broadcast_to(s, pos, (int64_t[]){batch, rows}, 2);
}

HT_REPLAY_OF(rope_again, ht_rope_config, ht_rope_rows(s, in[0], in[1], in[2], a))

/* Transposes rows before heads, applies ht_rope, and transposes back. All axes between the first and the last two are
 * heads. */
ht_array *ht_rope_rows(ht_scope *s, ht_array *x, ht_array *offset, ht_array *freq_factors, const ht_rope_config *how) {
    char text[HT_SHAPE_TEXT];
    if (!x || !offset || !freq_factors) return NULL;
    if (ht_recording())
        return ht_record_one(s, rope_again, how, sizeof *how, (ht_array *[]){x, offset, freq_factors}, 3);
    int n = x->n_dims;
    if (n < 3)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "rope: x is %s, expected [batch, ..., rows, head_dim]",
                             ht_shape_text(x->shape, n, text));
    int64_t heads = 1, batch = x->shape[0], rows = x->shape[n - 2];
    for (int i = 1; i < n - 2; i++) heads *= x->shape[i];
    ht_array *pos = positions(s, offset, batch, rows);
    ht_array *y = ht_reshape(s, x, (int64_t[]){batch, heads, rows, x->shape[n - 1]}, 4);
    y = ht_rope(s, ht_swapaxes(s, y, 1, 2), pos, freq_factors, how);
    y = ht_swapaxes(s, y, 1, 2);
    return n == 4 ? y : ht_reshape(s, y, x->shape, n);
}

/* ---- attention ---- */

/* Sinks: one score for each head, or HT_NONE. */
static ht_status check_sinks(const char *op, const ht_array *sinks, int64_t n_heads, ht_error *err) {
    char text[HT_SHAPE_TEXT];
    if (sinks == HT_NONE || (sinks->n_dims == 1 && sinks->shape[0] == n_heads)) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: the sinks are %s, expected one for each of %lld heads", op,
                   ht_shape_text(sinks->shape, sinks->n_dims, text), (long long)n_heads);
}

/* Sinks of an operation of f32. */
static ht_status check_f32_sinks(const char *op, const ht_array *sinks, int64_t n_heads, ht_error *err) {
    if (sinks != HT_NONE && sinks->dtype != HT_F32)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the sinks are %s, expected f32", op, ht_dtype_name(sinks->dtype));
    return check_sinks(op, sinks, n_heads, err);
}

ht_status ht_shape_attend(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *q = c->in[0], *k = c->in[1], *v = c->in[2];
    const int64_t v_dim = ((const ht_attend_params *)c->params)->v_dim;
    char tq[HT_SHAPE_TEXT], tk[HT_SHAPE_TEXT], tv[HT_SHAPE_TEXT];
    bool ok = q->dtype == HT_F32 && q->n_dims == 3 && v_dim <= q->shape[2];
    const int64_t n_values = ok && !v_dim ? q->shape[2] : v_dim;
    if (k == HT_NONE && v == HT_NONE) {
        if (!ok)
            return ht_fail(err, HT_ERR_ARGUMENT, "%s: q %s, expected f32 [T, heads, head_dim]", c->op,
                           ht_shape_text(q->shape, q->n_dims, tq));
        *out = (ht_result_type){HT_F32, 3, {q->shape[0], q->shape[1], n_values}};
        return check_f32_sinks(c->op, c->in[3], q->shape[1], err);
    }
    if (v_dim && v == HT_NONE) v = k;
    if (k == HT_NONE || v == HT_NONE)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: keys and values come together or not at all", c->op);
    ok = ok && k->dtype == HT_F32 && v->dtype == HT_F32 && k->n_dims == 3 && ht_same_shape(k, v);
    ok = ok && q->shape[0] == k->shape[0] && q->shape[2] == k->shape[2];
    ok = ok && k->shape[1] > 0 && q->shape[1] % k->shape[1] == 0;
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: q %s, k %s, v %s; expected f32 [T, heads, head_dim] and twice [T, kv_heads, head_dim] with "
                       "kv_heads dividing heads",
                       c->op, ht_shape_text(q->shape, q->n_dims, tq), ht_shape_text(k->shape, k->n_dims, tk),
                       ht_shape_text(v->shape, v->n_dims, tv));
    *out = (ht_result_type){HT_F32, 3, {q->shape[0], q->shape[1], n_values}};
    return check_f32_sinks(c->op, c->in[3], q->shape[1], err);
}

static ht_status check_shapes(const char *op, ht_array *const *in, ht_error *err) {
    const ht_array *q = in[0], *k = in[1], *v = in[2];
    char tq[HT_SHAPE_TEXT], tk[HT_SHAPE_TEXT], tv[HT_SHAPE_TEXT];
    bool ok = q->n_dims == 4 && k->n_dims == 4 && v->n_dims == 4;
    ok = ok && q->shape[0] == k->shape[0] && q->shape[0] == v->shape[0] && k->shape[1] == v->shape[1];
    ok = ok && k->shape[1] > 0 && q->shape[1] % k->shape[1] == 0;
    ok = ok && q->shape[3] == k->shape[3] && k->shape[2] == v->shape[2];
    if (ok) return HT_OK;
    return ht_fail(
        err, HT_ERR_ARGUMENT,
        "%s: q %s, k %s, v %s; expected [batch, heads, n, d] and twice [batch, kv_heads, m, d] with kv_heads "
        "dividing heads",
        op, ht_shape_text(q->shape, q->n_dims, tq), ht_shape_text(k->shape, k->n_dims, tk),
        ht_shape_text(v->shape, v->n_dims, tv));
}

ht_status ht_shape_sdpa(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = check_shapes(c->op, c->in, err);
    if (st) return st;
    const ht_array *q = c->in[0], *v = c->in[2];
    if (!ht_dtype_is_float(q->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: operands are %s, expected floating point", c->op,
                       ht_dtype_name(q->dtype));
    *out = (ht_result_type){q->dtype, 4, {q->shape[0], q->shape[1], q->shape[2], v->shape[3]}};
    return check_sinks(c->op, c->in[4], q->shape[1], err);
}

ht_status ht_shape_sdpa_grad(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = ht_shape_sdpa(c, out, err);
    if (st) return st;
    *out = (ht_result_type){
        c->in[0]->dtype, 1, {ht_array_size(c->in[0]) + ht_array_size(c->in[1]) + ht_array_size(c->in[2])}};
    return HT_OK;
}

ht_status ht_shape_attend_rows(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *q = c->in[0], *k = c->in[1], *v = c->in[2], *own = c->in[3], *first = c->in[4];
    bool ok = q->n_dims == 3 && k->n_dims == 3 && v->n_dims == 3 && own->n_dims == 1 && first->n_dims == 1;
    for (int i = 0; i < 5; i++) ok = ok && c->in[i]->dtype == (i < 3 ? HT_F32 : HT_I32);
    ok = ok && k->shape[0] == v->shape[0] && k->shape[1] == v->shape[1] && k->shape[2] == q->shape[2];
    ok = ok && k->shape[1] > 0 && q->shape[1] % k->shape[1] == 0;
    ok = ok && own->shape[0] == q->shape[0] && first->shape[0] == q->shape[0];
    ok = ok && (!((const ht_attend_rows_params *)c->params)->two_sided || q->shape[0] == k->shape[0]);
    char tq[HT_SHAPE_TEXT], tk[HT_SHAPE_TEXT], tv[HT_SHAPE_TEXT];
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: q %s, k %s, v %s; expected f32 [n, heads, d] and twice [rows, kv_heads, d] with kv_heads "
                       "dividing heads, and two int32 [n]",
                       c->op, ht_shape_text(q->shape, q->n_dims, tq), ht_shape_text(k->shape, k->n_dims, tk),
                       ht_shape_text(v->shape, v->n_dims, tv));
    *out = (ht_result_type){HT_F32, 3, {q->shape[0], q->shape[1], v->shape[2]}};
    return check_f32_sinks(c->op, c->in[5], q->shape[1], err);
}

ht_status ht_shape_attend_rows_grad(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status st = ht_shape_attend_rows(c, out, err);
    if (st) return st;
    *out = (ht_result_type){HT_F32, 1, {ht_array_size(c->in[0]) + ht_array_size(c->in[1]) + ht_array_size(c->in[2])}};
    return HT_OK;
}

/* Converts a mask or sinks to the dtype of the other operands; a wider dtype is an error. */
static ht_array *narrowed(ht_scope *s, ht_array *x, ht_dtype dtype, const char *what) {
    if (x == HT_NONE || x->dtype == dtype) return x;
    if (ht_dtype_promote(x->dtype, dtype) != dtype)
        return ht_scope_fail(s, HT_ERR_ARGUMENT,
                             "scaled_dot_product_attention: the %s is %s, which does not fit operands of %s", what,
                             ht_dtype_name(x->dtype), ht_dtype_name(dtype));
    return ht_astype(s, x, dtype);
}

HT_REPLAY_OF(attention_again, ht_attention_config,
             ht_scaled_dot_product_attention(s, in[0], in[1], in[2], in[3], in[4], a))

ht_array *ht_scaled_dot_product_attention(ht_scope *s, ht_array *q, ht_array *k, ht_array *v, ht_array *mask,
                                          ht_array *sinks, const ht_attention_config *how) {
    if (!q || !k || !v || !mask || !sinks) return NULL;
    if (ht_recording())
        return ht_record_one(s, attention_again, how, sizeof *how, (ht_array *[]){q, k, v, mask, sinks}, 5);
    if (how->window < 0 || (how->window > 0 && !how->causal))
        return ht_scope_fail(s, HT_ERR_ARGUMENT,
                             "scaled_dot_product_attention: a window of %lld keys, expected 0, or more with causal",
                             (long long)how->window);
    ht_dtype dtype = ht_dtype_at_least_float(ht_dtype_promote(ht_dtype_promote(q->dtype, k->dtype), v->dtype));
    if (mask != HT_NONE && mask->dtype != HT_BOOL) mask = narrowed(s, mask, dtype, "mask");
    sinks = narrowed(s, sinks, dtype, "vector of sinks");
    if (mask && mask != HT_NONE && q->n_dims == 4 && k->n_dims == 4)
        mask = ht_broadcast_to(s, mask, (int64_t[]){q->shape[0], q->shape[1], q->shape[2], k->shape[2]}, 4);
    ht_array *in[5] = {ht_astype(s, q, dtype), ht_astype(s, k, dtype), ht_astype(s, v, dtype), mask, sinks};
    const ht_sdpa_params p = {how->scale, how->causal, how->window};
    return ht_apply(s, HT_OP_SDPA, &p, in, 5);
}

/* ---- reverse rules ---- */

/* Reverse rules of fused operations and of quantised and gathered products. An operation without a rule or a backward
 * kernel is differentiated as its composition (compose.h); so are the backward kernels, for second derivatives. */

static const void *params_of(const ht_array *node) { return node->params; }

/* ---- norms ---- */

void ht_split_gradients(ht_scope *s, ht_array *flat, ht_array *const *in, int n, ht_array **grad_in) {
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        if (in[i] == HT_NONE) continue;
        int64_t end = at + ht_array_size(in[i]);
        grad_in[i] = ht_reshape(s, ht_slice(s, flat, &at, &end, NULL), in[i]->shape, in[i]->n_dims);
        at = end;
    }
}

/* Gradients by the backward kernel, whose operands are those of the node and the gradient. */
static void norm_gradients(ht_scope *s, ht_op_id op, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *in[4];
    memcpy(in, node->in, (size_t)node->n_in * sizeof *in);
    in[node->n_in] = grad;
    ht_split_gradients(s, ht_apply(s, op, node->params, in, node->n_in + 1), in, node->n_in, grad_in);
}

void ht_vjp_rms_norm(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    norm_gradients(s, HT_OP_RMS_NORM_GRAD, node, grad, grad_in);
}

void ht_vjp_layer_norm(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    norm_gradients(s, HT_OP_LAYER_NORM_GRAD, node, grad, grad_in);
}

void ht_vjp_rms_norm_grad(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_vjp_by_composition(s, ht_compose_rms_norm_grad, node, grad, grad_in);
}

void ht_vjp_layer_norm_grad(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_vjp_by_composition(s, ht_compose_layer_norm_grad, node, grad, grad_in);
}

/* ---- rotary embedding: its gradient is the inverse rotation ---- */

void ht_vjp_rope(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_rope_params p;
    memcpy(&p, node->params, sizeof p);
    p.scale = -p.scale;
    grad_in[0] = ht_apply(s, HT_OP_ROPE, &p, (ht_array *[]){grad, node->in[1], node->in[2]}, 3);
}

/* ---- attention ---- */

/* Gradients of operands [first, n) by composition: of an additive mask, which has the size of all scores anyway, and of
 * sinks, which are frozen in most training. */
static void gradients_from(ht_scope *s, ht_compose_fn *compose, const ht_array *node, int first, int n, ht_array *grad,
                           ht_array **grad_in) {
    ht_array *in[6];
    bool any = false, made = true;
    memcpy(in, node->in, (size_t)n * sizeof *in);
    for (int i = first; i < n; i++) any = any || (in[i] != HT_NONE && grad_in[i]);
    if (!any) return; /* the graph of the composition would keep the operands in memory */
    for (int i = first; i < n; i++) made = (in[i] = ht_placeholder(s, in[i])) && made;
    ht_array *y = made ? compose(s, node->params, in) : NULL;
    (void)ht_backward(s, &y, &grad, 1, in + first, n - first, grad_in + first);
}

void ht_vjp_sdpa(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *in[7];
    memcpy(in, node->in, 5 * sizeof *in);
    in[5] = ht_node_output(node);
    in[6] = grad;
    ht_split_gradients(s, ht_apply(s, HT_OP_SDPA_GRAD, node->params, in, 7), in, 3, grad_in);
    gradients_from(s, ht_compose_sdpa, node, 3, 5, grad, grad_in);
}

void ht_vjp_sdpa_grad(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_vjp_by_composition(s, ht_compose_sdpa_grad, node, grad, grad_in);
}

void ht_vjp_attend_rows(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *in[8];
    memcpy(in, node->in, 6 * sizeof *in);
    in[6] = ht_node_output(node);
    in[7] = grad;
    ht_split_gradients(s, ht_apply(s, HT_OP_ATTEND_ROWS_GRAD, node->params, in, 8), in, 3, grad_in);
    gradients_from(s, ht_compose_attend_rows, node, 5, 6, grad, grad_in);
}

/* ---- gathered matrix products ---- */

void ht_vjp_gather_mm(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_vjp_by_composition(s, ht_compose_gather_mm, node, grad, grad_in);
}

/* ---- quantised arrays ---- */

/* Element = scale * number + bias: the scales and biases have gradients. */
void ht_vjp_dequantize(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_quantize_params *p = params_of(node);
    ht_array *scales = node->in[1];
    if (p->how.mode != HT_QUANT_AFFINE) return;
    ht_array *in[3] = {node->in[0], ht_ones(s, scales->dtype, scales->shape, scales->n_dims),
                       ht_zeros(s, scales->dtype, scales->shape, scales->n_dims)};
    const int64_t groups[2] = {-1, p->how.group};
    ht_array *numbers = ht_unflatten(s, ht_apply(s, HT_OP_DEQUANTIZE, p, in, 3), -1, groups, 2);
    ht_array *g = ht_unflatten(s, grad, -1, groups, 2);
    grad_in[1] = ht_astype(s, ht_sum(s, ht_multiply(s, g, numbers), (int[]){-1}, 1, false), scales->dtype);
    grad_in[2] = ht_astype(s, ht_sum(s, g, (int[]){-1}, 1, false), scales->dtype);
}

/* Gradient of the activations: the product with the transposed matrices. */
static ht_array *back_through_weights(ht_scope *s, const ht_array *node, ht_array *grad) {
    ht_quantize_params p;
    memcpy(&p, node->params, sizeof p);
    p.transpose = !p.transpose;
    ht_array *x = node->in[0], *index = node->in[4];
    ht_array *in[6] = {grad, node->in[1], node->in[2], node->in[3], HT_NONE, HT_NONE};
    if (index == HT_NONE) return ht_apply(s, HT_OP_QUANTIZED_MATMUL, &p, in, 6);
    int64_t n = ht_array_size(index), m = x->shape[x->n_dims - 2], k = x->shape[x->n_dims - 1];
    in[4] = ht_reshape(s, ht_arange(s, 0, (double)n, 1, HT_I32), index->shape, index->n_dims);
    in[5] = node->in[5];
    ht_array *each = ht_reshape(s, ht_apply(s, HT_OP_QUANTIZED_MATMUL, &p, in, 6), (int64_t[]){n, 1, m, k}, 4);
    int64_t matrices = 1;
    for (int i = 0; i < x->n_dims - 2; i++) matrices *= x->shape[i];
    ht_array *zeros = ht_zeros(s, x->dtype, (int64_t[]){matrices, m, k}, 3);
    ht_array *where = ht_reshape(s, index, &n, 1);
    return ht_reshape(s, ht_scatter(s, zeros, &where, (int[]){0}, 1, each, HT_SCATTER_ADD), x->shape, x->n_dims);
}

void ht_vjp_quantized_matmul(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = back_through_weights(s, node, grad);
    if (((const ht_quantize_params *)params_of(node))->how.mode != HT_QUANT_AFFINE) return;
    ht_array *in[6];
    memcpy(in, node->in, sizeof in);
    for (int i = 2; i < 4; i++) in[i] = ht_placeholder(s, in[i]);
    ht_array *y = in[2] && in[3] ? ht_compose_quantized_matmul(s, node->params, in) : NULL;
    (void)ht_backward(s, &y, &grad, 1, in + 2, 2, grad_in + 2);
}
