/* Take and put along one axis, each element by an index of its own: plain kernels. */
#include "base/dtype.h"
#include "cpu/reference/combine.h"
#include "cpu/reference/index_check.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/strided_copy.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <stdatomic.h>

enum { CHUNK = 256 };

typedef struct along_job {
    const ht_view *index;
    ht_view x;      /* what is indexed, in the shape of the index: without its own axis, to which places are added */
    ht_view values; /* taken: the result; put: what is put */
    ht_place_limit limit;
    ht_scatter_mode mode;
    bool takes;
    int axis;
    ht_strided_iterator iterator; /* taken: values, index, x */
    _Atomic bool outside;
} along_job;

static char *at(const ht_view *v, int64_t offset) {
    return (char *)v->data + offset * (int64_t)ht_dtype_bytes(v->dtype);
}

#define TAKE(type)                                                                                                     \
    for (int64_t i = 0; i < n; i++)                                                                                    \
        ((type *)(void *)to)[i * step] = ((const type *)(const void *)from)[i * by + place[i]];                        \
    return

static void take(char *to, int64_t step, const char *from, int64_t by, const int64_t *place, int64_t n, size_t bytes) {
    switch (bytes) {
    case 1: TAKE(uint8_t);
    case 2: TAKE(uint16_t);
    case 4: TAKE(uint32_t);
    default: TAKE(uint64_t);
    }
}

/* n elements that are the given strides apart. */
static void do_span(along_job *job, const int64_t offset[3], const int64_t stride[3], int64_t length) {
    int64_t place[CHUNK];
    const ht_dtype t = job->index->dtype;
    for (int64_t done = 0; done < length; done += CHUNK) {
        int64_t n = length - done < CHUNK ? length - done : CHUNK;
        char *values = at(&job->values, offset[0] + done * stride[0]), *x = at(&job->x, offset[2] + done * stride[2]);
        ht_read_indices(t, at(job->index, offset[1] + done * stride[1]), stride[1], n, place);
        if (!ht_find_places(job->limit, !ht_dtype_is_signed(t), n, place)) atomic_store(&job->outside, true);
        if (job->takes)
            take(values, stride[0], x, stride[2], place, n, ht_dtype_bytes(job->x.dtype));
        else /* along the axis itself, where x has no stride */
            ht_combine(job->mode, job->x.dtype, x, 0, place, values, stride[0], n);
    }
}

static void take_span(void *arg, const ht_strided_span *s) { do_span(arg, s->offset, s->stride, s->n); }

static void take_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    along_job *job = arg;
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

/* Lines along the axis have no elements in common, so each is put in order, by one thread. */
static void put_lines(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    along_job *job = arg;
    const int axis = job->axis;
    const int64_t stride[3] = {job->values.stride[axis], job->index->stride[axis], 0};
    for (int64_t line = begin; line < end; line++) {
        const int64_t offset[3] = {line_offset(&job->values, axis, line), line_offset(job->index, axis, line),
                                   line_offset(&job->x, axis, line)};
        do_span(job, offset, stride, job->index->shape[axis]);
    }
}

static along_job job_of(const ht_view *index, const ht_view *x, const ht_view *values, int axis) {
    along_job job = {.index = index, .x = *x, .values = *values, .axis = axis};
    job.limit = (ht_place_limit){x->shape[axis], x->shape[axis], x->stride[axis]};
    job.x.stride[axis] = 0;
    job.x.shape[axis] = index->shape[axis];
    return job;
}

ht_status ht_plain_take_along(const ht_call *call, ht_error *err) {
    const int axis = ((const ht_axis_params *)call->params)->axis;
    along_job job = job_of(&call->in[1], &call->in[0], &call->out, axis);
    const ht_view *views[] = {&job.values, job.index, &job.x};
    if (ht_view_size(&call->out) == 0) return HT_OK;
    job.takes = true;
    if (job.limit.size == 0) return ht_fail_outside("take_along_axis", job.index, axis, job.limit, err);
    ht_strided_iterator_init(&job.iterator, 3, views);
    ht_pool_run(call->pool, job.iterator.size, HT_GRAIN_PLAIN, take_block, &job);
    return job.outside ? ht_fail_outside("take_along_axis", job.index, axis, job.limit, err) : HT_OK;
}

ht_status ht_plain_put_along(const ht_call *call, ht_error *err) {
    const ht_put_along_params *p = call->params;
    along_job job = job_of(&call->in[1], &call->out, &call->in[2], p->axis);
    const int64_t n = ht_view_size(job.index), length = job.index->shape[p->axis];
    job.mode = p->mode;
    if (call->out.data != call->in[0].data) ht_move(call->pool, &call->out, &call->in[0]);
    if (n == 0) return HT_OK;
    if (job.limit.size == 0) return ht_fail_outside("put_along_axis", job.index, p->axis, job.limit, err);
    ht_pool_run(call->pool, n / length, ht_row_grain(HT_GRAIN_PLAIN, length), put_lines, &job);
    return job.outside ? ht_fail_outside("put_along_axis", job.index, p->axis, job.limit, err) : HT_OK;
}
