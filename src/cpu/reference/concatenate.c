/* Arrays behind each other along an axis: each is copied to its window of the result. */
#include "cpu/reference/reference.h"
#include "cpu/walk.h"
#include "device/params.h"

#include <string.h>

typedef struct copy_job {
    char *to;
    const char *from;
    size_t bytes; /* of an element */
    ht_walk walk; /* the window, then the operand */
} copy_job;

static void copy_span(void *arg, const ht_span *s) {
    const copy_job *job = arg;
    const int64_t bytes = (int64_t)job->bytes;
    if (s->stride[0] == 1 && s->stride[1] == 1) {
        memcpy(job->to + s->offset[0] * bytes, job->from + s->offset[1] * bytes, (size_t)(s->n * bytes));
        return;
    }
    for (int64_t i = 0; i < s->n; i++)
        memcpy(job->to + (s->offset[0] + i * s->stride[0]) * bytes,
               job->from + (s->offset[1] + i * s->stride[1]) * bytes, job->bytes);
}

static void copy_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    copy_job *job = arg;
    ht_walk_range(&job->walk, begin, end, copy_span, job);
}

ht_status ht_plain_concatenate(const ht_call *call, ht_error *err) {
    (void)err;
    const int axis = ((const ht_axis_params *)call->params)->axis;
    const size_t bytes = ht_dtype_bytes(call->out.dtype);
    ht_view window = call->out;
    char *to = call->out.data;
    for (int i = 0; i < call->n_in; i++) {
        const ht_view *in = &call->in[i], *views[] = {&window, in};
        window.shape[axis] = in->shape[axis];
        copy_job job = {.to = to, .from = in->data, .bytes = bytes};
        ht_walk_init(&job.walk, 2, views);
        if (job.walk.size) ht_pool_run(call->pool, job.walk.size, HT_GRAIN_CHEAP, copy_block, &job);
        to += (size_t)(in->shape[axis] * call->out.stride[axis]) * bytes;
    }
    return HT_OK;
}
