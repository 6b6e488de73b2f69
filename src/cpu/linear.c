#include "cpu/linear.h"

#include "base/checked.h"
#include "base/error.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/experts.h"
#include "cpu/head_loss.h"
#include "cpu/matrix_ops.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <stdatomic.h>

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static bool bias_in_place(const ht_view *b) {
    return ht_view_absent(b) || (b->dtype == HT_F32 && ht_view_contiguous(b));
}

/* Scratch: the product's own, then a contiguous f32 copy of x where one is needed, then one of the bias. */
static size_t linear_scratch(const ht_call *call) {
    const ht_matrix *m = ((const ht_linear_params *)call->params)->matrix;
    const ht_view *x = &call->in[0];
    int64_t n = x->n_dims > 0 && x->shape[x->n_dims - 1] > 0 ? ht_view_size(x) / x->shape[x->n_dims - 1] : 0, ld;
    size_t bytes = aligned(ht_cpu_ops_of(m)->mul_scratch(m, n, ht_pool_threads(ht_call_pool(call))));
    if (!ht_view_has_rows(x, &ld)) bytes += aligned((size_t)ht_view_size(x) * sizeof(float));
    if (call->n_in > 1 && !bias_in_place(&call->in[1])) bytes += aligned((size_t)m->n_rows * sizeof(float));
    return bytes;
}

typedef struct copy_job {
    const ht_view *from;
    float *to;
} copy_job;

static void copy_span(void *arg, const ht_strided_span *s) {
    copy_job *job = arg;
    for (int64_t i = 0; i < s->n; i++)
        *job->to++ = ht_get_f32(job->from->dtype, job->from->data, s->offset[0] + i * s->stride[0]);
}

static const float *copy_f32(const ht_view *v, float *to) {
    ht_strided_iterator iterator;
    copy_job job = {v, to};
    ht_strided_iterator_init(&iterator, 1, &v);
    ht_strided_iterator_range(&iterator, 0, iterator.size, copy_span, &job);
    return to;
}

static ht_status linear(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_matrix *m = ((const ht_linear_params *)call->params)->matrix;
    const ht_view *x = &call->in[0];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    int64_t n = ht_view_size(&call->out) / m->n_rows, ld = m->k;
    char *room =
        (char *)call->scratch + aligned(ht_cpu_ops_of(m)->mul_scratch(m, n, ht_pool_threads(ht_call_pool(call))));
    const float *rows = x->data, *bias = NULL;
    if (!ht_view_has_rows(x, &ld)) {
        rows = copy_f32(x, (float *)(void *)room);
        room += aligned((size_t)ht_view_size(x) * sizeof(float));
        ld = m->k;
    }
    if (call->n_in > 1 && !ht_view_absent(&call->in[1]))
        bias = bias_in_place(&call->in[1]) ? call->in[1].data : copy_f32(&call->in[1], (float *)(void *)room);
    const ht_product p = {m, rows, ld, n, bias, call->out.data, m->n_rows, call->top_k};
    ht_cpu_ops_of(m)->mul(&p, call->scratch, ht_call_pool(call));
    return HT_OK;
}

/* Scratch: the product's own, then a contiguous copy of the gradients where one is needed. */
static size_t linear_back_scratch(const ht_call *call) {
    const ht_matrix *m = ((const ht_linear_params *)call->params)->matrix;
    int64_t ld;
    size_t bytes = aligned(ht_back_scratch(m, ht_pool_threads(ht_call_pool(call))));
    return ht_view_has_rows(&call->in[0], &ld) ? bytes : bytes + (size_t)ht_view_size(&call->in[0]) * sizeof(float);
}

static ht_status linear_back(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_matrix *m = ((const ht_linear_params *)call->params)->matrix;
    const ht_view *dy = &call->in[0];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const int64_t n = ht_view_size(&call->out) / m->k;
    const float *rows = dy->data;
    int64_t ld;
    if (!ht_view_has_rows(dy, &ld)) {
        const size_t own = aligned(ht_back_scratch(m, ht_pool_threads(ht_call_pool(call))));
        rows = copy_f32(dy, (float *)(void *)((char *)call->scratch + own));
        ld = m->n_rows;
    }
    const ht_product p = {m, rows, ld, n, NULL, call->out.data, m->k, 0};
    ht_back_mul(&p, call->scratch, ht_call_pool(call));
    return HT_OK;
}

typedef struct embed_job {
    const ht_matrix *matrix;
    const ht_view *ids;
    float *out;
    float scale;
    atomic_bool failed;
} embed_job;

static ht_status embed_range(const embed_job *job, int64_t begin, int64_t end, ht_error *err) {
    const ht_matrix *m = job->matrix;
    for (int64_t i = begin; i < end; i++) {
        int64_t id = ht_get_int(job->ids->dtype, job->ids->data, ht_view_offset(job->ids, job->ids->n_dims, i));
        float *out = job->out + i * m->k;
        ht_status status = m->ops->row(m, id, out, err);
        if (status) return status;
        if (job->scale != 1.0f)
            for (int64_t j = 0; j < m->k; j++) out[j] *= job->scale;
    }
    return HT_OK;
}

static void embed_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    embed_job *job = arg;
    if (embed_range(job, begin, end, NULL)) atomic_store(&job->failed, true);
}

static ht_status embed(const ht_call *call, ht_error *err) {
    const ht_linear_params *p = call->params;
    const ht_view *ids = &call->in[0];
    int64_t n = ht_view_size(ids);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = ht_get_int(ids->dtype, ids->data, ht_view_offset(ids, ids->n_dims, i));
        if (id < 0 || id >= p->matrix->n_rows)
            return ht_fail(err, HT_ERR_ARGUMENT, "token id %lld at position %lld is outside the vocabulary of %lld",
                           (long long)id, (long long)i, (long long)p->matrix->n_rows);
    }
    embed_job job = {.matrix = p->matrix, .ids = ids, .out = call->out.data, .scale = p->scale};
    ht_pool_run(ht_call_pool(call), n, ht_row_grain(HT_GRAIN_CHEAP, p->matrix->k), embed_rows, &job);
    /* Once more in order, for the first row that fails to say why. */
    return atomic_load(&job.failed) ? embed_range(&job, 0, n, err) : HT_OK;
}

void ht_cpu_linear_kernels(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_LINEAR] = (ht_kernel){.run = linear, .scratch = linear_scratch};
    kernels[HT_OP_LINEAR_BACK] = (ht_kernel){.run = linear_back, .scratch = linear_back_scratch};
    kernels[HT_OP_HEAD_LOSS] = (ht_kernel){.run = ht_cpu_head_loss, .scratch = ht_cpu_head_loss_scratch};
    kernels[HT_OP_HEAD_LOSS_GRAD] = (ht_kernel){.run = ht_cpu_head_loss_grad, .scratch = ht_cpu_head_loss_grad_scratch};
    kernels[HT_OP_EMBED].run = embed;
    kernels[HT_OP_LINEAR_GATHER] = (ht_kernel){.run = ht_cpu_linear_gather, .scratch = ht_cpu_linear_gather_scratch};
    kernels[HT_OP_LINEAR_GATHER_BACK] =
        (ht_kernel){.run = ht_cpu_linear_gather_back, .scratch = ht_cpu_linear_gather_back_scratch};
}
