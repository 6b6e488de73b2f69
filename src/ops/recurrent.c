/* Recurrent layers: causal convolutions and scans of states, and the reverse rule of the scan. */
#include "array/op.h"
#include "base/error.h"
#include "device/params.h"
#include "ops/gradient.h"

#include <string.h>

ht_status ht_shape_short_conv(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *x = c->in[0], *w = c->in[1], *bias = c->in[2];
    char tx[HT_SHAPE_TEXT], tw[HT_SHAPE_TEXT];
    bool ok = x->dtype == HT_F32 && x->n_dims == 2 && w->dtype == HT_F32 && w->n_dims == 2;
    ok = ok && w->shape[0] == x->shape[1] && w->shape[1] > 0;
    if (ok && bias != HT_NONE) ok = bias->dtype == HT_F32 && bias->n_dims == 1 && bias->shape[0] == x->shape[1];
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: x %s, w %s; expected f32 [T, n] and [n, taps], and a bias f32 [n]",
                       c->op, ht_shape_text(x->shape, x->n_dims, tx), ht_shape_text(w->shape, w->n_dims, tw));
    *out = (ht_result_type){HT_F32, 2, {x->shape[0], x->shape[1]}};
    return HT_OK;
}

/* Whether x is f32 [T, heads], or f32 [T, heads, n] with n > 0. */
static bool is_of_heads(const ht_array *x, const ht_array *v, int64_t n) {
    if (x->dtype != HT_F32 || x->n_dims != (n ? 3 : 2)) return false;
    return x->shape[0] == v->shape[0] && x->shape[1] == v->shape[1] && (!n || x->shape[2] == n);
}

ht_status ht_shape_state_scan(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *q = c->in[0], *k = c->in[1], *v = c->in[2], *decay = c->in[3], *rate = c->in[4];
    char tq[HT_SHAPE_TEXT], tk[HT_SHAPE_TEXT], tv[HT_SHAPE_TEXT], td[HT_SHAPE_TEXT];
    bool ok = q->n_dims == 3 && k->n_dims == 3 && v->n_dims == 3;
    for (int i = 0; i < 3; i++) ok = ok && c->in[i]->dtype == HT_F32;
    ok = ok && ht_same_shape(q, k) && q->shape[0] == v->shape[0] && q->shape[1] > 0 && q->shape[2] > 0;
    ok = ok && v->shape[1] > 0 && v->shape[1] % q->shape[1] == 0;
    ok = ok && (is_of_heads(decay, v, 0) || is_of_heads(decay, v, q->shape[2]));
    ok = ok && (rate == HT_NONE || is_of_heads(rate, v, 0));
    if (!ok)
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "%s: q %s, k %s, v %s, decay %s; expected f32 twice [T, key_heads, key_dim] with key_heads "
            "dividing heads, [T, heads, value_dim], [T, heads] or [T, heads, key_dim], and a rate [T, heads]",
            c->op, ht_shape_text(q->shape, q->n_dims, tq), ht_shape_text(k->shape, k->n_dims, tk),
            ht_shape_text(v->shape, v->n_dims, tv), ht_shape_text(decay->shape, decay->n_dims, td));
    return ht_result_like(v, HT_F32, out);
}

ht_status ht_shape_state_scan_rows(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *first = c->in[5];
    char text[HT_SHAPE_TEXT];
    ht_status status = ht_shape_state_scan(c, out, err);
    if (!status && (first->dtype != HT_I32 || first->n_dims != 1 || first->shape[0] != out->shape[0]))
        status = ht_fail(err, HT_ERR_ARGUMENT, "%s: the first rows are %s of %s; expected int32 [T]", c->op,
                         ht_shape_text(first->shape, first->n_dims, text), ht_dtype_name(first->dtype));
    return status;
}

ht_status ht_shape_state_scan_rows_grad(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status status = ht_shape_state_scan_rows(c, out, err);
    if (status) return status;
    int64_t size = 0;
    for (int i = 0; i < 5; i++) size += c->in[i] == HT_NONE ? 0 : ht_array_size(c->in[i]);
    *out = (ht_result_type){HT_F32, 1, {size}};
    return HT_OK;
}

void ht_vjp_state_scan_rows(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *in[7];
    memcpy(in, node->in, 6 * sizeof *in);
    in[6] = grad;
    ht_split_gradients(s, ht_apply(s, HT_OP_STATE_SCAN_ROWS_GRAD, node->params, in, 7), in, 5, grad_in);
}
