/* Operations along the last axis: sums, means, maxima, softmax. */
#include "base/error.h"
#include "ops/op.h"

#include <hearth/ops.h>

#include <string.h>

static ht_status without_last(const char *op, const ht_array *x, bool needs_values, ht_dtype dtype, ht_result_type *out,
                              ht_error *err) {
    char text[HT_SHAPE_TEXT];
    if (x->n_dims < 1 || (needs_values && x->shape[x->n_dims - 1] == 0))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis%s, got shape %s", op,
                       needs_values ? " that is not empty" : "", ht_shape_text(x->shape, x->n_dims, text));
    if (x->dtype == HT_BOOL) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs numbers, got bool", op);
    out->dtype = dtype;
    out->n_dims = x->n_dims - 1;
    memcpy(out->shape, x->shape, (size_t)out->n_dims * sizeof out->shape[0]);
    return HT_OK;
}

ht_status ht_shape_reduce(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                          ht_error *err) {
    (void)n_in;
    (void)params;
    bool is_sum = strcmp(op, "sum") == 0;
    if (strcmp(op, "mean") == 0 && !ht_dtype_is_float(in[0]->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "mean: needs a floating-point array, got %s; cast it first",
                       ht_dtype_name(in[0]->dtype));
    return without_last(op, in[0], !is_sum, in[0]->dtype, out, err);
}

ht_status ht_shape_argreduce(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                             ht_error *err) {
    (void)n_in;
    (void)params;
    return without_last(op, in[0], true, HT_I32, out, err);
}

ht_status ht_shape_softmax(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                           ht_error *err) {
    if (in[0]->n_dims < 1) return ht_fail(err, HT_ERR_ARGUMENT, "%s: needs a last axis, got a scalar", op);
    return ht_shape_float(op, in, n_in, params, out, err);
}

ht_array *ht_sum(ht_scope *s, ht_array *x) { return ht_apply(s, HT_OP_SUM, NULL, &x, 1); }
ht_array *ht_mean(ht_scope *s, ht_array *x) { return ht_apply(s, HT_OP_MEAN, NULL, &x, 1); }
ht_array *ht_max(ht_scope *s, ht_array *x) { return ht_apply(s, HT_OP_MAX, NULL, &x, 1); }
ht_array *ht_argmax(ht_scope *s, ht_array *x) { return ht_apply(s, HT_OP_ARGMAX, NULL, &x, 1); }
ht_array *ht_softmax(ht_scope *s, ht_array *x) { return ht_apply(s, HT_OP_SOFTMAX, NULL, &x, 1); }
