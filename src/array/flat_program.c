#include "array/flat_program.h"

#include "array/differentiate.h"
#include "array/flat_program_layout.h"
#include "array/op.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Origin of a result of the function. */
typedef struct source {
    enum { MADE, ARGUMENT, CONSTANT } kind;
    int index;  /* in `made`, or of the argument */
    bool whole; /* the result is the array itself, not a view of it */
} source;

struct ht_flat {
    _Atomic int refs;
    ht_device *device;
    int n_in, n_out, n_made, n_constants;
    ht_array **in, **out; /* of the trace, retained, and with them all its nodes */
    ht_array **made;      /* distinct storages of `out` that the list computes */
    ht_array **constant;  /* captured arrays */
    source *source;       /* [n_out] */
    _Atomic bool ready;   /* the list is built and the constants are evaluated */
    ht_flat_list *list;
};

struct ht_flat_run {
    _Atomic int refs;
    ht_flat *flat;
    struct {
        ht_array *requested;
        uint64_t visit;
        ht_buffer *buffer; /* computed but not requested: kept for ht_flat_take */
    } result[];
};

/* ---- cost ---- */

/* Cost of a call, in nodes, in addition to one node per result: the COMPILED node, and running the list. */
enum { CALL_COST = 6 };

static bool is_argument(ht_array *const *in, int n_in, const ht_array *a, int *index) {
    for (*index = 0; *index < n_in; ++*index)
        if (in[*index] == a) return true;
    return false;
}

static bool can_be_flat(const ht_device *d, const ht_tape *tape, int n_in, int n_out) {
    int64_t n = 0;
    for (int64_t i = n_in; i < tape->n; i++) {
        const ht_array *a = tape->step[i].node;
        n++;
        if (a->base) continue;
        if (!d->kernels[a->op].run || a->step || ht_op_info_of(a->op)->effect) return false;
    }
    return n_in > 0 && n > CALL_COST + n_out;
}

/* ---- construction ---- */

static bool add_constant(ht_flat *f, ht_node_map *known, ht_array *a) {
    if (a == HT_NONE || ht_node_map_get(known, a) >= 0) return true;
    if (!ht_node_map_set(known, a, 0)) return false;
    f->constant[f->n_constants++] = a;
    return true;
}

static bool find_constants(ht_flat *f, const ht_tape *tape) {
    ht_node_map known = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < tape->n; i++) n += tape->step[i].n_in;
    f->constant = calloc((size_t)n + 1, sizeof(ht_array *));
    bool ok = f->constant != NULL;
    for (int64_t i = 0; ok && i < tape->n; i++)
        for (int k = 0; ok && k < tape->step[i].n_in; k++)
            if (tape->step[i].in[k] < 0) ok = add_constant(f, &known, tape->step[i].node->in[k]);
    ht_node_map_free(&known);
    return ok;
}

static source source_of(ht_flat *f, const ht_tape *tape, ht_array *out) {
    ht_array *storage = ht_storage(out);
    source s = {.kind = CONSTANT, .whole = out == storage};
    if (is_argument(f->in, f->n_in, storage, &s.index)) {
        s.kind = ARGUMENT;
        return s;
    }
    if (ht_tape_index(tape, storage) < 0) return s;
    s.kind = MADE;
    for (s.index = 0; s.index < f->n_made; s.index++)
        if (f->made[s.index] == storage) return s;
    f->made[f->n_made++] = storage;
    return s;
}

static ht_array **held_list(ht_array *const *arrays, int n) {
    ht_array **list = calloc((size_t)n + 1, sizeof(ht_array *));
    for (int i = 0; list && i < n; i++) list[i] = ht_array_retain(arrays[i]);
    return list;
}

ht_flat *ht_flat_new(ht_device *d, const ht_tape *tape, ht_array *const *in, int n_in, ht_array *const *out,
                     int n_out) {
    if (!can_be_flat(d, tape, n_in, n_out)) return NULL;
    ht_flat *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->refs = 1;
    f->device = ht_device_retain(d);
    f->in = held_list(in, n_in);
    f->out = held_list(out, n_out);
    f->n_in = f->in ? n_in : 0;
    f->n_out = f->out ? n_out : 0;
    f->made = calloc((size_t)n_out + 1, sizeof(ht_array *));
    f->source = calloc((size_t)n_out + 1, sizeof *f->source);
    if (f->in && f->out && f->made && f->source && find_constants(f, tape)) {
        for (int i = 0; i < n_out; i++) f->source[i] = source_of(f, tape, out[i]);
        return f;
    }
    ht_flat_release(f);
    return NULL;
}

ht_device *ht_flat_device(const ht_flat *f) { return f->device; }

void ht_flat_release(ht_flat *f) {
    if (!f || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
    ht_flat_list_free(f->list);
    for (int i = 0; i < f->n_out; i++) ht_array_free(f->out[i]);
    for (int i = 0; i < f->n_in; i++) ht_array_free(f->in[i]);
    free(f->in);
    free(f->out);
    free(f->made);
    free(f->constant);
    free(f->source);
    ht_device_free(f->device);
    free(f);
}

/* ---- calls ---- */

static ht_flat_run *new_run(ht_flat *f) {
    ht_flat_run *r = calloc(1, sizeof *r + (size_t)f->n_made * sizeof r->result[0]);
    if (!r) return NULL;
    r->refs = 1;
    r->flat = f;
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return r;
}

static ht_flat_run *share(ht_flat_run *r) {
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

static ht_array *new_compiled(ht_scope *s, ht_flat *f, ht_array *const *in) {
    const bool ready = atomic_load_explicit(&f->ready, memory_order_acquire);
    const int n = f->n_in + (ready ? 0 : f->n_constants);
    ht_array **all = NULL;
    if (!ready) {
        all = ht_array_list(s, n);
        if (!all) return NULL;
        memcpy(all, in, (size_t)f->n_in * sizeof(ht_array *));
        memcpy(all + f->n_in, f->constant, (size_t)f->n_constants * sizeof(ht_array *));
    }
    ht_array *compiled = ht_array_new(s, HT_OP_COMPILED, ready ? in : all, n);
    free(all);
    if (!compiled) return NULL;
    ht_array_set_contiguous(compiled, HT_U8, (int64_t[]){0}, 1);
    compiled->run = new_run(f);
    return compiled->run ? compiled : ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a call of a compiled function");
}

static ht_array *new_out(ht_scope *s, ht_array *compiled, int index) {
    ht_array *a = ht_array_new(s, HT_OP_COMPILED_OUT, &compiled, 1);
    if (!a) return NULL;
    const ht_array *like = compiled->run->flat->made[index];
    ht_array_set_contiguous(a, like->dtype, like->shape, like->n_dims);
    memcpy(a->params, &index, sizeof index);
    a->run = share(compiled->run);
    return a;
}

/* View of the storage of x with the shape, strides and relative offset of `like`. */
static ht_array *seen_as(ht_scope *s, ht_array *x, const ht_array *like) {
    ht_array *v = ht_view_node(s, HT_OP_IDENTITY, &x, 1, 0);
    if (!v) return NULL;
    v->offset = x->offset * (int64_t)ht_dtype_bytes(x->dtype) / (int64_t)ht_dtype_bytes(like->dtype) + like->offset;
    v->dtype = like->dtype;
    v->n_dims = like->n_dims;
    memcpy(v->shape, like->shape, (size_t)like->n_dims * sizeof *v->shape);
    memcpy(v->stride, like->stride, (size_t)like->n_dims * sizeof *v->stride);
    return v;
}

bool ht_flat_call(ht_scope *s, ht_flat *f, ht_array *const *in, ht_array **out) {
    ht_array *compiled = new_compiled(s, f, in), *few[8], **made = few;
    if (!compiled || (f->n_made > 8 && !(made = ht_array_list(s, f->n_made)))) return false;
    bool ok = true;
    for (int i = 0; ok && i < f->n_made; i++) ok = (made[i] = new_out(s, compiled, i)) != NULL;
    for (int i = 0; ok && i < f->n_out; i++) {
        const source *from = &f->source[i];
        ht_array *x = from->kind == MADE ? made[from->index] : from->kind == ARGUMENT ? in[from->index] : f->out[i];
        out[i] = from->kind == CONSTANT ? ht_placeholder(s, x) : from->whole ? x : seen_as(s, x, f->out[i]);
        ok = out[i] != NULL;
    }
    if (made != few) free(made);
    return ok;
}

/* ---- evaluation ---- */

static int index_of(const ht_array *out) {
    int index;
    memcpy(&index, out->params, sizeof index);
    return index;
}

void ht_flat_run_release(ht_flat_run *r) {
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < r->flat->n_made; i++) ht_buffer_release(r->result[i].buffer);
    ht_flat_release(r->flat);
    free(r);
}

void ht_flat_request(ht_array *out, uint64_t visit) {
    ht_flat_run *r = out->run;
    const int i = index_of(out);
    r->result[i].requested = out;
    r->result[i].visit = visit;
}

int ht_flat_count(const ht_array *compiled) { return compiled->run->flat->n_made; }

ht_array *ht_flat_requested(const ht_array *compiled, uint64_t visit, int i) {
    const ht_flat_run *r = compiled->run;
    return r->result[i].visit == visit ? r->result[i].requested : NULL;
}

void ht_flat_discard(ht_array *compiled) {
    ht_flat_run *r = compiled->run;
    for (int i = 0; i < r->flat->n_made; i++) {
        ht_buffer_release(r->result[i].buffer);
        r->result[i].buffer = NULL;
    }
}

ht_status ht_flat_take(ht_array *out, ht_error *err) {
    ht_buffer **buffer = &out->run->result[index_of(out)].buffer;
    if (!*buffer)
        return ht_fail(err, HT_ERR_MEMORY, "a result of a compiled function was given back before it was used");
    out->buffer = *buffer;
    *buffer = NULL;
    return HT_OK;
}

static ht_status make_ready(ht_flat *f, ht_error *err) {
    if (f->list) return HT_OK;
    ht_status st = ht_flat_list_new(f->device, f->in, f->n_in, f->made, f->n_made, &f->list, err);
    if (st == HT_OK) atomic_store_explicit(&f->ready, true, memory_order_release);
    return st;
}

ht_status ht_flat_compute(ht_stream *stream, ht_array *compiled, uint64_t visit, ht_flat_scratch *scratch,
                          ht_error *err) {
    ht_flat_run *r = compiled->run;
    ht_flat *f = r->flat;
    void *few[16], **data = few;
    ht_status st = make_ready(f, err);
    if (st) return st;
    if (f->n_in + f->n_made > 16 && !(data = calloc((size_t)(f->n_in + f->n_made), sizeof *data)))
        return ht_fail_memory(err, 8, "a call of a compiled function");
    ht_flat_discard(compiled);
    for (int i = 0; i < f->n_in; i++) {
        const ht_array *x = compiled->in[i];
        data[i] = (char *)ht_storage(compiled->in[i])->buffer->data + x->offset * (int64_t)ht_dtype_bytes(x->dtype);
    }
    for (int i = 0; st == HT_OK && i < f->n_made; i++) {
        const ht_array *a = f->made[i];
        st = ht_buffer_new(a->memory, (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype), &r->result[i].buffer, err);
        if (st == HT_OK) data[f->n_in + i] = r->result[i].buffer->data;
    }
    if (st == HT_OK) st = scratch(stream, ht_flat_list_scratch(f->list), err);
    if (st == HT_OK) st = ht_flat_list_run(f->list, data, stream->scratch, err);
    if (data != few) free(data);
    if (st) {
        ht_flat_discard(compiled);
        return st;
    }
    for (int i = 0; i < f->n_made; i++) {
        if (r->result[i].visit != visit) continue;
        r->result[i].requested->buffer = r->result[i].buffer;
        r->result[i].buffer = NULL;
    }
    return HT_OK;
}
