/* Attention over the KV cache of a step, one query head at a time, in f64: the reference of the blocked kernels. */
#include "base/math.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/kv.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"

#include <string.h>

static double score(const ht_call *call, int64_t query, int64_t query_stride, const ht_kv_layer *l, int64_t head,
                    int64_t j) {
    const ht_attend_params *p = call->params;
    const ht_view *q = &call->in[0];
    double dot = 0.0;
    for (int64_t d = 0; d < l->shape.head_dim; d++)
        dot += ht_get_f64(q->dtype, q->data, query + d * query_stride) * (double)ht_kv_key(l, head, j, d);
    dot *= (double)p->scale;
    return p->softcap > 0.0f ? (double)p->softcap * tanh(dot / (double)p->softcap) : dot;
}

/* Online softmax for one row and query head: sums are rescaled whenever the maximum grows. The sink comes last. `sum`
 * has head_dim elements. */
static void attend_head(const ht_call *call, int64_t row, int64_t h, double *sum) {
    const ht_view *q = &call->in[0], *out = &call->out;
    const ht_batch *b = call->step->batch;
    const ht_kv_layer *l = ht_kv_layer_of(call, row);
    int64_t pos = b->pos[row], n_heads = q->shape[1], kv_head = h / (n_heads / l->shape.n_kv_heads);
    int64_t query = row * q->stride[0] + h * q->stride[1];
    double max = -INFINITY, total = 0.0;
    for (int64_t d = 0; d < l->shape.head_dim; d++) sum[d] = 0.0;
    for (int64_t j = ht_kv_first_visible(l, pos); j <= pos; j++) {
        double s = score(call, query, q->stride[2], l, kv_head, j);
        if (s > max) {
            double shrink = exp(max - s);
            for (int64_t d = 0; d < l->shape.head_dim; d++) sum[d] *= shrink;
            total *= shrink;
            max = s;
        }
        double weight = exp(s - max);
        for (int64_t d = 0; d < l->shape.head_dim; d++) sum[d] += weight * (double)ht_kv_value(l, kv_head, j, d);
        total += weight;
    }
    const ht_view *sinks = &call->in[3];
    if (!ht_view_absent(sinks)) {
        const double sink = ht_get_f64(sinks->dtype, sinks->data, h * sinks->stride[0]);
        const double shrink = sink > max ? exp(max - sink) : 1.0;
        for (int64_t d = 0; d < l->shape.head_dim; d++) sum[d] *= shrink;
        total = total * shrink + (sink > max ? 1.0 : exp(sink - max));
    }
    for (int64_t d = 0; d < l->shape.head_dim; d++)
        ht_set_f64(out->dtype, out->data, (row * n_heads + h) * l->shape.head_dim + d, sum[d] / total);
}

static int64_t head_dim(const ht_call *call) { return call->in[0].shape[2]; }

static void attend_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_call *call = arg;
    double *sum = (double *)call->scratch + worker * head_dim(call);
    for (int64_t row = begin; row < end; row++)
        for (int64_t h = 0; h < call->in[0].shape[1]; h++) attend_head(call, row, h, sum);
}

static ht_status attend(const ht_call *call, ht_error *err) {
    ht_status status = ht_kv_check(call, err);
    if (status != HT_OK) return status;
    ht_kv_append(call);
    ht_pool_run(ht_call_pool(call), call->in[0].shape[0], 1, attend_rows, (void *)call);
    return HT_OK;
}

ht_status ht_plain_attend(const ht_call *call, ht_error *err) { return ht_kv_run(call, attend, err); }

size_t ht_plain_attend_scratch(const ht_call *call) {
    return ht_kv_output_rows_bytes(call) +
           (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)head_dim(call) * sizeof(double);
}
