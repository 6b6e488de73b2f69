#include "array/eval_forecast.h"

#include "array/op.h"
#include "array/topological_order.h"
#include "base/checked.h"
#include "base/error.h"

#include <string.h>

typedef struct forecast {
    ht_stream *stream;
    uint64_t visit;
    size_t now, peak;
} forecast;

static bool is_new(const forecast *f, const ht_array *a) { return a != HT_NONE && a->visit == f->visit; }
static size_t bytes_of(const ht_array *a) {
    return ht_memory_rounded((size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype));
}

static size_t scratch_of(const forecast *f, const ht_array *a) {
    enum { VIEWS = 8 };
    const ht_kernel *kernel = &f->stream->device->kernels[a->op];
    ht_view views[VIEWS];
    if (!kernel->scratch || a->n_in > VIEWS) return 0;
    for (int i = 0; i < a->n_in; i++) views[i] = ht_array_view(a->in[i], NULL);
    ht_call call = {.params = a->params, .n_in = a->n_in, .in = views, .step = a->step};
    call.device = f->stream->device;
    call.out = ht_array_view(a, NULL);
    return ht_memory_rounded(kernel->scratch(&call));
}

/* Whether `a` overwrites an input that has no other reader. */
static bool overwrites(const forecast *f, const ht_array *a) {
    if (!ht_op_info_of(a->op)->in_place) return false;
    for (int i = 0; i < a->n_in; i++) {
        const ht_array *in = a->in[i];
        if (is_new(f, in) && !in->base && in->op != HT_OP_LEAF && !in->keep && in->kernel_uses == 1 &&
            bytes_of(in) == bytes_of(a))
            return true;
    }
    return false;
}

static void run(forecast *f, const ht_array *a) {
    const bool in_place = overwrites(f, a);
    bool spared = in_place; /* the overwritten input's memory is the result's */
    if (!in_place) f->now += bytes_of(a);
    const size_t scratch = scratch_of(f, a);
    if (f->now + scratch > f->peak) f->peak = f->now + scratch;
    for (int i = 0; i < a->n_in; i++) {
        if (!is_new(f, a->in[i])) continue;
        ht_array *in = ht_storage(a->in[i]);
        if (in->visit != f->visit || --in->kernel_uses > 0 || in->keep || in->op == HT_OP_LEAF) continue;
        if (spared && bytes_of(in) == bytes_of(a))
            spared = false;
        else
            f->now -= bytes_of(in);
    }
}

ht_status ht_eval_forecast(ht_scope *s, ht_array *const *arrays, int n, size_t *peak_bytes, ht_error *err) {
    *peak_bytes = 0;
    for (int i = 0; i < n; i++)
        if (!arrays[i]) return ht_scope_status(s, err);
    forecast f = {.stream = s->stream};
    ht_worklist *list = &s->stream->list;
    pthread_mutex_lock(&s->stream->device->run_lock);
    ht_status status = ht_topological_order(list, arrays, n, &f.visit, err);
    if (!status) ht_count_uses(list, f.visit, arrays, n);
    for (size_t i = 0; !status && i < list->n; i++)
        if (!list->order[i]->base && list->order[i]->op != HT_OP_LEAF) run(&f, list->order[i]);
    pthread_mutex_unlock(&s->stream->device->run_lock);
    *peak_bytes = f.peak + list->n * sizeof(ht_array); /* the graph, too */
    return status;
}
