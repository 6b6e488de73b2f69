/* Quantised arrays: quantisation, dequantisation and products, one group at a time, and gathered matrix products. Sums
 * are f64. */
#include "base/checked.h"
#include "base/error.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/gather_qmm.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"
#include "formats/groups.h"

#include <string.h>

/* ---- quantize and dequantize ---- */

static void encode_groups(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_quantize_params *p = call->params;
    const ht_view *w = &call->in[0], *out = &call->out;
    int last = w->n_dims - 1;
    int64_t per_row = w->shape[last] / p->how.group, bytes = p->how.group * p->how.bits / 8;
    for (int64_t g = begin; g < end; g++) {
        float x[HT_GROUP_MOST];
        ht_group group;
        int64_t at = ht_view_offset(w, last, g / per_row) + g % per_row * p->how.group * w->stride[last];
        for (int64_t i = 0; i < p->how.group; i++) x[i] = ht_get_f32(w->dtype, w->data, at + i * w->stride[last]);
        ht_groups_encode(&p->how, x, &group);
        if (p->part == 0)
            memcpy((char *)out->data + g * bytes, group.numbers, (size_t)bytes);
        else if (p->how.mode == HT_QUANT_AFFINE)
            ht_set_f32(out->dtype, out->data, g, p->part == 1 ? group.scale : group.bias);
        else
            ((uint8_t *)out->data)[g] = group.code;
    }
}

ht_status ht_plain_quantize(const ht_call *call, ht_error *err) {
    (void)err;
    ht_run_rows(call, &call->in[0], ((const ht_quantize_params *)call->params)->how.group, encode_groups, call);
    return HT_OK;
}

static void decode_groups(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_quantize_params *p = call->params;
    const ht_view *scales = &call->in[1], *biases = &call->in[2];
    int64_t bytes = p->how.group * p->how.bits / 8;
    for (int64_t g = begin; g < end; g++) {
        float x[HT_GROUP_MOST], scale = ht_groups_scale(p->how.mode, scales->dtype, scales->data, g), bias = 0.0f;
        if (!ht_view_absent(biases)) bias = ht_groups_scale(p->how.mode, biases->dtype, biases->data, g);
        ht_groups_decode(&p->how, (const uint8_t *)call->in[0].data + g * bytes, scale, bias, x);
        for (int64_t i = 0; i < p->how.group; i++)
            ht_set_f32(call->out.dtype, call->out.data, g * p->how.group + i, x[i]);
    }
}

ht_status ht_plain_dequantize(const ht_call *call, ht_error *err) {
    (void)err;
    ht_run_rows(call, &call->out, ((const ht_quantize_params *)call->params)->how.group, decode_groups, call);
    return HT_OK;
}

/* ---- products ---- */

typedef struct product_job {
    const ht_call *call;
    const ht_quantize_params *p; /* NULL: dense matrices */
    int64_t m, n, k;
} product_job;

static double weight(const product_job *job, int64_t entry, int64_t l, int64_t j) {
    const ht_call *call = job->call;
    if (!job->p) {
        const ht_view *b = &call->in[1];
        int last = b->n_dims - 1;
        return ht_get_f64(b->dtype, b->data,
                          ht_gather_right(call, b, entry) + l * b->stride[last - 1] + j * b->stride[last]);
    }
    const ht_quantization *how = &job->p->how;
    int64_t row = job->p->transpose ? j : l, column = job->p->transpose ? l : j;
    const ht_view *w = &call->in[1], *scales = &call->in[2], *biases = &call->in[3];
    int64_t groups = scales->shape[scales->n_dims - 1], words = w->shape[w->n_dims - 1], g = column / how->group;
    int64_t at = ht_gather_right(call, scales, entry) + row * groups + g;
    const uint8_t *numbers =
        (const uint8_t *)w->data + (ht_gather_right(call, w, entry) + row * words) * 4 + g * how->group * how->bits / 8;
    float x[HT_GROUP_MOST], scale = ht_groups_scale(how->mode, scales->dtype, scales->data, at), bias = 0.0f;
    if (!ht_view_absent(biases))
        bias = ht_groups_scale(how->mode, biases->dtype, biases->data,
                               ht_gather_right(call, biases, entry) + row * groups + g);
    ht_groups_decode(how, numbers, scale, bias, x);
    return (double)x[column % how->group];
}

static void multiply_columns(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const product_job *job = arg;
    const ht_view *x = &job->call->in[0], *out = &job->call->out;
    int last = x->n_dims - 1;
    for (int64_t c = begin; c < end; c++) {
        int64_t entry = c / job->n, j = c % job->n, from = ht_gather_left(job->call, entry);
        for (int64_t i = 0; i < job->m; i++) {
            double sum = 0.0;
            for (int64_t l = 0; l < job->k; l++)
                sum += ht_get_f64(x->dtype, x->data, from + i * x->stride[last - 1] + l * x->stride[last]) *
                       weight(job, entry, l, j);
            ht_set_f64(out->dtype, out->data, (entry * job->m + i) * job->n + j, sum);
        }
    }
}

static ht_status multiply(const ht_call *call, const ht_quantize_params *p, ht_error *err) {
    const ht_view *x = &call->in[0], *out = &call->out;
    ht_status st = ht_gather_check(call, err);
    if (st || ht_view_size(out) == 0) return st;
    product_job job = {call, p, out->shape[out->n_dims - 2], out->shape[out->n_dims - 1], x->shape[x->n_dims - 1]};
    ht_pool_run(ht_call_pool(call), ht_view_size(out) / job.m, 1, multiply_columns, &job);
    return HT_OK;
}

ht_status ht_plain_quantized_matmul(const ht_call *call, ht_error *err) { return multiply(call, call->params, err); }
ht_status ht_plain_gather_mm(const ht_call *call, ht_error *err) { return multiply(call, NULL, err); }
