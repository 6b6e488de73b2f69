/* Elements by their place: windows that are replaced. */
#include "base/error.h"
#include "ops/op.h"

#include <hearth/index.h>
#include <hearth/ops.h>

#include <string.h>

ht_status ht_shape_slice_update(const char *op, ht_array *const *in, int n_in, const void *params, ht_result_type *out,
                                ht_error *err) {
    (void)n_in, (void)params;
    if (in[0]->dtype != in[1]->dtype || in[0]->n_dims != in[1]->n_dims)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %s of %d dimensions in an array of %s of %d", op,
                       ht_dtype_name(in[1]->dtype), in[1]->n_dims, ht_dtype_name(in[0]->dtype), in[0]->n_dims);
    return ht_result_like(in[0], in[0]->dtype, out);
}

ht_array *ht_slice_update(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start, const int64_t *stop,
                          const int64_t *step) {
    ht_array *window = ht_slice(s, x, start, stop, step); /* says where it lies, and checks it */
    if (!window || !update) return NULL;
    ht_slice_params p = {{0}, {0}};
    for (int i = 0; i < x->n_dims; i++) {
        p.start[i] = window->shape[i] > 0 ? start[i] : 0;
        p.step[i] = step ? step[i] : 1;
    }
    update = ht_broadcast_to(s, ht_astype(s, update, x->dtype), window->shape, window->n_dims);
    ht_scope_drop(s, window); /* it would hold x, whose memory may be wanted */
    return ht_apply(s, HT_OP_SLICE_UPDATE, &p, (ht_array *[]){x, update}, 2);
}
