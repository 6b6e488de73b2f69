/* Compositions of RMS norm and layer norm over the last axis, and of their gradients. */
#include "array/differentiate.h"
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

/* x / sqrt(mean(x^2) + eps) */
static ht_array *normalised(ht_scope *s, ht_array *x, float eps) {
    ht_array *square = ht_mean(s, ht_square(s, x), (int[]){-1}, 1, true);
    return ht_multiply(s, x, ht_rsqrt(s, ht_plus(s, square, (double)eps)));
}

ht_array *ht_compose_rms_norm(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    const ht_rms_norm_params *p = params;
    (void)n_in;
    ht_array *y = normalised(s, ht_widened(s, in[0]), p->eps);
    if (in[1] != HT_NONE) y = ht_multiply(s, y, ht_plus(s, ht_widened(s, in[1]), (double)p->weight_offset));
    return ht_astype(s, y, in[0]->dtype);
}

ht_array *ht_compose_layer_norm(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    (void)n_in;
    ht_array *y = normalised(s, ht_centred(s, ht_widened(s, in[0])), ((const ht_layer_norm_params *)params)->eps);
    if (in[1] != HT_NONE) y = ht_multiply(s, y, ht_widened(s, in[1]));
    if (in[2] != HT_NONE) y = ht_add(s, y, ht_widened(s, in[2]));
    return ht_astype(s, y, in[0]->dtype);
}

ht_array *ht_compose_rms_norm_grad(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    (void)n_in;
    return ht_gradients_by_composition(s, ht_compose_rms_norm, params, in, 2, 2, in[2]);
}

ht_array *ht_compose_layer_norm_grad(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    (void)n_in;
    return ht_gradients_by_composition(s, ht_compose_layer_norm, params, in, 3, 3, in[3]);
}
