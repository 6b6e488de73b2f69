/* Scatter: slices stored at indices, or combined with the stored elements.
 *
 * Colliding slices are combined in index order for any number of threads: each thread owns a part of the result's
 * elements, a range of positions within all slices if slices are long, else a range of slice offsets. */
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/reference/combine.h"
#include "cpu/reference/index_check.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/strided_copy.h"
#include "cpu/strided_iterator.h"

typedef struct scatter_job {
    ht_scatter_mode mode;
    const ht_view *updates, *out;
    const int64_t *slice_offset; /* [n] */
    int n_index_dims;            /* leading axes of updates */
    int64_t n, size, n_parts;
    size_t bytes;
    ht_strided_iterator iterator; /* one slice: view 0 result, view 1 updates */
} scatter_job;

typedef struct slice_job {
    const scatter_job *job;
    char *to;
    const char *from;
} slice_job;

static void combine_span(void *arg, const ht_strided_span *s) {
    const slice_job *slice = arg;
    const int64_t bytes = (int64_t)slice->job->bytes;
    ht_combine(slice->job->mode, slice->job->out->dtype, slice->to + s->offset[0] * bytes, s->stride[0], NULL,
               slice->from + s->offset[1] * bytes, s->stride[1], s->n);
}

/* Combines elements [begin, end) of slice i. */
static void combine_slice(const scatter_job *job, int64_t i, int64_t begin, int64_t end) {
    const int64_t bytes = (int64_t)job->bytes;
    slice_job slice = {job, (char *)job->out->data + job->slice_offset[i] * bytes,
                       (const char *)job->updates->data + ht_view_offset(job->updates, job->n_index_dims, i) * bytes};
    ht_strided_iterator_range(&job->iterator, begin, end, combine_span, &slice);
}

static void combine_columns(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scatter_job *job = arg;
    for (int64_t i = 0; i < job->n; i++) combine_slice(job, i, begin, end);
}

static bool updates_are_a_row(const scatter_job *job, int64_t *stride) {
    const ht_view *u = job->updates;
    *stride = 0;
    int axis = -1;
    for (int i = 0; i < job->n_index_dims; i++) {
        if (u->shape[i] == 1) continue;
        if (axis >= 0) return false;
        axis = i;
        *stride = u->stride[i];
    }
    return true;
}

/* Combines the slices whose offsets are in one part of the result. */
static void combine_part(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scatter_job *job = arg;
    const int64_t out_size = ht_view_size(job->out), low = out_size / job->n_parts * begin;
    const int64_t high = end == job->n_parts ? out_size : out_size / job->n_parts * end;
    for (int64_t i = 0; i < job->n; i++)
        if (job->slice_offset[i] >= low && job->slice_offset[i] < high) combine_slice(job, i, 0, job->size);
}

enum { LONG_SLICE = 1024 };

static void scatter(const ht_call *call, scatter_job *job, bool disjoint) {
    int64_t stride;
    if (job->size == 1 && updates_are_a_row(job, &stride) && (job->n < HT_GRAIN_CHEAP || !disjoint)) {
        ht_combine(job->mode, job->out->dtype, job->out->data, 0, job->slice_offset, job->updates->data, stride,
                   job->n);
        return;
    }
    bool small = job->n * job->size < HT_GRAIN_CHEAP || ht_pool_threads(ht_call_pool(call)) == 1;
    if (!small && job->size >= LONG_SLICE)
        ht_pool_run(ht_call_pool(call), job->size, LONG_SLICE / 4, combine_columns, job);
    else if (!small && disjoint) {
        job->n_parts = 2 * ht_pool_threads(ht_call_pool(call));
        ht_pool_run(ht_call_pool(call), job->n_parts, 1, combine_part, job);
    } else
        for (int64_t i = 0; i < job->n; i++) combine_slice(job, i, 0, job->size);
}

ht_status ht_plain_scatter(const ht_call *call, ht_error *err) {
    const ht_scatter_params *p = call->params;
    const ht_view *out = &call->out, *updates = &call->in[call->n_in - 1];
    const int n = call->n_in - 2, n_index_dims = updates->n_dims - out->n_dims;
    bool disjoint = true; /* any two slices coincide or do not overlap */
    for (int i = 0; i < n; i++) {
        const int axis = p->axis[i];
        const int64_t length = out->shape[axis], size = updates->shape[n_index_dims + axis];
        const ht_index_bounds bounds = {length, length - size + 1, out->stride[axis]};
        disjoint &= size == 1;
        ht_status st =
            ht_index_offsets(ht_call_pool(call), "scatter", &call->in[1 + i], axis, bounds, i > 0, call->scratch, err);
        if (st) return st;
    }
    if (out->data != call->in[0].data) ht_strided_copy(ht_call_pool(call), out, &call->in[0]);
    ht_view to = *out, from = {.dtype = out->dtype, .n_dims = out->n_dims};
    for (int i = 0; i < out->n_dims; i++) {
        from.shape[i] = to.shape[i] = updates->shape[n_index_dims + i];
        from.stride[i] = updates->stride[n_index_dims + i];
    }
    scatter_job job = {.mode = p->mode, .updates = updates, .out = out, .slice_offset = call->scratch};
    job.n_index_dims = n_index_dims;
    job.n = ht_view_size(&call->in[1]);
    job.size = ht_view_size(&to);
    job.bytes = ht_dtype_bytes(out->dtype);
    const ht_view *views[] = {&to, &from};
    ht_strided_iterator_init(&job.iterator, 2, views);
    if (job.n > 0 && job.size > 0) scatter(call, &job, disjoint);
    return HT_OK;
}
