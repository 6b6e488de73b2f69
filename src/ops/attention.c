/* Scaled dot-product attention of arrays. Attention over KV caches is in fused.c. */
#include "array/op.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/fast.h>
#include <hearth/ops.h>

#include <string.h>

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

ht_status ht_shape_sdpa(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                        ht_error *err) {
    (void)n_in, (void)params;
    ht_status st = check_shapes(op, in, err);
    if (st) return st;
    const ht_array *q = in[0], *v = in[2], *sinks = in[4];
    char text[HT_SHAPE_TEXT];
    if (!ht_dtype_is_float(q->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: operands are %s, expected floating point", op,
                       ht_dtype_name(q->dtype));
    if (sinks != HT_NONE && (sinks->n_dims != 1 || sinks->shape[0] != q->shape[1]))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the sinks are %s, expected one for each of %lld heads", op,
                       ht_shape_text(sinks->shape, sinks->n_dims, text), (long long)q->shape[1]);
    *out = (ht_result_type){q->dtype, 4, {q->shape[0], q->shape[1], q->shape[2], v->shape[3]}};
    return HT_OK;
}

ht_status ht_shape_sdpa_grad(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                             ht_error *err) {
    ht_status st = ht_shape_sdpa(op, in, n_in, params, out, err);
    if (st) return st;
    *out = (ht_result_type){in[0]->dtype, 1, {ht_array_size(in[0]) + ht_array_size(in[1]) + ht_array_size(in[2])}};
    return HT_OK;
}

ht_status ht_shape_attend_rows(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                               ht_error *err) {
    (void)n_in, (void)params;
    const ht_array *q = in[0], *k = in[1], *v = in[2], *own = in[3], *first = in[4];
    bool ok = q->n_dims == 3 && k->n_dims == 3 && v->n_dims == 3 && own->n_dims == 1 && first->n_dims == 1;
    for (int i = 0; i < 5; i++) ok = ok && in[i]->dtype == (i < 3 ? HT_F32 : HT_I32);
    ok = ok && k->shape[0] == v->shape[0] && k->shape[1] == v->shape[1] && k->shape[2] == q->shape[2];
    ok = ok && k->shape[1] > 0 && q->shape[1] % k->shape[1] == 0;
    ok = ok && own->shape[0] == q->shape[0] && first->shape[0] == q->shape[0];
    char tq[HT_SHAPE_TEXT], tk[HT_SHAPE_TEXT], tv[HT_SHAPE_TEXT];
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: q %s, k %s, v %s; expected f32 [n, heads, d] and twice [rows, kv_heads, d] with kv_heads "
                       "dividing heads, and two int32 [n]",
                       op, ht_shape_text(q->shape, q->n_dims, tq), ht_shape_text(k->shape, k->n_dims, tk),
                       ht_shape_text(v->shape, v->n_dims, tv));
    *out = (ht_result_type){HT_F32, 3, {q->shape[0], q->shape[1], v->shape[2]}};
    return HT_OK;
}

ht_status ht_shape_attend_rows_grad(const char *op, ht_array *const *in, int n_in, const void *params,
                                    ht_result_type *out, ht_error *err) {
    ht_status st = ht_shape_attend_rows(op, in, n_in, params, out, err);
    if (st) return st;
    *out = (ht_result_type){HT_F32, 1, {ht_array_size(in[0]) + ht_array_size(in[1]) + ht_array_size(in[2])}};
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

static bool attention_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    (void)n_in;
    out[0] = ht_scaled_dot_product_attention(s, in[0], in[1], in[2], in[3], in[4], args);
    return out[0] != NULL;
}

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
