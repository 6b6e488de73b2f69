/* take_along_axis and put_along_axis, plain kernels: one index per element. */
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/reference/combine.h"
#include "cpu/reference/index_check.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/strided_copy.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <stdatomic.h>

enum { CHUNK = 256 };

typedef struct along_axis_job {
    const ht_view *index;
    ht_view x;      /* indexed array in the shape of `index`; stride 0 along the axis, where offsets are added */
    ht_view values; /* result of take, updates of put */
    ht_index_bounds bounds;
    ht_scatter_mode mode;
    bool is_take;
    int axis;
    ht_strided_iterator iterator; /* take: values, index, x */
    _Atomic bool outside;
} along_axis_job;

static char *at(const ht_view *v, int64_t offset) {
    return (char *)v->data + offset * (int64_t)ht_dtype_bytes(v->dtype);
}

/* Takes or puts elements of one span; offset and stride of values, index and x. */
static void run_elements(along_axis_job *job, const int64_t offset[3], const int64_t stride[3], int64_t length) {
    int64_t offsets[CHUNK];
    const ht_dtype t = job->index->dtype;
    for (int64_t done = 0; done < length; done += CHUNK) {
        int64_t n = length - done < CHUNK ? length - done : CHUNK;
        char *values = at(&job->values, offset[0] + done * stride[0]), *x = at(&job->x, offset[2] + done * stride[2]);
        ht_read_indices(t, at(job->index, offset[1] + done * stride[1]), stride[1], n, offsets);
        if (!ht_resolve_indices(job->bounds, !ht_dtype_is_signed(t), n, offsets)) atomic_store(&job->outside, true);
        if (job->is_take)
            ht_take_elements(values, stride[0], x, stride[2], offsets, n, ht_dtype_bytes(job->x.dtype));
        else /* put runs along the axis itself, where x has stride 0 */
            ht_combine(job->mode, job->x.dtype, x, 0, offsets, values, stride[0], n);
    }
}

static void take_span(void *arg, const ht_strided_span *s) { run_elements(arg, s->offset, s->stride, s->n); }

static void take_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    along_axis_job *job = arg;
    ht_strided_iterator_range(&job->iterator, begin, end, take_span, job);
}

static int64_t line_offset(const ht_view *v, int axis, int64_t line) {
    int64_t offset = 0;
    for (int d = v->n_dims - 1; d >= 0; d--) {
        if (d == axis) continue;
        offset += line % v->shape[d] * v->stride[d];
        line /= v->shape[d];
    }
    return offset;
}

/* Lines along the axis are disjoint, so one thread puts each line in index order. */
static void put_along_lines(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    along_axis_job *job = arg;
    const int axis = job->axis;
    const int64_t stride[3] = {job->values.stride[axis], job->index->stride[axis], 0};
    for (int64_t line = begin; line < end; line++) {
        const int64_t offset[3] = {line_offset(&job->values, axis, line), line_offset(job->index, axis, line),
                                   line_offset(&job->x, axis, line)};
        run_elements(job, offset, stride, job->index->shape[axis]);
    }
}

static along_axis_job job_of(const ht_view *index, const ht_view *x, const ht_view *values, int axis) {
    along_axis_job job = {.index = index, .x = *x, .values = *values, .axis = axis};
    job.bounds = (ht_index_bounds){x->shape[axis], x->shape[axis], x->stride[axis]};
    job.x.stride[axis] = 0;
    job.x.shape[axis] = index->shape[axis];
    return job;
}

ht_status ht_plain_take_along(const ht_call *call, ht_error *err) {
    const int axis = ((const ht_axis_params *)call->params)->axis;
    along_axis_job job = job_of(&call->in[1], &call->in[0], &call->out, axis);
    const ht_view *views[] = {&job.values, job.index, &job.x};
    if (ht_view_size(&call->out) == 0) return HT_OK;
    job.is_take = true;
    if (job.bounds.size == 0) return ht_fail_index_bounds("take_along_axis", job.index, axis, job.bounds, err);
    ht_strided_iterator_init(&job.iterator, 3, views);
    ht_pool_run(ht_call_pool(call), job.iterator.size, HT_GRAIN_PLAIN, take_block, &job);
    return job.outside ? ht_fail_index_bounds("take_along_axis", job.index, axis, job.bounds, err) : HT_OK;
}

ht_status ht_plain_put_along(const ht_call *call, ht_error *err) {
    const ht_put_along_params *p = call->params;
    along_axis_job job = job_of(&call->in[1], &call->out, &call->in[2], p->axis);
    const int64_t n = ht_view_size(job.index), length = job.index->shape[p->axis];
    job.mode = p->mode;
    if (call->out.data != call->in[0].data) ht_strided_copy(ht_call_pool(call), &call->out, &call->in[0]);
    if (n == 0) return HT_OK;
    if (job.bounds.size == 0) return ht_fail_index_bounds("put_along_axis", job.index, p->axis, job.bounds, err);
    ht_pool_run(ht_call_pool(call), n / length, ht_row_grain(HT_GRAIN_PLAIN, length), put_along_lines, &job);
    return job.outside ? ht_fail_index_bounds("put_along_axis", job.index, p->axis, job.bounds, err) : HT_OK;
}
