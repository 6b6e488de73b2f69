/* Fused operations of transformers: RMS norm, rotary embedding, attention over the caches of a step. */
#include "base/error.h"
#include "ops/again.h"
#include "ops/op.h"

#include <hearth/fast.h>
#include <hearth/ops.h>

#include <string.h>

/* ---- norms ---- */

/* x and what it is scaled and moved by, of one dtype. */
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

ht_status ht_shape_norm(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                        ht_error *err) {
    (void)params;
    ht_status st = check_norm(op, in, n_in, err);
    return st ? st : ht_result_like(in[0], in[0]->dtype, out);
}

/* The operands, and the gradient of the result. */
ht_status ht_shape_norm_grad(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                             ht_error *err) {
    (void)params;
    ht_status st = check_norm(op, in, n_in - 1, err);
    if (st) return st;
    *out = (ht_result_type){in[0]->dtype, 1, {0}};
    for (int i = 0; i < n_in - 1; i++)
        if (in[i] != HT_NONE) out->shape[0] += ht_array_size(in[i]);
    return HT_OK;
}

/* Brings operands that are there to the dtype in which they meet, at least f32; false when one is missing. */
static bool meet(ht_scope *s, ht_array **in, int n) {
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
    return meet(s, in, 2) ? ht_apply(s, HT_OP_RMS_NORM, &p, in, 2) : NULL;
}

ht_array *ht_layer_norm(ht_scope *s, ht_array *x, ht_array *weight, ht_array *bias, float eps) {
    const ht_layer_norm_params p = {eps};
    ht_array *in[3] = {x, weight, bias};
    return meet(s, in, 3) ? ht_apply(s, HT_OP_LAYER_NORM, &p, in, 3) : NULL;
}

/* ---- rotary embedding ---- */

/* Whether pos has the leading axes of x. */
static bool has_rows_of(const ht_array *pos, const ht_array *x) {
    bool same = pos->n_dims == x->n_dims - 2;
    for (int i = 0; same && i < pos->n_dims; i++) same = pos->shape[i] == x->shape[i];
    return same;
}

ht_status ht_shape_rope(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                        ht_error *err) {
    (void)n_in;
    const ht_array *x = in[0], *pos = in[1], *factors = in[2];
    const ht_rope_params *p = params;
    char text[HT_SHAPE_TEXT], rows[HT_SHAPE_TEXT];
    if (x->n_dims < 3 || !ht_dtype_is_float(x->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: x is %s of %s, expected floating point [..., heads, head_dim]", op,
                       ht_shape_text(x->shape, x->n_dims, text), ht_dtype_name(x->dtype));
    if (pos->dtype != HT_I32 || !has_rows_of(pos, x))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: positions are %s of %s, expected i32 %s", op,
                       ht_shape_text(pos->shape, pos->n_dims, text), ht_dtype_name(pos->dtype),
                       ht_shape_text(x->shape, x->n_dims - 2, rows));
    int64_t head_dim = x->shape[x->n_dims - 1];
    if (p->dims < 0 || p->dims % 2 != 0 || p->dims > head_dim)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %d dimensions are to be rotated, expected an even number up to %lld",
                       op, (int)p->dims, (long long)head_dim);
    if (factors != HT_NONE && (factors->dtype != HT_F32 || factors->n_dims != 1 || factors->shape[0] != p->dims / 2))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: frequency factors are %s of %s, expected f32 [%d]", op,
                       ht_shape_text(factors->shape, factors->n_dims, text), ht_dtype_name(factors->dtype),
                       (int)p->dims / 2);
    return ht_result_like(x, x->dtype, out);
}

ht_array *ht_rope(ht_scope *s, ht_array *x, ht_array *pos, ht_array *freq_factors, const ht_rope_config *how) {
    const ht_rope_params p = {how->theta, how->scale, how->magnitude, how->dims, how->interleaved};
    return ht_apply(s, HT_OP_ROPE, &p, (ht_array *[]){x, pos, freq_factors}, 3);
}

/* Positions of x [batch, rows]: those of the rows, counted from the offset of each entry of the batch. */
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

static bool rope_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    (void)n_in;
    out[0] = ht_rope_rows(s, in[0], in[1], in[2], args);
    return out[0] != NULL;
}

/* The rows move before the heads, all axes between the first and the last two being heads, and back. */
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
