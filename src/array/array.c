/* Array objects: creation, reference counts and release of nodes, buffers and scopes. Graphs are torn down iteratively. */
#include "array/array.h"

#include "array/custom.h"
#include "array/flat_program.h"
#include "array/op.h"
#include "array/replay.h"
#include "base/checked.h"
#include "base/error.h"

#include <hearth/transform.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_array none = {.n_dims = -1};
ht_array *const HT_NONE = &none;
_Thread_local int ht_graphs_kept;

/* ---- buffers ---- */

static void hold(ht_memory *m) {
    if (m->device) ht_device_retain(m->device);
}

static void let_go(ht_memory *m) {
    if (m->device) ht_device_free(m->device);
}

ht_status ht_buffer_new(ht_memory *memory, size_t bytes, ht_buffer **out, ht_error *err) {
    *out = NULL;
    ht_buffer *b = calloc(1, sizeof *b);
    if (!b) return ht_fail_memory(err, sizeof *b, "a buffer");
    ht_status st = ht_memory_alloc(memory, bytes, "an array", &b->data, err);
    if (st) {
        free(b);
        return st;
    }
    hold(memory);
    b->refs = 1;
    b->memory = memory;
    b->bytes = bytes;
    *out = b;
    return HT_OK;
}

ht_buffer *ht_buffer_retain(ht_buffer *b) {
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

static void drop_mirror(ht_buffer *b) {
    if (!atomic_load_explicit(&b->mirror, memory_order_acquire)) return;
    void *mirror = atomic_exchange_explicit(&b->mirror, NULL, memory_order_acq_rel);
    ht_memory_free(ht_memory_of_host(), mirror, b->bytes);
}

void ht_buffer_release(ht_buffer *b) {
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
    ht_memory *memory = b->memory;
    drop_mirror(b);
    if (!b->wrapped)
        ht_memory_free(memory, b->data, b->bytes);
    else if (b->release)
        b->release(b->user);
    free(b);
    let_go(memory);
}

void ht_buffer_begin_writing(ht_buffer *b) { drop_mirror(b); }

/* Concurrent readers race; the first store wins. */
ht_status ht_buffer_on_host(ht_buffer *b, const void **data, ht_error *err) {
    *data = b->data;
    if (ht_memory_is_host(b->memory)) return HT_OK;
    *data = atomic_load_explicit(&b->mirror, memory_order_acquire);
    if (*data) return HT_OK;
    void *copy, *kept = NULL;
    ht_status st = ht_memory_alloc(ht_memory_of_host(), b->bytes, "an array read from its device", &copy, err);
    if (st == HT_OK && (st = ht_memory_read(b->memory, copy, b->data, b->bytes, err)))
        ht_memory_free(ht_memory_of_host(), copy, b->bytes);
    if (st) return st;
    if (atomic_compare_exchange_strong_explicit(&b->mirror, &kept, copy, memory_order_acq_rel, memory_order_acquire))
        kept = copy;
    else
        ht_memory_free(ht_memory_of_host(), copy, b->bytes);
    *data = kept;
    return HT_OK;
}

/* ---- references ---- */

ht_array *ht_array_retain(ht_array *a) {
    if (a && a != HT_NONE) atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

static void retain_from_graph(ht_array *a) {
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->graph_refs, 1, memory_order_relaxed);
}

/* Releases one reference. A node without references goes to the list `dying`, linked by `next`, to be freed without
 * recursion. */
static void release_one(ht_array *a, bool from_graph, ht_array **dying) {
    if (!a || a == HT_NONE) return;
    if (from_graph) atomic_fetch_sub_explicit(&a->graph_refs, 1, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1) return;
    a->next = *dying;
    *dying = a;
}

static void drop_inputs(ht_array *a, ht_array **dying) {
    for (int i = 0; i < a->n_in; i++) release_one(a->in[i], true, dying);
    if (a->in != a->inline_in) free(a->in);
    a->in = a->inline_in;
    a->n_in = 0;
}

static void free_dying(ht_array *dying) {
    while (dying) {
        ht_array *a = dying;
        dying = a->next;
        drop_inputs(a, &dying);
        release_one(a->base, true, &dying);
        release_one(a->contiguous, true, &dying);
        ht_buffer_release(a->buffer);
        ht_custom_release(a->custom);
        ht_flat_run_release(a->run);
        free(a->failure);
        free(a);
    }
}

void ht_array_free(ht_array *a) {
    ht_array *dying = NULL;
    release_one(a, false, &dying);
    free_dying(dying);
}

void ht_array_cut_off(ht_array *a) {
    ht_array *dying = NULL;
    if (a->op == HT_OP_COMPILED) return; /* its results release it */
    if (!a->n_in && !a->run && (a->base || a->op == HT_OP_LEAF))
        return; /* detached before: other threads may be reading it */
    ht_flat_run_release(a->run);
    a->run = NULL;
    drop_inputs(a, &dying);
    if (!a->base) a->op = HT_OP_LEAF;
    free_dying(dying);
}

ht_status ht_array_detach(ht_scope *s, ht_array *a, ht_error *err) {
    ht_status st = ht_array_eval(s, &a, 1, err);
    if (st) return st;
    pthread_mutex_lock(&s->stream->device->run_lock);
    if (a->base) ht_array_cut_off(a->base);
    ht_array_cut_off(a);
    pthread_mutex_unlock(&s->stream->device->run_lock);
    return HT_OK;
}

/* ---- scopes ---- */

static ht_scope *scope_new(ht_stream *stream, bool tracing) {
    ht_scope *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->stream = stream;
    s->memory = stream->device->memory;
    s->tracing = tracing;
    return s;
}

ht_scope *ht_scope_new(ht_stream *stream) { return scope_new(stream, false); }
ht_scope *ht_scope_new_tracing(ht_stream *stream) { return scope_new(stream, true); }

static ht_scope *scope_of(const ht_array *a) { return atomic_load_explicit(&a->scope, memory_order_relaxed); }
static void set_scope(ht_array *a, ht_scope *s) { atomic_store_explicit(&a->scope, s, memory_order_relaxed); }

static void link_to(ht_scope *s, ht_array *a) {
    set_scope(a, s);
    a->previous = NULL;
    a->next = s->first;
    if (s->first) s->first->previous = a;
    s->first = a;
}

static void unlink_from(ht_scope *s, ht_array *a) {
    if (a->previous)
        a->previous->next = a->next;
    else
        s->first = a->next;
    if (a->next) a->next->previous = a->previous;
    set_scope(a, NULL);
    a->previous = a->next = NULL;
}

void ht_scope_drop(ht_scope *s, ht_array *a) {
    if (!a || a == HT_NONE || scope_of(a) != s) return;
    unlink_from(s, a);
    ht_array_free(a);
}

ht_array *ht_scope_move(ht_scope *s, ht_scope *from, ht_array *a) {
    if (!a || a == HT_NONE) return a;
    if (scope_of(a) != from) return ht_view_node(s, HT_OP_IDENTITY, &a, 1, 0);
    unlink_from(from, a);
    link_to(s, a);
    return a;
}

static void drop_all(ht_scope *s) {
    ht_array *dying = NULL;
    while (s->first) {
        ht_array *a = s->first;
        s->first = a->next;
        set_scope(a, NULL);
        a->previous = a->next = NULL;
        release_one(a, false, &dying);
    }
    free_dying(dying);
}

ht_array *ht_scope_finish(ht_scope *s, ht_array *a) {
    ht_array_retain(a);
    drop_all(s);
    s->failed = false;
    return a;
}

void ht_scope_free(ht_scope *s) {
    if (!s) return;
    drop_all(s);
    free(s);
}

const ht_error *ht_scope_error(const ht_scope *s) { return s->failed ? &s->error : NULL; }
ht_stream *ht_scope_stream(const ht_scope *s) { return s->stream; }

ht_array *ht_scope_fail_with(ht_scope *s, const ht_error *err) {
    if (!s->failed) {
        s->failed = true;
        s->error = *err;
    }
    return NULL;
}

ht_status ht_scope_status(const ht_scope *s, ht_error *err) {
    if (!s->failed) return HT_OK;
    if (err) *err = s->error;
    return s->error.status;
}

void ht_scope_report(ht_scope *s, ht_status status, const char *message) { ht_scope_fail(s, status, "%s", message); }

ht_array *ht_scope_fail(ht_scope *s, ht_status status, const char *fmt, ...) {
    ht_error err = {.status = status};
    va_list args;
    va_start(args, fmt);
    vsnprintf(err.message, sizeof err.message, fmt, args);
    va_end(args);
    return ht_scope_fail_with(s, &err);
}

/* ---- nodes ---- */

/* Rejects and frees a node with an operand in another device's memory. */
static ht_array *refuse_operand(ht_scope *s, ht_array *a) {
    int at = 0;
    while (a->in[at] == HT_NONE || a->in[at]->memory == s->memory) at++;
    const char *there = a->in[at]->memory->name, *here = s->memory->name;
    ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: operand %d is on %s%s, the operation is computed on %s; copy it there first",
                  ht_op_name(a->op), at, strcmp(there, here) ? "" : "another ", there, here);
    ht_array *dying = NULL;
    drop_inputs(a, &dying);
    free_dying(dying);
    free(a);
    return NULL;
}

ht_array *ht_array_new(ht_scope *s, ht_op_id op, ht_array *const *in, int n_in) {
    ht_array *a = malloc(sizeof *a);
    if (a) {
        memset(a, 0, offsetof(ht_array, shape));
        a->in = a->inline_in;
    }
    if (a && n_in > HT_INLINE_INPUTS && !(a->in = calloc((size_t)n_in, sizeof *a->in))) {
        free(a);
        a = NULL;
    }
    if (!a) {
        ht_error err;
        ht_fail_memory(&err, sizeof *a, "an array");
        return ht_scope_fail_with(s, &err);
    }
    a->refs = 1;
    a->op = op;
    a->memory = s->memory;
    a->n_in = n_in;
    bool here = true;
    for (int i = 0; i < n_in; i++) {
        a->in[i] = in[i];
        if (in[i] == HT_NONE) continue;
        here &= in[i]->memory == a->memory;
        retain_from_graph(in[i]);
    }
    if (!here) return refuse_operand(s, a);
    link_to(s, a);
    return a;
}

/* Makes `view` a view of the storage of `in`. */
static void set_storage(ht_array *view, ht_array *in) {
    view->base = ht_array_retain(ht_storage(in));
    atomic_fetch_add_explicit(&view->base->graph_refs, 1, memory_order_relaxed);
    view->at_rest = ht_array_is_evaluated(view->base);
}

typedef struct view_args {
    ht_op_id op;
    int shown;
} view_args;

static bool view_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    const view_args *a = args;
    out[0] = ht_view_node(s, a->op, in, n_in, a->shown);
    return out[0] != NULL;
}

ht_array *ht_view_node(ht_scope *s, ht_op_id op, ht_array *const *in, int n_in, int shown) {
    for (int i = 0; i < n_in; i++)
        if (!in[i]) return NULL;
    if (ht_recording()) return ht_record_one(s, view_again, &(view_args){op, shown}, sizeof(view_args), in, n_in);
    if (in[shown] == HT_NONE) return HT_NONE;
    ht_array *v = ht_array_new(s, op, in, n_in), *x = in[shown];
    if (!v) return NULL;
    v->dtype = x->dtype;
    v->n_dims = x->n_dims;
    memcpy(v->shape, x->shape, sizeof v->shape);
    memcpy(v->stride, x->stride, sizeof v->stride);
    v->offset = x->offset;
    set_storage(v, x);
    return v;
}

ht_array *ht_array_like(ht_scope *s, const ht_array *node, ht_array *const *in) {
    ht_array *a = ht_array_new(s, node->op, in, node->n_in);
    if (!a) return NULL;
    a->dtype = node->dtype;
    a->n_dims = node->n_dims;
    memcpy(a->shape, node->shape, (size_t)node->n_dims * sizeof a->shape[0]);
    memcpy(a->stride, node->stride, (size_t)node->n_dims * sizeof a->stride[0]);
    a->offset = node->offset;
    const size_t params_bytes = node->base ? sizeof a->params : ht_op_info_of(node->op)->params_bytes;
    if (params_bytes) memcpy(a->params, node->params, params_bytes);
    a->step = node->step;
    a->custom = ht_custom_retain(node->custom);
    int shown = 0;
    while (node->base && ht_storage(node->in[shown]) != node->base) shown++;
    if (node->base) {
        set_storage(a, in[shown]);
        /* in elements of the view, whose size differs from that of its input for VIEW_AS */
        const ht_array *from = node->in[shown];
        int64_t moved = (in[shown]->offset - from->offset) * (int64_t)ht_dtype_bytes(from->dtype);
        a->offset += moved / (int64_t)ht_dtype_bytes(node->dtype);
    }
    return a;
}

void ht_array_set_contiguous(ht_array *a, ht_dtype dtype, const int64_t *shape, int n_dims) {
    a->dtype = dtype;
    a->n_dims = n_dims;
    int64_t stride = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        a->shape[i] = shape[i];
        a->stride[i] = stride;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
}

ht_dtype ht_array_dtype(const ht_array *a) { return a->dtype; }
int ht_array_n_dims(const ht_array *a) { return a->n_dims; }

int64_t ht_array_dim(const ht_array *a, int axis) {
    if (axis < 0) axis += a->n_dims;
    return axis >= 0 && axis < a->n_dims ? a->shape[axis] : 0;
}

int64_t ht_array_stride(const ht_array *a, int axis) {
    if (axis < 0) axis += a->n_dims;
    return axis >= 0 && axis < a->n_dims ? a->stride[axis] : 0;
}

bool ht_shape_size(const int64_t *shape, int n_dims, int64_t *size) {
    int64_t n = 1;
    bool zero = false;
    for (int i = 0; i < n_dims; i++) {
        if (shape[i] < 0) return false;
        if (shape[i] == 0)
            zero = true;
        else if (!ht_mul_i64(n, shape[i], &n))
            return false;
    }
    *size = zero ? 0 : n;
    return true;
}

int64_t ht_array_size(const ht_array *a) {
    int64_t n = 0;
    return ht_shape_size(a->shape, a->n_dims, &n) ? n : 0;
}

bool ht_array_is_evaluated(const ht_array *a) { return atomic_load_explicit(&a->at_rest, memory_order_acquire); }

ht_view ht_array_view(const ht_array *a, void *data) {
    ht_view v = {.dtype = a->dtype, .n_dims = a->n_dims};
    if (a->n_dims < 0) return v;
    memcpy(v.shape, a->shape, (size_t)a->n_dims * sizeof v.shape[0]);
    memcpy(v.stride, a->stride, (size_t)a->n_dims * sizeof v.stride[0]);
    if (data) v.data = (char *)data + a->offset * (int64_t)ht_dtype_bytes(a->dtype);
    return v;
}

bool ht_array_is_contiguous(const ht_array *a) {
    ht_view v = ht_array_view(a, NULL);
    return ht_view_contiguous(&v);
}

const char *ht_shape_text(const int64_t *shape, int n_dims, char *out) {
    size_t n = 0;
    out[n++] = '[';
    for (int i = 0; i < n_dims; i++)
        n += (size_t)snprintf(out + n, HT_SHAPE_TEXT - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(out + n, HT_SHAPE_TEXT - n, "]");
    return out;
}
