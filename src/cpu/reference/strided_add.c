/* Strided accumulation: elements added to zeros at the positions of a window. */
#include "base/half.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <stdlib.h>
#include <string.h>

typedef struct add_job {
    ht_dtype dtype;
    void *to;                     /* first element of the window */
    const void *from;             /* first element of x */
    ht_strided_iterator iterator; /* view 0: x, view 1: window */
} add_job;

static void add_span(void *arg, const ht_strided_span *s) {
    const add_job *job = arg;
    int64_t from = s->offset[0], to = s->offset[1], step = s->stride[0], step_to = s->stride[1];
    if (job->dtype == HT_F32) {
        const float *x = (const float *)job->from + from;
        float *y = (float *)job->to + to;
        for (int64_t i = 0; i < s->n; i++) y[i * step_to] += x[i * step];
        return;
    }
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = from + i * step, o = to + i * step_to;
        if (!ht_dtype_is_float(job->dtype))
            ht_set_int(job->dtype, job->to, o,
                       (int64_t)((uint64_t)ht_get_int(job->dtype, job->to, o) +
                                 (uint64_t)ht_get_int(job->dtype, job->from, a)));
        else if (job->dtype == HT_F64)
            ((double *)job->to)[o] += ((const double *)job->from)[a];
        else
            ht_set_f32(job->dtype, job->to, o,
                       ht_get_f32(job->dtype, job->to, o) + ht_get_f32(job->dtype, job->from, a));
    }
}

static void add_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    add_job *job = arg;
    ht_strided_iterator_range(&job->iterator, begin, end, add_span, job);
}

/* Whether two elements of the window may overlap. They do not if every stride exceeds the combined extent of all
 * smaller strides. */
static bool may_overlap(const ht_view *window) {
    bool used[HT_MAX_DIMS] = {false};
    int64_t reach = 0;
    for (int round = 0; round < window->n_dims; round++) {
        int shortest = -1;
        for (int i = 0; i < window->n_dims; i++)
            if (!used[i] && (shortest < 0 || llabs(window->stride[i]) < llabs(window->stride[shortest]))) shortest = i;
        used[shortest] = true;
        if (window->shape[shortest] == 1) continue;
        int64_t step = llabs(window->stride[shortest]);
        if (step <= reach) return true;
        reach += step * (window->shape[shortest] - 1);
    }
    return false;
}

ht_status ht_plain_strided_add(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_window_params *p = call->params;
    const ht_view *x = &call->in[0];
    size_t bytes = ht_dtype_bytes(call->out.dtype);
    memset(call->out.data, 0, (size_t)ht_view_size(&call->out) * bytes);
    ht_view window = *x;
    memcpy(window.stride, p->stride, sizeof window.stride);
    const ht_view *views[] = {x, &window};
    add_job job = {.dtype = call->out.dtype, .from = x->data};
    ht_strided_iterator_init(&job.iterator, 2, views);
    if (!job.iterator.size) return HT_OK;
    job.to = (char *)call->out.data + p->offset * (int64_t)bytes;
    if (may_overlap(&window))
        add_block(&job, 0, job.iterator.size, 0);
    else
        ht_pool_run(ht_call_pool(call), job.iterator.size, HT_GRAIN_CHEAP, add_block, &job);
    return HT_OK;
}
