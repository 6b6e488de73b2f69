/* First-order recurrence y_i = x_i + d_i * y_(i-1) along rows, accumulated in f64. */
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

static void rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_recurrence_params *p = call->params;
    const ht_view *x = &call->in[0], *d = &call->in[1], *out = &call->out;
    int last = x->n_dims - 1;
    int64_t n = x->shape[last];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = ht_view_offset(x, last, row), by = ht_view_offset(d, last, row);
        double y = 0.0;
        for (int64_t k = 0; k < n; k++) {
            int64_t i = p->reverse ? n - 1 - k : k;
            double next = ht_get_f64(x->dtype, x->data, at + i * x->stride[last]);
            y = k ? next + ht_get_f64(d->dtype, d->data, by + i * d->stride[last]) * y : next;
            ht_set_f64(out->dtype, out->data, row * n + i, y);
        }
    }
}

ht_status ht_plain_recurrence(const ht_call *call, ht_error *err) {
    (void)err;
    int64_t n = call->out.shape[call->out.n_dims - 1], size = ht_view_size(&call->out);
    if (size > 0)
        ht_pool_run(ht_call_pool(call), size / n, ht_row_grain(HT_GRAIN_PLAIN, n), rows, (void *)(uintptr_t)call);
    return HT_OK;
}
