/* Attention of flat rows of many sequences and its gradient, in f64, one query at a time. */
#include "cpu/attend_rows.h"

#include "base/checked.h"
#include "base/error.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "device/params.h"
#include "device/window.h"

#include <math.h>
#include <string.h>

static double at(const ht_view *v, int64_t row, int64_t head, int64_t i) {
    return ((const float *)v->data)[row * v->stride[0] + head * v->stride[1] + i * v->stride[2]];
}

static double dot(const ht_view *a, int64_t i, int64_t head_a, const ht_view *b, int64_t j, int64_t head_b) {
    double sum = 0;
    for (int64_t d = 0; d < a->shape[2]; d++) sum += at(a, i, head_a, d) * at(b, j, head_b, d);
    return sum;
}

typedef struct keys_of {
    int64_t begin, end;
} keys_of;

static keys_of visible(const ht_call *call, const ht_ragged *runs, int64_t i) {
    const ht_attend_rows_params *p = call->params;
    const int64_t first = runs->first[i], own = runs->own[i];
    if (p->two_sided) return (keys_of){p->window > 0 ? ht_max_i64(first, i - p->window) : first, own + 1};
    return (keys_of){first + ht_first_visible(p->window, p->chunked, own - first), own + 1};
}

/* Softmax weights of the visible keys, and the derivatives of their scores by q.k. */
static void softmax_weights(const ht_call *call, const ht_ragged *runs, int64_t i, int64_t head, double *weight,
                            double *slope) {
    const ht_attend_rows_params *p = call->params;
    const keys_of keys = visible(call, runs, i);
    const int64_t group = call->in[0].shape[1] / call->in[1].shape[1];
    const double cap = (double)p->softcap;
    const ht_view *sinks = &call->in[5];
    const double sink =
        ht_view_absent(sinks) ? (double)-INFINITY : (double)((const float *)sinks->data)[head * sinks->stride[0]];
    double max = sink, sum = 0;
    for (int64_t j = keys.begin; j < keys.end; j++) {
        double score = (double)p->scale * dot(&call->in[0], i, head, &call->in[1], j, head / group);
        slope[j] = (double)p->scale;
        if (cap > 0) {
            const double t = tanh(score / cap);
            slope[j] *= 1 - t * t;
            score = cap * t;
        }
        weight[j] = score;
        if (score > max) max = score;
    }
    for (int64_t j = keys.begin; j < keys.end; j++) sum += weight[j] = exp(weight[j] - max);
    if (!ht_view_absent(sinks)) sum += exp(sink - max);
    for (int64_t j = keys.begin; j < keys.end; j++) weight[j] /= sum;
}

/* Two numbers for each key, and the sums of the gradients of keys and values. */
static size_t doubles(const ht_call *call, bool gradient) {
    const ht_view *k = &call->in[1], *v = &call->in[2];
    size_t n = 2 * (size_t)k->shape[0];
    if (gradient) n += (size_t)(ht_view_size(k) + ht_view_size(v));
    return n;
}

size_t ht_plain_attend_rows_scratch(const ht_call *call) {
    return ht_ragged_bytes(call) + doubles(call, call->n_in > 6) * sizeof(double);
}

ht_status ht_plain_attend_rows(const ht_call *call, ht_error *err) {
    ht_ragged runs;
    const ht_view *q = &call->in[0], *v = &call->in[2];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_status status = ht_ragged_find(call, call->scratch, &runs, err);
    if (status) return status;
    double *weight = (double *)(void *)((char *)call->scratch + ht_ragged_bytes(call)), *slope = weight + v->shape[0];
    float *out = call->out.data;
    const int64_t group = q->shape[1] / v->shape[1];
    for (int64_t i = 0; i < q->shape[0]; i++)
        for (int64_t head = 0; head < q->shape[1]; head++) {
            const keys_of keys = visible(call, &runs, i);
            softmax_weights(call, &runs, i, head, weight, slope);
            for (int64_t d = 0; d < v->shape[2]; d++) {
                double sum = 0;
                for (int64_t j = keys.begin; j < keys.end; j++) sum += weight[j] * at(v, j, head / group, d);
                *out++ = (float)sum;
            }
        }
    return HT_OK;
}

static void query_gradient(const ht_call *call, const ht_ragged *runs, int64_t i, int64_t head, double *scratch,
                           float *dq) {
    const ht_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *result = &call->in[6], *grad = &call->in[7];
    const int64_t n_k = k->shape[0], d = k->shape[2], dv = v->shape[2], kv = head / (q->shape[1] / k->shape[1]);
    double *weight = scratch, *slope = weight + n_k, *dk = slope + n_k, *dval = dk + ht_view_size(k);
    const keys_of keys = visible(call, runs, i);
    softmax_weights(call, runs, i, head, weight, slope);
    const double mean = dot(grad, i, head, result, i, head);
    for (int64_t j = keys.begin; j < keys.end; j++) {
        for (int64_t c = 0; c < dv; c++) dval[(j * v->shape[1] + kv) * dv + c] += weight[j] * at(grad, i, head, c);
        slope[j] *= weight[j] * (dot(grad, i, head, v, j, kv) - mean);
        for (int64_t c = 0; c < d; c++) dk[(j * k->shape[1] + kv) * d + c] += slope[j] * at(q, i, head, c);
    }
    for (int64_t c = 0; c < d; c++) {
        double sum = 0;
        for (int64_t j = keys.begin; j < keys.end; j++) sum += slope[j] * at(k, j, kv, c);
        dq[c] = (float)sum;
    }
}

ht_status ht_plain_attend_rows_gradient(const ht_call *call, ht_error *err) {
    ht_ragged runs;
    const ht_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_status status = ht_ragged_find(call, call->scratch, &runs, err);
    if (status) return status;
    double *scratch = (double *)(void *)((char *)call->scratch + ht_ragged_bytes(call));
    double *sums = scratch + 2 * k->shape[0];
    memset(sums, 0, (size_t)(ht_view_size(k) + ht_view_size(v)) * sizeof *sums);
    float *out = call->out.data;
    for (int64_t i = 0; i < q->shape[0]; i++)
        for (int64_t head = 0; head < q->shape[1]; head++, out += q->shape[2])
            query_gradient(call, &runs, i, head, scratch, out);
    for (int64_t i = 0; i < ht_view_size(k) + ht_view_size(v); i++) *out++ = (float)sums[i];
    return HT_OK;
}
