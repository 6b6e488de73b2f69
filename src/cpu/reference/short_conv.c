/* SHORT_CONV: a causal convolution, the last inputs of which are in the state of a sequence. */
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "device/params.h"
#include "device/state.h"

#include <math.h>

static float at(const ht_view *v, int64_t row, int64_t column) {
    return ((const float *)v->data)[row * v->stride[0] + column * v->stride[1]];
}

/* Input of channel c at row t of a sequence of rows, which begins at row `first` of the step; rows before it are in the state. */
static float input(const ht_call *call, const float *before, int64_t first, int64_t t, int64_t c) {
    const ht_short_conv_params *p = call->params;
    const int64_t taps = call->in[1].shape[1];
    return t < 0 ? before[(taps - 1 + t) * p->channels + p->first + c] : at(&call->in[0], first + t, c);
}

static void convolve(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_short_conv_params *p = call->params;
    const ht_view *w = &call->in[1], *bias = &call->in[2];
    const ht_batch *b = call->step->batch;
    const int64_t taps = w->shape[1], n = call->out.shape[1];
    for (int64_t s = begin; s < end; s++) {
        const ht_kv_layer *l = ht_state_of(call, p->layer, s);
        const float *before = ht_state_before(l);
        float *after = ht_state_after(l), *out = (float *)call->out.data + b->seq_start[s] * n;
        const int64_t first = b->seq_start[s], rows = b->seq_start[s + 1] - first;
        for (int64_t t = 0; t < rows; t++)
            for (int64_t c = 0; c < n; c++) {
                float y = ht_view_absent(bias) ? 0 : ((const float *)bias->data)[c * bias->stride[0]];
                for (int64_t j = 0; j < taps; j++)
                    y = fmaf(at(w, c, j), input(call, before, first, t - taps + 1 + j, c), y);
                out[t * n + c] = y;
            }
        for (int64_t j = 0; j < taps - 1; j++)
            for (int64_t c = 0; c < n; c++)
                after[j * p->channels + p->first + c] = input(call, before, first, rows - taps + 1 + j, c);
    }
}

ht_status ht_plain_short_conv(const ht_call *call, ht_error *err) {
    const ht_short_conv_params *p = call->params;
    const ht_status status = ht_state_check(call, p->layer, (call->in[1].shape[1] - 1) * p->channels, err);
    if (!status) ht_pool_run(ht_call_pool(call), call->step->batch->n_seq, 1, convolve, (void *)call);
    return status;
}
