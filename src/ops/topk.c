/* Top-k along the last axis, and mixture-of-experts products with the selected experts. */
#include "array/op.h"
#include "base/error.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <string.h>

ht_status ht_shape_top_k(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                         ht_error *err) {
    (void)n_in;
    const ht_array *x = in[0];
    int64_t k = ((const ht_top_k_params *)params)->k;
    char text[HT_SHAPE_TEXT];
    if (x->n_dims < 1 || x->dtype != HT_F32 || k < 1 || k > x->shape[x->n_dims - 1])
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %lld of %s of %s, expected 1 to n of f32 [..., n]", op, (long long)k,
                       ht_shape_text(x->shape, x->n_dims, text), ht_dtype_name(x->dtype));
    out->dtype = HT_I32;
    out->n_dims = x->n_dims;
    memcpy(out->shape, x->shape, sizeof out->shape);
    out->shape[x->n_dims - 1] = k;
    return HT_OK;
}

ht_array *ht_argtopk(ht_scope *s, ht_array *x, int32_t k) {
    const ht_top_k_params p = {k};
    return ht_apply(s, HT_OP_TOP_K, &p, &x, 1);
}

ht_status ht_shape_linear_gather(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                                 ht_error *err) {
    (void)n_in;
    const ht_linear_gather_params *p = params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    const ht_array *x = in[0], *ids = in[1];
    char tx[HT_SHAPE_TEXT], ti[HT_SHAPE_TEXT];
    bool ok = ids->dtype == HT_I32 && ids->n_dims == 2 && x->dtype == HT_F32 && (x->n_dims == 2 || x->n_dims == 3);
    ok = ok && x->shape[0] == ids->shape[0] && x->shape[x->n_dims - 1] == m->k;
    if (ok && x->n_dims == 3) ok = x->shape[1] == ids->shape[1];
    if (!ok)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: x %s of %s, experts %s of %s; expected f32 [T, %lld] or [T, m, %lld], and i32 [T, m]", op,
                       ht_shape_text(x->shape, x->n_dims, tx), ht_dtype_name(x->dtype),
                       ht_shape_text(ids->shape, ids->n_dims, ti), ht_dtype_name(ids->dtype), (long long)m->k,
                       (long long)m->k);
    *out = (ht_result_type){HT_F32, 3, {ids->shape[0], ids->shape[1], p->n_sets * m->n_rows}};
    return HT_OK;
}

ht_status ht_shape_linear_gather_back(const char *op, ht_array *const *in, int n_in, const void *params,
                                      ht_result_type *out, ht_error *err) {
    (void)n_in;
    const ht_linear_gather_params *p = params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    const ht_array *dy = in[0], *ids = in[1];
    char ty[HT_SHAPE_TEXT], ti[HT_SHAPE_TEXT];
    bool ok = ids->dtype == HT_I32 && ids->n_dims == 2 && dy->dtype == HT_F32 && dy->n_dims == 3;
    for (int i = 0; ok && i < 2; i++) ok = dy->shape[i] == ids->shape[i];
    if (!ok || dy->shape[2] != p->n_sets * m->n_rows)
        return ht_fail(
            err, HT_ERR_ARGUMENT, "%s: gradients %s of %s, experts %s of %s; expected f32 [T, m, %lld] and i32 [T, m]",
            op, ht_shape_text(dy->shape, dy->n_dims, ty), ht_dtype_name(dy->dtype),
            ht_shape_text(ids->shape, ids->n_dims, ti), ht_dtype_name(ids->dtype), (long long)(p->n_sets * m->n_rows));
    *out = (ht_result_type){HT_F32, 3, {ids->shape[0], ids->shape[1], m->k}};
    return HT_OK;
}

/* Of the rows; one that m experts of a token share has the sum of their gradients. */
bool ht_vjp_linear_gather(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *dx = ht_apply(s, HT_OP_LINEAR_GATHER_BACK, node->params, (ht_array *[]){grad, node->in[1]}, 2);
    grad_in[0] = node->in[0]->n_dims == 3 ? dx : ht_sum(s, dx, (int[]){1}, 1, false);
    return grad_in[0] != NULL;
}

bool ht_vjp_linear_gather_back(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_apply(s, HT_OP_LINEAR_GATHER, node->params, (ht_array *[]){grad, node->in[1]}, 2);
    return grad_in[0] != NULL;
}
