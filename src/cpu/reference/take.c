/* Gather: slices of an array by index, along one or several axes. */
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/reference/index_check.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/strided_copy.h"
#include "cpu/streaming_store.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <string.h>

typedef struct take_job {
    const ht_view *x;
    int n_outer;           /* leading axes of x; all indices apply to each of their entries */
    const int64_t *offset; /* [n]: slice starts, relative to the outer entry */
    int64_t n, size;       /* slices, and elements per slice */
    char *out;
    size_t bytes;                 /* per element */
    ht_strided_iterator iterator; /* one slice: view 0 result, view 1 x */
    bool streaming;
} take_job;

typedef struct slice_job {
    char *to;
    const char *from;
    size_t bytes;
} slice_job;

static void copy_span(void *arg, const ht_strided_span *s) {
    const slice_job *job = arg;
    const int64_t bytes = (int64_t)job->bytes;
    ht_strided_copy_span(job->to + s->offset[0] * bytes, s->stride[0], job->from + s->offset[1] * bytes, s->stride[1],
                         s->n, job->bytes);
}

enum { LINE = 64, MAX_PREFETCH_BYTES = 8 * LINE };

/* Copies contiguous slices and prefetches the next one, whose random address the hardware prefetcher cannot predict. */
static void take_contiguous(const take_job *job, char *to, const char *from, const int64_t *offset, int64_t n) {
    const int64_t bytes = (int64_t)job->bytes;
    const size_t run = (size_t)job->size * job->bytes, prefetched = run < MAX_PREFETCH_BYTES ? run : MAX_PREFETCH_BYTES;
    for (int64_t i = 0; i < n; i++, to += run) {
        const char *next = from + offset[i + 1 < n ? i + 1 : i] * bytes;
        const ht_prefetch_stream ahead = {next, LINE};
        if (job->streaming) {
            ht_stream_store(to, from + offset[i] * bytes, run, &ahead, 1);
            continue;
        }
        for (size_t k = 0; k < prefetched; k += LINE) __builtin_prefetch(next + k);
        memcpy(to, from + offset[i] * bytes, run);
    }
    if (job->streaming) ht_stream_fence();
}

static void take_slices(const take_job *job, char *to, const char *from, const int64_t *offset, int64_t n) {
    const int64_t bytes = (int64_t)job->bytes;
    if (job->size == 1) {
        ht_take_elements(to, 1, from, 0, offset, n, job->bytes);
        return;
    }
    if (job->iterator.n_dims == 1 && job->iterator.stride[1][0] == 1) {
        take_contiguous(job, to, from, offset, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        slice_job slice = {to + i * job->size * bytes, from + offset[i] * bytes, job->bytes};
        if (job->iterator.n_dims == 1)
            ht_strided_copy_span(slice.to, 1, slice.from, job->iterator.stride[1][0], job->size, job->bytes);
        else
            ht_strided_iterator_range(&job->iterator, 0, job->size, copy_span, &slice);
    }
}

static void take_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const take_job *job = arg;
    const int64_t bytes = (int64_t)job->bytes;
    for (int64_t row = begin; row < end;) {
        int64_t first = row % job->n, n = job->n - first < end - row ? job->n - first : end - row;
        const char *from = (const char *)job->x->data + ht_view_offset(job->x, job->n_outer, row / job->n) * bytes;
        take_slices(job, job->out + row * job->size * bytes, from, job->offset + first, n);
        row += n;
    }
}

/* Gathers slices of `shape` along the axes from `first` on, at the n offsets in the scratch memory. */
static void take(const ht_call *call, int n_outer, int first, const int64_t *shape, int64_t n) {
    const ht_view *x = &call->in[0];
    ht_view slice = {.dtype = x->dtype, .n_dims = x->n_dims - first}, packed;
    for (int i = first; i < x->n_dims; i++) {
        slice.shape[i - first] = shape[i];
        slice.stride[i - first] = x->stride[i];
    }
    packed = slice;
    int64_t size = 1, outer = 1;
    for (int i = slice.n_dims - 1; i >= 0; size *= slice.shape[i--]) packed.stride[i] = size;
    for (int i = 0; i < n_outer; i++) outer *= x->shape[i];
    take_job job = {.x = x, .n_outer = n_outer, .offset = call->scratch, .n = n, .size = size};
    job.out = call->out.data;
    job.bytes = ht_dtype_bytes(x->dtype);
    job.streaming = size * (int64_t)job.bytes >= LINE && ht_use_streaming((size_t)ht_view_size(&call->out) * job.bytes);
    const ht_view *views[] = {&packed, &slice};
    ht_strided_iterator_init(&job.iterator, 2, views);
    if (ht_view_size(&call->out) > 0)
        ht_pool_run(ht_call_pool(call), outer * n, ht_row_grain(HT_GRAIN_CHEAP, size), take_block, &job);
}

size_t ht_plain_take_scratch(const ht_call *call) { return (size_t)ht_view_size(&call->in[1]) * sizeof(int64_t); }

ht_status ht_plain_take(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0], *index = &call->in[1];
    const int axis = ((const ht_axis_params *)call->params)->axis;
    const ht_index_bounds limit = {x->shape[axis], x->shape[axis], x->stride[axis]};
    ht_status st = ht_index_offsets(ht_call_pool(call), "take", index, axis, limit, false, call->scratch, err);
    if (st == HT_OK) take(call, axis, axis + 1, x->shape, ht_view_size(index));
    return st;
}

ht_status ht_plain_gather(const ht_call *call, ht_error *err) {
    const ht_gather_params *p = call->params;
    const ht_view *x = &call->in[0];
    const int n = call->n_in - 1;
    for (int i = 0; i < n; i++) {
        const int axis = p->axis[i];
        const ht_index_bounds limit = {x->shape[axis], x->shape[axis] - p->size[axis] + 1, x->stride[axis]};
        ht_status st =
            ht_index_offsets(ht_call_pool(call), "gather", &call->in[1 + i], axis, limit, i > 0, call->scratch, err);
        if (st) return st;
    }
    take(call, 0, 0, p->size, ht_view_size(&call->in[1]));
    return HT_OK;
}
