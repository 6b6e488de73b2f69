/* RMS norm and layer norm over the last axis, f32 sums. */
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

typedef struct norm_job {
    const ht_call *call;
    const ht_view *weight; /* NULL: none */
    bool contiguous;
} norm_job;

HT_INLINE float sum_of_squares(ht_dtype t, const void *x, int64_t at, int64_t stride, int64_t n) {
    row_sum sum = row_sum_zero();
    int64_t i = 0;
    if (t == HT_F32 && stride == 1) {
        const float *p = (const float *)x + at;
        for (; i + 64 <= n; i += 64)
            for (int k = 0; k < 4; k++) {
                v16f v = v16f_load(p + i + 16 * k);
                sum.lane[k] = v16f_fma(v, v, sum.lane[k]);
            }
    }
    for (; i < n; i += 16) {
        v16f v = lanes_load(t, x, at + i * stride, stride, lanes_count(n - i));
        sum.lane[i / 16 % 4] = v16f_fma(v, v, sum.lane[i / 16 % 4]);
    }
    return row_sum_total(&sum);
}

static void norm_row(const norm_job *job, int64_t row) {
    const ht_call *call = job->call;
    const ht_rms_norm_params *p = call->params;
    const ht_view *x = &call->in[0], *w = job->weight, *out = &call->out;
    int last = x->n_dims - 1;
    int64_t n = x->shape[last], stride = x->stride[last], at = row_offset(x, job->contiguous, row), to = row * n;
    float squares = sum_of_squares(x->dtype, x->data, at, stride, n);
    v16f scale = v16f_set1(1.0f / sqrtf(squares / (float)n + p->eps)), offset = v16f_set1(p->weight_offset);
    int64_t i = 0;
    if (x->dtype == HT_F32 && out->dtype == HT_F32 && stride == 1 && w && w->dtype == HT_F32 && w->stride[0] == 1) {
        const float *in = (const float *)x->data + at, *by = w->data;
        float *y = (float *)out->data + to;
        for (; i + 16 <= n; i += 16)
            v16f_store(y + i, v16f_mul(v16f_mul(v16f_load(in + i), scale), v16f_add(v16f_load(by + i), offset)));
    }
    for (; i < n; i += 16) {
        int lanes = lanes_count(n - i);
        v16f v = v16f_mul(lanes_load(x->dtype, x->data, at + i * stride, stride, lanes), scale);
        if (w) v = v16f_mul(v, v16f_add(lanes_load(w->dtype, w->data, i * w->stride[0], w->stride[0], lanes), offset));
        lanes_store(out->dtype, out->data, to + i, v, lanes);
    }
}

static void norm_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t row = begin; row < end; row++) norm_row(arg, row);
}

/* Rows [begin, end) of the leading axis, each of which has the rows of all inner axes. */
static void rms_norm_rows(const ht_call *call, int64_t begin, int64_t end) {
    const ht_view *x = &call->in[0];
    int64_t each = 1;
    for (int d = 1; d < x->n_dims - 1; d++) each *= x->shape[d];
    bool has_weight = call->n_in > 1 && !ht_view_absent(&call->in[1]);
    norm_job job = {.call = call, .weight = has_weight ? &call->in[1] : NULL, .contiguous = ht_view_contiguous(x)};
    norm_rows(&job, begin * each, end * each, 0);
}

static ht_status rms_norm(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    const ht_view *w = call->n_in > 1 && !ht_view_absent(&call->in[1]) ? &call->in[1] : NULL;
    if (!lanes_supports(x->dtype) || !lanes_supports(call->out.dtype) || (w && !lanes_supports(w->dtype)))
        return ht_plain_rms_norm(call, err);
    norm_job job = {.call = call, .weight = w, .contiguous = ht_view_contiguous(x)};
    ht_pool_run(ht_call_pool(call), row_count(x), ht_row_grain(HT_GRAIN_CHEAP, x->shape[x->n_dims - 1]), norm_rows,
                &job);
    return HT_OK;
}

/* ---- layer norm ---- */

static float sum_around(const ht_view *x, int64_t at, int64_t stride, int64_t n, float mean, bool squares) {
    row_sum sum = row_sum_zero();
    v16f middle = v16f_set1(mean);
    for (int64_t i = 0; i < n; i += 16) {
        int lanes = lanes_count(n - i);
        v16f v = v16f_sub(lanes_load(x->dtype, x->data, at + i * stride, stride, lanes), middle);
        v16f *to = &sum.lane[i / 16 % 4];
        *to = v16f_select(m16_first(lanes), squares ? v16f_fma(v, v, *to) : v16f_add(v, *to), *to);
    }
    return row_sum_total(&sum);
}

static v16f row_of(const ht_view *w, int64_t i, int lanes) {
    return lanes_load(w->dtype, w->data, i * w->stride[0], w->stride[0], lanes);
}

static void layer_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const norm_job *job = arg;
    const ht_call *call = job->call;
    const ht_view *x = &call->in[0], *w = &call->in[1], *b = &call->in[2], *out = &call->out;
    int last = x->n_dims - 1;
    int64_t n = x->shape[last], stride = x->stride[last];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row_offset(x, job->contiguous, row);
        float mean = sum_around(x, at, stride, n, 0.0f, false) / (float)n;
        float var = sum_around(x, at, stride, n, mean, true) / (float)n;
        v16f scale = v16f_set1(1.0f / sqrtf(var + ((const ht_layer_norm_params *)call->params)->eps));
        for (int64_t i = 0; i < n; i += 16) {
            int lanes = lanes_count(n - i);
            v16f v = lanes_load(x->dtype, x->data, at + i * stride, stride, lanes);
            v = v16f_mul(v16f_sub(v, v16f_set1(mean)), scale);
            if (!ht_view_absent(w)) v = v16f_mul(v, row_of(w, i, lanes));
            if (!ht_view_absent(b)) v = v16f_add(v, row_of(b, i, lanes));
            lanes_store(out->dtype, out->data, row * n + i, v, lanes);
        }
    }
}

static ht_status layer_norm(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (!lanes_supports(x->dtype)) return ht_plain_layer_norm(call, err);
    norm_job job = {.call = call, .contiguous = ht_view_contiguous(x)};
    ht_pool_run(ht_call_pool(call), row_count(x), ht_row_grain(HT_GRAIN_CHEAP, x->shape[x->n_dims - 1]), layer_rows,
                &job);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_norm)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_RMS_NORM] = (ht_kernel){.run = rms_norm};
    kernels[HT_OP_LAYER_NORM].run = layer_norm;
}

void HT_ISA_NAME(ht_vector_norm_rows)(ht_rows_fn *rows[HT_OP_COUNT]) { rows[HT_OP_RMS_NORM] = rms_norm_rows; }
