/* Evaluation: runs the kernels of a graph in topological order, with elementwise nodes fused.
 *
 * The buffer of an intermediate result is released after its last consumer, and recomputed if needed later. Results are
 * kept that were requested, are retained by the user, or have consumers outside this evaluation. */
#include "array/donation.h"
#include "array/flat_program.h"
#include "array/fuse_elementwise.h"
#include "array/op.h"
#include "array/topological_order.h"
#include "base/checked.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_SCRATCH = 1 << 16 }; /* limit of scratch bytes that a stream keeps between kernels */

typedef struct evaluation {
    ht_stream *stream;
    ht_worklist *list; /* nodes in topological order; owned by the stream */
    uint64_t visit;
    ht_error *err;
    bool cut;          /* kept arrays release their inputs */
    ht_mark submitted; /* after the last kernel */
    ht_fused fused;    /* current elementwise group */
} evaluation;

static ht_state state_of(ht_array *a) { return (ht_state)atomic_load_explicit(&a->state, memory_order_acquire); }

/* ---- lifetimes ---- */

static void count_uses(evaluation *w, ht_array *const *targets, int n) {
    ht_count_uses(w->list, w->visit, targets, n);
    for (size_t i = 0; i < w->list->n; i++) {
        ht_array *a = w->list->order[i];
        a->slot = HT_FUSED_TO_DO;
        a->submitted = 0;
        if (a->op == HT_OP_COMPILED_OUT) ht_flat_request(a, w->visit);
    }
}

static void make_lazy(ht_array *a) {
    atomic_store_explicit(&a->at_rest, false, memory_order_relaxed);
    atomic_store_explicit(&a->state, HT_LAZY, memory_order_release);
}

static void give_back(ht_array *a) {
    ht_buffer *b = a->buffer;
    if (a->op == HT_OP_COMPILED) ht_flat_discard(a);
    if (a->op == HT_OP_COMPILED_OUT) { /* recomputing one result needs the whole call */
        ht_flat_discard(a->in[0]);
        make_lazy(a->in[0]);
    }
    make_lazy(a);
    a->buffer = NULL;
    ht_buffer_release(b);
}

static void used_by_kernel(evaluation *w, ht_array *in) {
    if (in == HT_NONE) return;
    ht_array *storage = ht_storage(in);
    if (storage->visit == w->visit && --storage->kernel_uses == 0 && !storage->keep) give_back(storage);
}

/* ---- one kernel ---- */

/* True when `in` can be overwritten by `a`, which reads it `reads` times: an intermediate result without other readers,
 * or an array evaluated earlier whose only reference is that of `a`, which is kept and therefore releases its inputs. */
static bool can_overwrite(const evaluation *w, ht_array *in, const ht_array *a, int32_t reads) {
    if (in->visit == w->visit) return !in->keep && in->kernel_uses == reads;
    bool is_read = false;
    for (int i = 0; i < a->n_in; i++) is_read |= a->in[i] == in;
    return is_read && w->cut && a->keep && state_of(in) == HT_READY &&
           atomic_load_explicit(&in->refs, memory_order_acquire) == 1;
}

enum { MIN_UPDATE_ELEMENTS = 1024 }; /* copying fewer elements is as fast as the donation check */

/* can_overwrite for updates of an array evaluated earlier, such as a[i] += x: views of the array, and nodes computed
 * from them, still refer to it. */
static bool can_update(const evaluation *w, ht_array *in, const ht_array *a) {
    if (ht_array_size(in) < MIN_UPDATE_ELEMENTS || in->visit == w->visit || !w->cut || !a->keep ||
        state_of(in) != HT_READY)
        return false;
    for (int i = 1; i < a->n_in; i++)
        if (a->in[i] != HT_NONE && ht_storage(a->in[i]) == in) return false;
    return a->in[0] == in && ht_donation_check(in, a, w->visit);
}

/* Buffer donation: an input buffer that the node may overwrite, retained, or NULL. The donor is read for the last time,
 * as a whole, and has the dtype and size of the result. */
static ht_buffer *donated(evaluation *w, ht_array *a, ht_array **from) {
    const ht_op_info *info = ht_op_info_of(a->op);
    int candidates = info->in_place ? a->n_in : info->updates ? 1 : 0;
    size_t bytes = (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype);
    for (int i = 0; i < candidates; i++) {
        ht_array *in = a->in[i];
        if (in == HT_NONE || in->base) continue;
        if (!can_overwrite(w, in, a, 1) && !(info->updates && can_update(w, in, a))) continue;
        if (in->buffer->wrapped || in->buffer->bytes != bytes || in->dtype != a->dtype) continue;
        if (atomic_load_explicit(&in->buffer->refs, memory_order_acquire) != 1) continue;
        *from = in;
        ht_buffer_begin_writing(in->buffer);
        return ht_buffer_retain(in->buffer);
    }
    return NULL;
}

static void mark_failed(ht_array *a, const ht_error *err) {
    if (!a->failure) a->failure = malloc(sizeof *a->failure);
    if (a->failure) *a->failure = *err;
    atomic_store_explicit(&a->at_rest, false, memory_order_relaxed);
    atomic_store_explicit(&a->state, HT_FAILED, memory_order_release);
}

static ht_status ensure_scratch(ht_stream *s, size_t bytes, ht_error *err) {
    ht_memory *memory = s->device->memory;
    if (bytes <= s->scratch_bytes) return HT_OK;
    ht_memory_free(memory, s->scratch, s->scratch_bytes);
    s->scratch = NULL;
    s->scratch_bytes = 0;
    ht_status st = ht_memory_alloc(memory, bytes, "kernel scratch", &s->scratch, err);
    if (st == HT_OK) s->scratch_bytes = bytes;
    return st;
}

/* Frees large scratch memory after each kernel, for use by arrays; the allocator's cache makes this cheap. */
static void give_back_scratch(ht_stream *s) {
    if (s->scratch_bytes <= KEPT_SCRATCH) return;
    ht_memory_free(s->device->memory, s->scratch, s->scratch_bytes);
    s->scratch = NULL;
    s->scratch_bytes = 0;
}

/* Queue position after a node's kernel; 0 when the node submitted nothing, as for an empty result. */
static ht_mark mark_behind(evaluation *w) {
    const ht_mark before = w->submitted;
    w->submitted = ht_device_mark(w->stream->device);
    return w->submitted == before ? 0 : w->submitted;
}

static void mark_ready(ht_array *a, ht_mark submitted) {
    a->slot = HT_FUSED_DONE;
    a->submitted = submitted;
    atomic_store_explicit(&a->state, HT_READY, memory_order_release);
}

/* Evaluates a COMPILED node and the results requested by this evaluation. */
static ht_status run_compiled(evaluation *w, ht_array *a) {
    ht_status st = ht_flat_compute(w->stream, a, w->visit, ensure_scratch, w->err);
    give_back_scratch(w->stream);
    if (st) return st;
    const ht_mark submitted = mark_behind(w);
    mark_ready(a, submitted);
    const int n = ht_flat_count(a);
    for (int i = 0; i < a->n_in; i++) used_by_kernel(w, a->in[i]);
    for (int i = 0; i < n; i++) {
        ht_array *out = ht_flat_requested(a, w->visit, i);
        if (out) mark_ready(out, submitted);
    }
    for (int i = 0; i < n; i++)
        if (ht_flat_requested(a, w->visit, i)) used_by_kernel(w, a);
    return HT_OK;
}

/* Evaluates a COMPILED_OUT node whose call ran in an earlier evaluation. */
static ht_status fetch_result(evaluation *w, ht_array *a) {
    ht_status st = ht_flat_take(a, w->err);
    if (st == HT_OK) mark_ready(a, 0);
    return st;
}

enum { STACK_VIEWS = 8 };

static ht_status run_kernel(evaluation *w, ht_array *a) {
    ht_stream *s = w->stream;
    const ht_kernel *kernel = &s->device->kernels[a->op];
    const char *name = ht_op_name(a->op);
    if (a->op == HT_OP_COMPILED) return run_compiled(w, a);
    if (a->op == HT_OP_COMPILED_OUT) return fetch_result(w, a);
    if (a->op == HT_OP_LEAF)
        return ht_fail(w->err, HT_ERR_ARGUMENT,
                       "an argument of a function that is being compiled has no value: it cannot be evaluated");
    if (!kernel->run) return ht_fail(w->err, HT_ERR_UNSUPPORTED, "%s: not supported on %s", name, s->device->name);
    ht_view on_stack[STACK_VIEWS], *views = on_stack;
    if (a->n_in > STACK_VIEWS && !(views = malloc((size_t)a->n_in * sizeof *views)))
        return ht_fail_memory(w->err, (size_t)a->n_in * sizeof *views, name);
    for (int i = 0; i < a->n_in; i++)
        views[i] = ht_array_view(a->in[i], a->in[i] == HT_NONE ? NULL : ht_storage(a->in[i])->buffer->data);
    ht_array *overwritten = NULL;
    ht_buffer *buffer = donated(w, a, &overwritten);
    ht_status st = HT_OK;
    if (!buffer) st = ht_buffer_new(a->memory, (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype), &buffer, w->err);
    ht_call call = {.params = a->params, .n_in = a->n_in, .in = views, .step = a->step, .device = s->device};
    if (st == HT_OK) {
        call.out = ht_array_view(a, buffer->data);
        if (kernel->scratch) st = ensure_scratch(s, kernel->scratch(&call), w->err);
        call.scratch = s->scratch;
    }
    if (st == HT_OK) {
        st = kernel->run(&call, w->err);
        give_back_scratch(s);
        /* The failed kernel left the donor partially overwritten. */
        if (st && overwritten && overwritten->visit != w->visit) mark_failed(overwritten, w->err);
    }
    if (st == HT_OK) {
        a->buffer = buffer;
        mark_ready(a, mark_behind(w));
        for (int i = 0; i < a->n_in; i++) used_by_kernel(w, a->in[i]);
    } else
        ht_buffer_release(buffer);
    if (views != on_stack) free(views);
    return st;
}

/* ---- fused elementwise nodes ---- */

static ht_status run_between(void *user, ht_array *a) { return run_kernel(user, a); }

/* Buffer donation for output `out` of a group: as donated(), but steps after the output's must not read the donor. */
static ht_buffer *donated_to(const evaluation *w, int out, ht_buffer *const *taken) {
    const ht_fused *f = &w->fused;
    const ht_program *p = &f->program;
    const ht_array *a = f->out[out];
    size_t bytes = (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype);
    for (int k = 0; k < p->n_in; k++) {
        ht_array *in = f->in[k];
        if (in->base || in->dtype != a->dtype || !can_overwrite(w, in, a, ht_fused_reads(f, in))) continue;
        if (in->buffer->wrapped || in->buffer->bytes != bytes) continue;
        if (atomic_load_explicit(&in->buffer->refs, memory_order_acquire) != 1) continue;
        bool free = true;
        for (int o = 0; o < out; o++) free = free && taken[o] != in->buffer;
        for (int j = 0; j < p->n_in; j++) free = free && (j == k || ht_storage(f->in[j]) != in);
        for (int i = a->slot; i < p->n_steps; i++) /* slot: step + 1 */
            for (int j = 0; j < p->step[i].n_in; j++) free = free && p->step[i].in[j] != k;
        if (!free) continue;
        ht_buffer_begin_writing(in->buffer);
        return ht_buffer_retain(in->buffer);
    }
    return NULL;
}

static void finish_members(evaluation *w, ht_buffer *const *buffer) {
    const ht_fused *f = &w->fused;
    const ht_mark submitted = mark_behind(w);
    for (int k = 0; k < f->program.n_out; k++) {
        f->out[k]->buffer = buffer[k];
        mark_ready(f->out[k], submitted);
    }
    for (int i = 0; i < f->program.n_steps; i++) f->member[i]->slot = HT_FUSED_DONE;
    for (int i = 0; i < f->program.n_steps; i++)
        for (int k = 0; k < f->member[i]->n_in; k++) {
            ht_array *in = f->member[i]->in[k];
            if (ht_storage(in)->buffer) used_by_kernel(w, in); /* intermediate results of the group have no buffer */
        }
}

/* *fits is false, and nothing done, when memory for the outputs ran out. */
static ht_status run_program(evaluation *w, bool *fits) {
    const ht_fused *f = &w->fused;
    const ht_program *p = &f->program;
    ht_buffer *buffer[HT_PROGRAM_OUTPUTS];
    ht_view in[HT_PROGRAM_INPUTS], out[HT_PROGRAM_OUTPUTS];
    for (int k = 0; k < p->n_out; k++) {
        const ht_array *a = f->out[k];
        size_t bytes = (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype);
        buffer[k] = donated_to(w, k, buffer);
        if (!buffer[k] && ht_buffer_new(a->memory, bytes, &buffer[k], NULL)) {
            while (k-- > 0) ht_buffer_release(buffer[k]);
            *fits = false;
            return HT_OK;
        }
        out[k] = ht_array_view(a, buffer[k]->data);
    }
    for (int k = 0; k < p->n_in; k++) in[k] = ht_array_view(f->in[k], ht_storage(f->in[k])->buffer->data);
    *fits = true;
    const ht_status st = w->stream->device->programs->run(&(ht_program_run){p, in, out, w->stream->device}, w->err);
    if (!st) finish_members(w, buffer);
    for (int k = 0; st && k < p->n_out; k++) ht_buffer_release(buffer[k]);
    return st;
}

/* Runs the group's nodes one by one when memory for its outputs ran out: a single node can overwrite its operand where
 * a group cannot. On failure *at is the position of the failed node. */
static ht_status run_members(evaluation *w, size_t *at) {
    ht_status st = HT_OK;
    for (int i = 0; st == HT_OK && i < w->fused.program.n_steps; i++) {
        st = run_kernel(w, w->fused.member[i]);
        while (st && w->list->order[*at] != w->fused.member[i]) ++*at;
    }
    return st;
}

/* Runs order[*at] and the nodes that fuse with it. On failure *at is the position of the failed node. */
static ht_status run_elementwise(evaluation *w, size_t *at) {
    const ht_device *d = w->stream->device;
    ht_status st = ht_fused_gather(&w->fused, d, w->list, w->visit, at, run_between, w);
    if (st) return st;
    if (w->fused.program.n_steps < 2 || ht_fused_close(&w->fused, d) < 2) return run_kernel(w, w->list->order[*at]);
    bool fits;
    st = run_program(w, &fits);
    return fits ? st : run_members(w, at);
}

/* ---- failures, and the end ---- */

/* Marks the failed node and all its dependents of this evaluation as failed; other nodes stay lazy. */
static void fail_dependents(evaluation *w, size_t from, const ht_error *err) {
    ht_array **order = w->list->order;
    mark_failed(order[from], err);
    for (size_t i = from + 1; i < w->list->n; i++) {
        ht_array *a = order[i];
        if (a->base) continue;
        for (int j = 0; j < a->n_in; j++) {
            if (a->in[j] == HT_NONE || state_of(ht_storage(a->in[j])) != HT_FAILED) continue;
            mark_failed(a, err);
            break;
        }
    }
}

/* Whether the kernel of `a`, which may have run, wrote over an array evaluated earlier. That one is lost, and `a` cannot be
 * computed again. */
static bool fail_overwritten(evaluation *w, ht_array *a) {
    bool any = false;
    for (int i = 0; i < a->n_in; i++) {
        ht_array *in = a->in[i];
        if (in == HT_NONE || in->visit == w->visit || in->buffer != a->buffer || in->base) continue;
        mark_failed(in, w->err);
        any = true;
    }
    return any;
}

/* Recovers from a failure that the device reported late, at mark `failed`: the failed node and its dependents fail, and
 * nodes submitted after it become lazy again. */
static void undo_from(evaluation *w, ht_mark failed) {
    ht_array **order = w->list->order;
    ht_mark first = 0;
    for (size_t i = 0; i < w->list->n; i++) {
        const ht_mark mark = order[i]->base ? 0 : order[i]->submitted;
        if (mark >= failed && (!first || mark < first)) first = mark;
    }
    for (size_t i = 0; first && i < w->list->n; i++) {
        ht_array *a = order[i];
        if (a->base || a->submitted < first) continue;
        const bool overwrote = a->buffer && fail_overwritten(w, a), lost = overwrote || a->submitted == first;
        if (state_of(a) == HT_READY && a->buffer) give_back(a);
        if (a->op == HT_OP_COMPILED) make_lazy(a);
        if (lost) fail_dependents(w, i, w->err);
    }
}

/* Releases intermediate results when the evaluation ends early. */
static void drop_leftovers(evaluation *w) {
    ht_array **order = w->list->order;
    for (size_t i = 0; i < w->list->n; i++)
        if (!order[i]->base && !order[i]->keep && order[i]->n_in && state_of(order[i]) == HT_READY) give_back(order[i]);
}

static void publish(ht_array *a) { atomic_store_explicit(&a->at_rest, true, memory_order_release); }

/* Ends the evaluation: kept nodes release their inputs, if requested, and are published for readers without a lock, so
 * they must not change afterwards. Inputs come first in the order: a node is finished before its users release it. */
static void finish(evaluation *w, ht_array *const *targets, int n) {
    for (size_t i = 0; i < w->list->n; i++) {
        ht_array *a = w->list->order[i], *storage = ht_storage(a);
        if (state_of(storage) != HT_READY) continue;
        const bool kept = storage->keep && storage->visit == w->visit;
        if ((w->cut && kept) || atomic_load_explicit(&a->settled, memory_order_relaxed)) ht_array_cut_off(a);
        publish(a);
    }
    for (int i = 0; i < n; i++) /* views created while their storage was being computed */
        if (targets[i] != HT_NONE && state_of(ht_storage(targets[i])) == HT_READY) publish(targets[i]);
}

/* Runs all kernels of the list. */
static ht_status compute(evaluation *w, ht_array *const *arrays, int n) {
    ht_stream *stream = w->stream;
    ht_status st = HT_OK;
    count_uses(w, arrays, n);
    ht_device *d = stream->device;
    const unsigned state = d->begin(d);
    w->submitted = ht_device_mark(d);
    for (size_t i = 0; i < w->list->n && st == HT_OK; i++) {
        ht_array *a = w->list->order[i];
        if (a->base || a->slot == HT_FUSED_DONE) continue;
        size_t at = i;
        st = stream->device->programs && ht_fused_supports(a->op) ? run_elementwise(w, &at) : run_kernel(w, a);
        if (st) fail_dependents(w, at, w->err);
    }
    ht_error late = {0};
    ht_mark failed;
    const ht_status found = ht_device_wait(d, &failed, &late);
    if (found) { /* it came first, whatever else there was */
        st = found;
        *w->err = late;
        undo_from(w, failed);
    }
    if (st) drop_leftovers(w);
    d->end(d, state);
    return st;
}

ht_status ht_eval_now(ht_stream *stream, ht_array *const *arrays, int n, bool cut, ht_error *err) {
    ht_error local = {0};
    evaluation w; /* not initialised as a whole: `fused` is large */
    w.stream = stream;
    w.list = &stream->list;
    w.err = err ? err : &local;
    w.cut = cut;
    ht_status st = ht_topological_order(w.list, arrays, n, &w.visit, w.err);
    if (st) return st;
    if (w.list->n) st = compute(&w, arrays, n);
    finish(&w, arrays, n); /* also after a failure, to release overwritten donors */
    return st;
}
