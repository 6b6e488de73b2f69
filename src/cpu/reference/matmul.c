/* Batched products of arrays. Floating-point sums are taken in f64 and rounded once, integer sums are exact. */
#include "base/checked.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/walk.h"
#include "device/params.h"

typedef struct matmul_job {
    const ht_call *call;
    int64_t m, n, k;
    int64_t a_row, a_k, b_k, b_col; /* strides */
} matmul_job;

/* Offset of the operand's matrix for batch entry `flat` of the result; leading axes that are missing or of length 1 are
 * repeated. */
static int64_t batch_offset(const ht_view *v, const ht_view *out, int64_t flat) {
    int64_t offset = 0;
    for (int d = out->n_dims - 3; d >= 0; d--) {
        int64_t index = flat % out->shape[d];
        flat /= out->shape[d];
        int own = d - (out->n_dims - v->n_dims);
        if (own >= 0 && v->shape[own] != 1) offset += index * v->stride[own];
    }
    return offset;
}

enum { ABREAST = 64 };

/* n <= ABREAST neighbouring columns of f32, whose sums take the same steps as they do alone. */
static void run_abreast(const float *a, int64_t a_k, const float *b, int64_t b_k, int64_t k, int64_t n, float *out) {
    double sum[ABREAST] = {0};
    for (int64_t l = 0; l < k; l++) {
        const double x = (double)a[l * a_k];
        for (int64_t j = 0; j < n; j++) sum[j] += x * (double)b[l * b_k + j];
    }
    for (int64_t j = 0; j < n; j++) out[j] = (float)sum[j];
}

static bool in_place(const matmul_job *job) {
    const ht_call *call = job->call;
    return job->b_col == 1 && call->in[0].dtype == HT_F32 && call->in[1].dtype == HT_F32 && call->out.dtype == HT_F32;
}

static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const matmul_job *job = arg;
    const ht_view *a = &job->call->in[0], *b = &job->call->in[1], *out = &job->call->out;
    for (int64_t i = begin; i < end; i++) {
        int64_t a_at = batch_offset(a, out, i / job->m) + i % job->m * job->a_row;
        int64_t b_base = batch_offset(b, out, i / job->m);
        if (in_place(job)) {
            const float *from = (const float *)a->data + a_at, *with = (const float *)b->data + b_base;
            float *to = (float *)out->data + i * job->n;
            for (int64_t j = 0; j < job->n; j += ABREAST)
                run_abreast(from, job->a_k, with + j, job->b_k, job->k, ht_min_i64(ABREAST, job->n - j), to + j);
            continue;
        }
        for (int64_t j = 0; j < job->n; j++) {
            int64_t b_at = b_base + j * job->b_col;
            if (ht_dtype_is_float(out->dtype)) {
                double sum = 0.0;
                for (int64_t l = 0; l < job->k; l++)
                    sum += ht_get_f64(a->dtype, a->data, a_at + l * job->a_k) *
                           ht_get_f64(b->dtype, b->data, b_at + l * job->b_k);
                ht_set_f64(out->dtype, out->data, i * job->n + j, sum);
            } else {
                uint64_t sum = 0;
                for (int64_t l = 0; l < job->k; l++)
                    sum += (uint64_t)ht_get_int(a->dtype, a->data, a_at + l * job->a_k) *
                           (uint64_t)ht_get_int(b->dtype, b->data, b_at + l * job->b_k);
                ht_set_int(out->dtype, out->data, i * job->n + j, (int64_t)sum);
            }
        }
    }
}

ht_status ht_plain_matmul(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *a = &call->in[0], *b = &call->in[1], *out = &call->out;
    if (ht_view_size(out) == 0) return HT_OK;
    bool transposed = call->params && ((const ht_matmul_params *)call->params)->transpose_b;
    int b_last = b->n_dims - 1, a_last = a->n_dims - 1;
    matmul_job job = {.call = call,
                      .m = out->shape[out->n_dims - 2],
                      .n = out->shape[out->n_dims - 1],
                      .k = a->shape[a_last],
                      .a_row = a->stride[a_last - 1],
                      .a_k = a->stride[a_last],
                      .b_k = b->stride[transposed ? b_last : b_last - 1],
                      .b_col = b->stride[transposed ? b_last - 1 : b_last]};
    ht_pool_run(call->pool, ht_view_size(out) / job.n, ht_row_grain(HT_GRAIN_PLAIN, job.n * (job.k + 1)), run_rows,
                &job);
    return HT_OK;
}
