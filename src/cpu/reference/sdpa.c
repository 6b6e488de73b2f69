/* Scaled dot-product attention and its gradient, in f64, one query at a time. */
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <float.h>
#include <math.h>

/* One head of a [B, heads, n, d] view. */
typedef struct head {
    const ht_view *v;
    int64_t at;
} head;

static head head_of(const ht_view *v, int64_t b, int64_t h) { return (head){v, b * v->stride[0] + h * v->stride[1]}; }

static double value(const head *h, int64_t row, int64_t i) {
    return ht_get_f64(h->v->dtype, h->v->data, h->at + row * h->v->stride[2] + i * h->v->stride[3]);
}

static double dot(const head *a, int64_t i, const head *b, int64_t j) {
    double sum = 0.0;
    for (int64_t d = 0; d < a->v->shape[3]; d++) sum += value(a, i, d) * value(b, j, d);
    return sum;
}

static bool hidden(const ht_call *call, const head *mask, int64_t i, int64_t j) {
    const ht_sdpa_params *p = call->params;
    int64_t last = i + call->in[1].shape[2] - call->in[0].shape[2];
    if (p->causal && (j > last || (p->window > 0 && last - j >= p->window))) return true;
    return !ht_view_absent(mask->v) && mask->v->dtype == HT_BOOL && value(mask, i, j) == 0.0;
}

/* Softmax weights of all keys for query i of head h. A masked key scores the lowest finite value. */
static void softmax_weights(const ht_call *call, int64_t b, int64_t h, int64_t i, double *weight) {
    const ht_sdpa_params *p = call->params;
    const ht_view *q = &call->in[0], *k = &call->in[1], *m = &call->in[3], *sinks = &call->in[4];
    head query = head_of(q, b, h), key = head_of(k, b, h / (q->shape[1] / k->shape[1])), mask = {m, 0};
    bool adds = !ht_view_absent(m) && m->dtype != HT_BOOL;
    if (!ht_view_absent(m)) mask = head_of(m, b, h);
    double sink = ht_view_absent(sinks) ? 0.0 : ht_get_f64(sinks->dtype, sinks->data, h * sinks->stride[0]);
    double max = ht_view_absent(sinks) ? (double)-INFINITY : sink, sum = 0.0;
    for (int64_t j = 0; j < k->shape[2]; j++) {
        weight[j] = (double)-FLT_MAX;
        if (!hidden(call, &mask, i, j))
            weight[j] = dot(&query, i, &key, j) * (double)p->scale + (adds ? value(&mask, i, j) : 0.0);
        if (weight[j] > max || isnan(weight[j])) max = weight[j];
    }
    for (int64_t j = 0; j < k->shape[2]; j++) sum += weight[j] = exp(weight[j] - max);
    if (!ht_view_absent(sinks)) sum += exp(sink - max);
    for (int64_t j = 0; j < k->shape[2]; j++) weight[j] /= sum;
}

size_t ht_plain_sdpa_scratch(const ht_call *call) {
    return (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)call->in[1].shape[2] * sizeof(double);
}

static void attend_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_call *call = arg;
    const ht_view *q = &call->in[0], *v = &call->in[2], *out = &call->out;
    int64_t heads = q->shape[1], n_q = q->shape[2], n_k = v->shape[2], dv = v->shape[3];
    double *weight = (double *)call->scratch + worker * n_k;
    for (int64_t row = begin; row < end; row++) {
        int64_t b = row / (heads * n_q), h = row / n_q % heads;
        head values = head_of(v, b, h / (heads / v->shape[1]));
        softmax_weights(call, b, h, row % n_q, weight);
        for (int64_t d = 0; d < dv; d++) {
            double sum = 0.0;
            for (int64_t j = 0; j < n_k; j++) sum += weight[j] * value(&values, j, d);
            ht_set_f64(out->dtype, out->data, row * dv + d, sum);
        }
    }
}

ht_status ht_plain_scaled_dot_product_attention(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *q = &call->in[0];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_pool_run(ht_call_pool(call), q->shape[0] * q->shape[1] * q->shape[2], 1, attend_rows, (void *)call);
    return HT_OK;
}

/* ---- gradient ---- */

/* Scratch of one thread and key head: a query's weights and their gradients, and the sums of the K and V gradients. */
static int64_t gradient_scratch_doubles(const ht_call *call) {
    return call->in[1].shape[2] * (2 + call->in[1].shape[3] + call->in[2].shape[3]);
}

size_t ht_plain_sdpa_grad_scratch(const ht_call *call) {
    return (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)gradient_scratch_doubles(call) * sizeof(double);
}

/* Adds one query's gradients. The softmax backward term sum(weight * gradient) is computed as dot(gradient, output),
 * with the output (operand 5) as rounded to its dtype: blocked kernels need the term before they reach the last key. */
static void query_gradient(const ht_call *call, int64_t b, int64_t h, int64_t i, double *scratch) {
    const ht_sdpa_params *p = call->params;
    const ht_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *m = &call->in[3];
    int64_t n_k = k->shape[2], d = k->shape[3], dv = v->shape[3], kv = h / (q->shape[1] / k->shape[1]);
    double *weight = scratch, *change = scratch + n_k, *dk = change + n_k, *dval = dk + n_k * d;
    head query = head_of(q, b, h), key = head_of(k, b, kv), values = head_of(v, b, kv);
    head result = head_of(&call->in[5], b, h), grad = head_of(&call->in[6], b, h), mask = {m, 0};
    if (!ht_view_absent(m)) mask = head_of(m, b, h);
    softmax_weights(call, b, h, i, weight);
    const double mean = dot(&grad, i, &result, i);
    for (int64_t j = 0; j < n_k; j++) {
        for (int64_t c = 0; c < dv; c++) dval[j * dv + c] += weight[j] * value(&grad, i, c);
        change[j] = hidden(call, &mask, i, j) ? 0.0 : weight[j] * (dot(&grad, i, &values, j) - mean) * (double)p->scale;
        for (int64_t c = 0; c < d; c++) dk[j * d + c] += change[j] * value(&query, i, c);
    }
    for (int64_t c = 0; c < d; c++) {
        double sum = 0.0;
        for (int64_t j = 0; j < n_k; j++) sum += change[j] * value(&key, j, c);
        ht_set_f64(call->out.dtype, call->out.data, ((b * q->shape[1] + h) * q->shape[2] + i) * d + c, sum);
    }
}

static void head_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_call *call = arg;
    const ht_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    int64_t group = q->shape[1] / k->shape[1], n_k = k->shape[2], d = k->shape[3], dv = v->shape[3];
    double *scratch = (double *)call->scratch + worker * gradient_scratch_doubles(call), *sums = scratch + 2 * n_k;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t b = unit / k->shape[1], kv = unit % k->shape[1];
        for (int64_t i = 0; i < n_k * (d + dv); i++) sums[i] = 0.0;
        for (int64_t h = kv * group; h < (kv + 1) * group; h++)
            for (int64_t i = 0; i < q->shape[2]; i++) query_gradient(call, b, h, i, scratch);
        int64_t keys = ht_view_size(q), values = keys + ht_view_size(k);
        for (int64_t i = 0; i < n_k * d; i++)
            ht_set_f64(call->out.dtype, call->out.data, keys + unit * n_k * d + i, sums[i]);
        for (int64_t i = 0; i < n_k * dv; i++)
            ht_set_f64(call->out.dtype, call->out.data, values + unit * n_k * dv + i, sums[n_k * d + i]);
    }
}

ht_status ht_plain_attention_gradient(const ht_call *call, ht_error *err) {
    (void)err;
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_pool_run(ht_call_pool(call), call->in[1].shape[0] * call->in[1].shape[1], 1, head_gradients, (void *)call);
    return HT_OK;
}
