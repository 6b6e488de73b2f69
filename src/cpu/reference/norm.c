/* RMS norm and layer norm over the last axis. */
#include "base/error.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_rms_norm_params *p = call->params;
    const ht_view *x = &call->in[0], *w = &call->in[1], *out = &call->out;
    int last = x->n_dims - 1;
    int64_t n = x->shape[last];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = ht_view_offset(x, last, row);
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            double v = ht_get_f64(x->dtype, x->data, at + i * x->stride[last]);
            sum += v * v;
        }
        double scale = 1.0 / sqrt(sum / (double)n + (double)p->eps);
        for (int64_t i = 0; i < n; i++) {
            double v = ht_get_f64(x->dtype, x->data, at + i * x->stride[last]) * scale;
            if (call->n_in > 1 && !ht_view_absent(w))
                v *= (double)p->weight_offset + ht_get_f64(w->dtype, w->data, i * w->stride[0]);
            ht_set_f64(out->dtype, out->data, row * n + i, v);
        }
    }
}

ht_status ht_plain_rms_norm(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *x = &call->in[0];
    int64_t n = x->shape[x->n_dims - 1], size = ht_view_size(x);
    if (size > 0) ht_pool_run(ht_call_pool(call), size / n, ht_row_grain(HT_GRAIN_PLAIN, n), run_rows, (void *)call);
    return HT_OK;
}

static double mean_of(const ht_view *x, int64_t at, int64_t n, double from, bool squares) {
    int64_t stride = x->stride[x->n_dims - 1];
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double v = ht_get_f64(x->dtype, x->data, at + i * stride) - from;
        sum += squares ? v * v : v;
    }
    return sum / (double)n;
}

static void run_layer_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_layer_norm_params *p = call->params;
    const ht_view *x = &call->in[0], *w = &call->in[1], *b = &call->in[2], *out = &call->out;
    int last = x->n_dims - 1;
    int64_t n = x->shape[last];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = ht_view_offset(x, last, row);
        double mean = mean_of(x, at, n, 0.0, false);
        double scale = 1.0 / sqrt(mean_of(x, at, n, mean, true) + (double)p->eps);
        for (int64_t i = 0; i < n; i++) {
            double v = (ht_get_f64(x->dtype, x->data, at + i * x->stride[last]) - mean) * scale;
            if (!ht_view_absent(w)) v *= ht_get_f64(w->dtype, w->data, i * w->stride[0]);
            if (!ht_view_absent(b)) v += ht_get_f64(b->dtype, b->data, i * b->stride[0]);
            ht_set_f64(out->dtype, out->data, row * n + i, v);
        }
    }
}

ht_status ht_plain_layer_norm(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *x = &call->in[0];
    int64_t n = x->shape[x->n_dims - 1], size = ht_view_size(x);
    if (size > 0)
        ht_pool_run(ht_call_pool(call), size / n, ht_row_grain(HT_GRAIN_PLAIN, n), run_layer_rows, (void *)call);
    return HT_OK;
}
