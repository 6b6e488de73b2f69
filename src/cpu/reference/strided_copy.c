/* Strided copies, and the kernels that use them: copies, concatenation and slice updates. */
#include "cpu/reference/strided_copy.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/elementwise.h"
#include "cpu/reference/reference.h"
#include "cpu/streaming_store.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <string.h>

#define MOVE(type, offset_of_i)                                                                                        \
    for (int64_t i = 0; i < n; i++)                                                                                    \
        ((type *)(void *)to)[i * to_stride] = ((const type *)(const void *)from)[i * from_stride + (offset_of_i)];     \
    return
#define MOVE_BY_BYTES(offset_of_i)                                                                                     \
    switch (bytes) {                                                                                                   \
    case 1: MOVE(uint8_t, offset_of_i);                                                                                \
    case 2: MOVE(uint16_t, offset_of_i);                                                                               \
    case 4: MOVE(uint32_t, offset_of_i);                                                                               \
    default: MOVE(uint64_t, offset_of_i);                                                                              \
    }

void ht_strided_copy_span(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n, size_t bytes) {
    if (to_stride == 1) {
        ht_gather_elements(to, from, from_stride, n, bytes);
        return;
    }
    MOVE_BY_BYTES(0)
}

void ht_take_elements(char *to, int64_t to_stride, const char *from, int64_t from_stride, const int64_t *offset,
                      int64_t n, size_t bytes) {
    MOVE_BY_BYTES(offset[i])
}

typedef struct copy_job {
    char *to;
    const char *from;
    size_t bytes; /* per element */
    bool streaming;
    ht_strided_iterator iterator;
} copy_job;

enum { AHEAD = 2048, MIN_STREAM_BYTES = 256, STAGED_BYTES = 2048, MAX_PREFETCH_STRIDE = 4 };

/* Streams n strided elements through a staging buffer. Operands are prefetched if several elements share a cache
 * line. */
static void stream_strided(char *to, const char *from, int64_t from_stride, int64_t n, int64_t bytes) {
    _Alignas(64) char staged[STAGED_BYTES];
    const size_t per_line = from_stride > 1 && from_stride <= MAX_PREFETCH_STRIDE ? 64 * (size_t)from_stride : 0;
    for (int64_t i = 0, some; i < n; i += some) {
        some = ht_min_i64(n - i, STAGED_BYTES / bytes);
        const char *x = from + i * from_stride * bytes;
        ht_gather_elements(staged, x, from_stride, some, (size_t)bytes);
        const ht_prefetch_stream ahead = {x + some * from_stride * bytes, per_line};
        ht_stream_store(to + i * bytes, staged, (size_t)(some * bytes), &ahead, 1);
    }
}

static void copy_span(void *arg, const ht_strided_span *s) {
    const copy_job *job = arg;
    const int64_t bytes = (int64_t)job->bytes, from_stride = s->stride[1];
    char *to = job->to + s->offset[0] * bytes;
    const char *from = job->from + s->offset[1] * bytes;
    if (!job->streaming || s->stride[0] != 1 || s->n * bytes < MIN_STREAM_BYTES)
        ht_strided_copy_span(to, s->stride[0], from, from_stride, s->n, job->bytes);
    else if (from_stride == 1)
        ht_stream_store(to, from, (size_t)(s->n * bytes), &(ht_prefetch_stream){from + AHEAD, 64}, 1);
    else
        stream_strided(to, from, from_stride, s->n, bytes);
}

static void copy_range(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    copy_job *job = arg;
    ht_strided_iterator_range(&job->iterator, begin, end, copy_span, job);
    if (job->streaming) ht_stream_fence();
}

void ht_strided_copy(ht_pool *pool, const ht_view *to, const ht_view *from) {
    const ht_view *views[] = {to, from};
    copy_job job = {.to = to->data, .from = from->data, .bytes = ht_dtype_bytes(to->dtype)};
    ht_strided_iterator_init(&job.iterator, 2, views);
    job.streaming = ht_use_streaming((size_t)job.iterator.size * job.bytes);
    if (job.iterator.size) ht_pool_run(pool, job.iterator.size, HT_GRAIN_CHEAP, copy_range, &job);
}

/* ---- kernels ---- */

static void copy_call_span(const ht_call *call, const ht_strided_span *s) {
    const int64_t bytes = (int64_t)ht_dtype_bytes(call->out.dtype);
    ht_strided_copy_span((char *)call->out.data + s->offset[0] * bytes, 1,
                         (const char *)call->in[0].data + s->offset[1] * bytes, s->stride[1], s->n, (size_t)bytes);
}

ht_status ht_plain_copy(const ht_call *call, ht_error *err) {
    (void)err;
    ht_strided_elementwise(call, HT_GRAIN_CHEAP, copy_call_span);
    return HT_OK;
}

ht_status ht_plain_concatenate(const ht_call *call, ht_error *err) {
    (void)err;
    const int axis = ((const ht_axis_params *)call->params)->axis;
    ht_view window = call->out;
    if (ht_view_size(&window) == 0) return HT_OK;
    for (int i = 0; i < call->n_in; i++) {
        window.shape[axis] = call->in[i].shape[axis];
        ht_strided_copy(ht_call_pool(call), &window, &call->in[i]);
        window.data = (char *)window.data +
                      window.shape[axis] * call->out.stride[axis] * (int64_t)ht_dtype_bytes(call->out.dtype);
    }
    return HT_OK;
}

/* An array with one window replaced. */
ht_status ht_plain_slice_update(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_slice_params *p = call->params;
    ht_view window = call->out;
    int64_t offset = 0;
    if (call->out.data != call->in[0].data) ht_strided_copy(ht_call_pool(call), &call->out, &call->in[0]);
    for (int i = 0; i < window.n_dims; i++) {
        offset += p->start[i] * window.stride[i];
        window.stride[i] *= p->step[i];
        window.shape[i] = call->in[1].shape[i];
    }
    window.data = (char *)window.data + offset * (int64_t)ht_dtype_bytes(window.dtype);
    ht_strided_copy(ht_call_pool(call), &window, &call->in[1]);
    return HT_OK;
}
