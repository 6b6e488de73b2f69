#include "cpu/strided_iterator.h"

#include "base/checked.h"
#include "cpu/call.h"

/* Whether axes `outer` and `inner` are contiguous with each other in every view: stride[outer] = shape[inner] *
 * stride[inner]. */
static bool mergeable(const ht_strided_iterator *w, int outer, int inner) {
    for (int v = 0; v < w->n_views; v++)
        if (w->stride[v][outer] != w->stride[v][inner] * w->shape[inner]) return false;
    return true;
}

void ht_strided_iterator_init(ht_strided_iterator *w, int n_views, const ht_view *const *views) {
    w->n_views = n_views;
    w->n_dims = 0;
    w->size = ht_view_size(views[0]);
    for (int axis = 0; axis < views[0]->n_dims; axis++) {
        int64_t length = views[0]->shape[axis];
        if (length == 1) continue;
        int d = w->n_dims;
        w->shape[d] = length;
        for (int v = 0; v < n_views; v++) w->stride[v][d] = views[v]->stride[axis];
        if (d > 0 && mergeable(w, d - 1, d)) {
            w->shape[d - 1] *= length;
            for (int v = 0; v < n_views; v++) w->stride[v][d - 1] = w->stride[v][d];
        } else
            w->n_dims++;
    }
    if (w->n_dims == 0) {
        w->n_dims = 1;
        w->shape[0] = 1;
        for (int v = 0; v < n_views; v++) w->stride[v][0] = 1;
    }
}

void ht_strided_iterator_range(const ht_strided_iterator *w, int64_t begin, int64_t end, ht_strided_visit *visit,
                               void *arg) {
    if (begin >= end) return;
    int last = w->n_dims - 1;
    int64_t index[HT_MAX_DIMS], rest = begin;
    ht_strided_span span = {0};
    for (int d = last; d >= 0; d--) {
        index[d] = rest % w->shape[d];
        rest /= w->shape[d];
        for (int v = 0; v < w->n_views; v++) span.offset[v] += index[d] * w->stride[v][d];
    }
    for (int v = 0; v < w->n_views; v++) span.stride[v] = w->stride[v][last];
    int64_t at = begin;
    for (;;) {
        span.n = ht_min_i64(w->shape[last] - index[last], end - at);
        visit(arg, &span);
        at += span.n;
        if (at == end) return;
        /* Next row. */
        for (int v = 0; v < w->n_views; v++) span.offset[v] -= index[last] * w->stride[v][last];
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            for (int v = 0; v < w->n_views; v++) span.offset[v] += w->stride[v][d];
            if (++index[d] < w->shape[d]) break;
            index[d] = 0;
            for (int v = 0; v < w->n_views; v++) span.offset[v] -= w->shape[d] * w->stride[v][d];
        }
    }
}

int64_t ht_view_offset(const ht_view *v, int n_dims, int64_t flat) {
    int64_t offset = 0;
    for (int d = n_dims - 1; d >= 0; d--) {
        offset += flat % v->shape[d] * v->stride[d];
        flat /= v->shape[d];
    }
    return offset;
}

int64_t ht_matmul_offset(const ht_view *v, const ht_view *out, int64_t flat) {
    int64_t offset = 0;
    for (int d = out->n_dims - 3; d >= 0; d--) {
        int64_t index = flat % out->shape[d];
        flat /= out->shape[d];
        int own = d - (out->n_dims - v->n_dims);
        if (own >= 0 && v->shape[own] != 1) offset += index * v->stride[own];
    }
    return offset;
}

typedef struct elements_job {
    const ht_call *call;
    ht_strided_span_fn *fn;
    ht_strided_iterator iterator;
} elements_job;

static void visit_span(void *arg, const ht_strided_span *span) {
    const elements_job *job = arg;
    job->fn(job->call, span);
}

static void run_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    elements_job *job = arg;
    ht_strided_iterator_range(&job->iterator, begin, end, visit_span, job);
}

static elements_job job_of(const ht_call *call, ht_strided_span_fn *fn) {
    const ht_view *views[HT_STRIDED_VIEWS] = {&call->out};
    int n = call->n_in < HT_STRIDED_VIEWS ? call->n_in : HT_STRIDED_VIEWS - 1;
    for (int i = 0; i < n; i++) views[i + 1] = &call->in[i];
    elements_job job = {.call = call, .fn = fn};
    ht_strided_iterator_init(&job.iterator, n + 1, views);
    return job;
}

void ht_strided_elementwise(const ht_call *call, int64_t grain, ht_strided_span_fn *fn) {
    elements_job job = job_of(call, fn);
    ht_pool_run(ht_call_pool(call), job.iterator.size, grain, run_block, &job);
}
