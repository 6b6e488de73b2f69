/* Adapters of a step added to a projection. */
#include "array/op.h"
#include "base/error.h"

ht_status ht_shape_lora(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                        ht_error *err) {
    (void)n_in;
    const bool experts = ((const ht_lora_params *)params)->n_experts > 0;
    const ht_array *y = in[0], *x = in[1], *ids = in[2];
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
                   op, ht_shape_text(y->shape, y->n_dims, ty), ht_dtype_name(y->dtype),
                   ht_shape_text(x->shape, x->n_dims, tx), ht_dtype_name(x->dtype));
}
