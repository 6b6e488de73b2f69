/* Gradient clipping, by the norm of all gradients together. */
#include "array/differentiate.h"
#include "base/dtype.h"

#include <hearth/ops.h>
#include <hearth/optimizer.h>

#include <stdlib.h>

/* Scalar, f32 (f64 of f64): the sum of the squares of g. */
static ht_array *sum_of_squares(ht_scope *s, ht_array *g) {
    if (g && !ht_dtype_is_float(g->dtype))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "clip_grad_norm: a gradient is %s, expected floating point",
                             ht_dtype_name(g->dtype));
    return g ? ht_sum(s, ht_square(s, ht_astype(s, g, ht_dtype_promote(g->dtype, HT_F32))), NULL, 0, false) : NULL;
}

/* The norm, f64: the sum over arrays has no rounding to speak of, in whatever order they come. */
static ht_array *norm_of(ht_scope *s, ht_array *const *grads, int n) {
    ht_array **sums = ht_array_list(s, n);
    bool ok = sums != NULL;
    for (int i = 0; ok && i < n; i++) ok = (sums[i] = sum_of_squares(s, grads[i])) != NULL;
    ht_array *all = NULL;
    if (ok) all = n > 0 ? ht_stack(s, sums, n, 0) : ht_zeros(s, HT_F64, NULL, 0);
    free(sums);
    return all ? ht_sqrt(s, ht_sum(s, ht_astype(s, all, HT_F64), NULL, 0, false)) : NULL;
}

/* g times an f32 factor, rounded once. */
static ht_array *clipped(ht_scope *s, ht_array *g, ht_array *factor) {
    const ht_dtype dtype = g->dtype;
    return ht_astype(s, ht_multiply(s, ht_astype(s, g, ht_dtype_promote(dtype, HT_F32)), factor), dtype);
}

bool ht_clip_grad_norm(ht_scope *s, ht_array *const *grads, int n, double max_norm, ht_array **out, ht_array **norm) {
    bool ok = max_norm >= 0;
    if (!ok) ht_scope_fail(s, HT_ERR_ARGUMENT, "clip_grad_norm: max_norm is %g, expected 0 or more", max_norm);
    ht_array *exact = ok ? norm_of(s, grads, n) : NULL;
    ht_array *at_least = exact ? ht_add(s, exact, ht_full(s, 1e-6, HT_F64, NULL, 0)) : NULL;
    ht_array *one = ht_full(s, 1, HT_F64, NULL, 0);
    ht_array *factor = ht_minimum(s, one, ht_divide(s, ht_full(s, max_norm, HT_F64, NULL, 0), at_least));
    factor = ht_astype(s, factor, HT_F32);
    *norm = ht_astype(s, exact, HT_F32);
    ok = *norm && factor;
    for (int i = 0; ok && i < n; i++) ok = (out[i] = clipped(s, grads[i], factor)) != NULL;
    if (ok) return true;
    for (int i = 0; i < n; i++) out[i] = NULL;
    *norm = NULL;
    return false;
}
