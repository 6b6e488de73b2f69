/* Batched matrix products. Floating-point sums are accumulated in f64 and rounded once; integer sums are exact. */
#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

ht_matmul_shape ht_matmul_shape_of(const ht_call *call) {
    const ht_view *a = &call->in[0], *b = &call->in[1], *out = &call->out;
    bool transposed = call->params && ((const ht_matmul_params *)call->params)->transpose_b;
    int b_last = b->n_dims - 1, a_last = a->n_dims - 1;
    return (ht_matmul_shape){.m = out->shape[out->n_dims - 2],
                             .n = out->shape[out->n_dims - 1],
                             .k = a->shape[a_last],
                             .a_row = a->stride[a_last - 1],
                             .a_k = a->stride[a_last],
                             .b_k = b->stride[transposed ? b_last : b_last - 1],
                             .b_col = b->stride[transposed ? b_last - 1 : b_last]};
}

typedef struct matmul_job {
    const ht_call *call;
    ht_matmul_shape shape;
} matmul_job;

enum { COLUMNS_AT_ONCE = 64 };

/* Multiplies n <= COLUMNS_AT_ONCE adjacent f32 columns; each column is summed in the same order as alone. */
static void multiply_columns(const float *a, int64_t a_k, const float *b, int64_t b_k, int64_t k, int64_t n,
                             float *out) {
    double sum[COLUMNS_AT_ONCE] = {0};
    for (int64_t l = 0; l < k; l++) {
        const double x = (double)a[l * a_k];
        for (int64_t j = 0; j < n; j++) sum[j] += x * (double)b[l * b_k + j];
    }
    for (int64_t j = 0; j < n; j++) out[j] = (float)sum[j];
}

static bool in_place(const matmul_job *job) {
    const ht_call *call = job->call;
    return job->shape.b_col == 1 && call->in[0].dtype == HT_F32 && call->in[1].dtype == HT_F32 &&
           call->out.dtype == HT_F32;
}

static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const matmul_job *job = arg;
    const ht_matmul_shape s = job->shape;
    const ht_view *a = &job->call->in[0], *b = &job->call->in[1], *out = &job->call->out;
    for (int64_t i = begin; i < end; i++) {
        int64_t a_at = ht_matmul_offset(a, out, i / s.m) + i % s.m * s.a_row;
        int64_t b_base = ht_matmul_offset(b, out, i / s.m);
        if (in_place(job)) {
            const float *from = (const float *)a->data + a_at, *with = (const float *)b->data + b_base;
            float *to = (float *)out->data + i * s.n;
            for (int64_t j = 0; j < s.n; j += COLUMNS_AT_ONCE)
                multiply_columns(from, s.a_k, with + j, s.b_k, s.k, ht_min_i64(COLUMNS_AT_ONCE, s.n - j), to + j);
            continue;
        }
        for (int64_t j = 0; j < s.n; j++) {
            int64_t b_at = b_base + j * s.b_col;
            if (ht_dtype_is_float(out->dtype)) {
                double sum = 0.0;
                for (int64_t l = 0; l < s.k; l++)
                    sum += ht_get_f64(a->dtype, a->data, a_at + l * s.a_k) *
                           ht_get_f64(b->dtype, b->data, b_at + l * s.b_k);
                ht_set_f64(out->dtype, out->data, i * s.n + j, sum);
            } else {
                uint64_t sum = 0;
                for (int64_t l = 0; l < s.k; l++)
                    sum += (uint64_t)ht_get_int(a->dtype, a->data, a_at + l * s.a_k) *
                           (uint64_t)ht_get_int(b->dtype, b->data, b_at + l * s.b_k);
                ht_set_int(out->dtype, out->data, i * s.n + j, (int64_t)sum);
            }
        }
    }
}

ht_status ht_plain_matmul(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *out = &call->out;
    if (ht_view_size(out) == 0) return HT_OK;
    matmul_job job = {call, ht_matmul_shape_of(call)};
    ht_pool_run(ht_call_pool(call), ht_view_size(out) / job.shape.n,
                ht_row_grain(HT_GRAIN_PLAIN, job.shape.n * (job.shape.k + 1)), run_rows, &job);
    return HT_OK;
}

const ht_kernel ht_plain_matmul_kernel = {.run = ht_plain_matmul};
