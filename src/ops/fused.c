/* Fused operations of transformers: RMS norm, rotary embedding, attention over the caches of a step. */
#include "base/error.h"
#include "ops/op.h"

#include <hearth/ops.h>

#include <string.h>

ht_status ht_shape_rms_norm(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                            ht_error *err) {
    const ht_array *x = in[0], *w = in[1];
    char tx[HT_SHAPE_TEXT], tw[HT_SHAPE_TEXT];
    if (x->n_dims < 1) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis, got a scalar", op);
    if (w != HT_NONE && (w->dtype != HT_F32 || w->n_dims != 1 || w->shape[0] != x->shape[x->n_dims - 1]))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the weight is %s of %s, x %s needs f32 [%lld]", op,
                       ht_shape_text(w->shape, w->n_dims, tw), ht_dtype_name(w->dtype),
                       ht_shape_text(x->shape, x->n_dims, tx), (long long)x->shape[x->n_dims - 1]);
    return ht_shape_float(op, in, n_in, params, out, err);
}

ht_array *ht_rms_norm(ht_scope *s, ht_array *x, ht_array *weight, float eps, float weight_offset) {
    const ht_rms_norm_params p = {eps, weight_offset};
    return ht_apply(s, HT_OP_RMS_NORM, &p, (ht_array *[]){x, weight}, 2);
}

ht_status ht_shape_rope(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                        ht_error *err) {
    (void)n_in;
    const ht_array *x = in[0], *pos = in[1], *factors = in[2];
    const ht_rope_params *p = params;
    char text[HT_SHAPE_TEXT];
    if (x->n_dims != 3 || x->dtype != HT_F32)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: x is %s of %s, expected f32 [T, heads, head_dim]", op,
                       ht_shape_text(x->shape, x->n_dims, text), ht_dtype_name(x->dtype));
    if (pos->n_dims != 1 || pos->dtype != HT_I32 || pos->shape[0] != x->shape[0])
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: positions are %s of %s, expected i32 [%lld]", op,
                       ht_shape_text(pos->shape, pos->n_dims, text), ht_dtype_name(pos->dtype), (long long)x->shape[0]);
    if (p->dims < 0 || p->dims % 2 != 0 || p->dims > x->shape[2])
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %d dimensions are to be rotated, expected an even number up to %lld",
                       op, (int)p->dims, (long long)x->shape[2]);
    if (factors != HT_NONE && (factors->dtype != HT_F32 || factors->n_dims != 1 || factors->shape[0] != p->dims / 2))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: frequency factors are %s of %s, expected f32 [%d]", op,
                       ht_shape_text(factors->shape, factors->n_dims, text), ht_dtype_name(factors->dtype),
                       (int)p->dims / 2);
    out->dtype = HT_F32;
    out->n_dims = 3;
    memcpy(out->shape, x->shape, sizeof out->shape);
    return HT_OK;
}

ht_array *ht_rope(ht_scope *s, ht_array *x, ht_array *pos, ht_array *freq_factors, const ht_rope_config *how) {
    const ht_rope_params p = {how->theta, how->scale, how->magnitude, how->dims, how->interleaved};
    return ht_apply(s, HT_OP_ROPE, &p, (ht_array *[]){x, pos, freq_factors}, 3);
}

ht_status ht_shape_attend(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                          ht_error *err) {
    (void)n_in;
    (void)params;
    const ht_array *q = in[0], *k = in[1], *v = in[2];
    char tq[HT_SHAPE_TEXT], tk[HT_SHAPE_TEXT], tv[HT_SHAPE_TEXT];
    bool ok = q->dtype == HT_F32 && q->n_dims == 3;
    if (k == HT_NONE && v == HT_NONE) {
        if (!ok)
            return ht_fail(err, HT_ERR_ARGUMENT, "%s: q %s, expected f32 [T, heads, head_dim]", op,
                           ht_shape_text(q->shape, q->n_dims, tq));
        *out = (ht_result_type){HT_F32, 3, {q->shape[0], q->shape[1], q->shape[2]}};
        return HT_OK;
    }
    if (k == HT_NONE || v == HT_NONE)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: keys and values come together or not at all", op);
    ok = ok && k->dtype == HT_F32 && v->dtype == HT_F32 && k->n_dims == 3 && v->n_dims == 3;
    for (int i = 0; ok && i < 3; i++) ok = k->shape[i] == v->shape[i];
    ok = ok && q->shape[0] == k->shape[0] && q->shape[2] == k->shape[2];
    ok = ok && k->shape[1] > 0 && q->shape[1] % k->shape[1] == 0;
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: q %s, k %s, v %s; expected f32 [T, heads, head_dim] and twice [T, kv_heads, head_dim] with "
                       "kv_heads dividing heads",
                       op, ht_shape_text(q->shape, q->n_dims, tq), ht_shape_text(k->shape, k->n_dims, tk),
                       ht_shape_text(v->shape, v->n_dims, tv));
    *out = (ht_result_type){HT_F32, 3, {q->shape[0], q->shape[1], q->shape[2]}};
    return HT_OK;
}
