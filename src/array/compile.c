/* Compiled functions: traced once per combination of argument shapes and dtypes; later calls instantiate the trace for
 * new arguments. Shapeless functions are also recorded (array/replay.h), and traces for other sizes are made from the
 * record. */
#include "array/differentiate.h"
#include "array/flat_program.h"
#include "array/op.h"
#include "array/replay.h"
#include "array/tape.h"
#include "array/user_function.h"
#include "base/error.h"
#include "base/options.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

/* Trace of a function for given argument shapes and dtypes. Read-only once it is in the list. */
typedef struct trace {
    struct trace *next;
    ht_tape tape; /* begins with the arguments */
    int n_in, n_out;
    ht_array **in, **out; /* retained; `in` are leaves without values */
    ht_flat *flat;        /* NULL: every call instantiates the nodes */
    bool tried;
} trace;

/* Record of a shapeless function for given argument dtypes and numbers of dimensions. */
typedef struct kind {
    struct kind *next;
    ht_record *record;
    int n_in, n_out;
    ht_array *in[]; /* arguments of the recorded call, retained */
} kind;

enum { MAX_TRACES = 64 };

struct ht_compiled {
    ht_function f;
    ht_compile_options options;
    pthread_mutex_t lock; /* protects the lists; held while the function is traced */
    trace *traces;        /* most recently used first */
    kind *kinds;          /* of a shapeless function */
};

static void free_trace(trace *t) {
    if (!t) return;
    ht_flat_release(t->flat);
    ht_tape_free(&t->tape);
    for (int i = 0; t->in && i < t->n_in; i++) ht_array_free(t->in[i]);
    for (int i = 0; t->out && i < t->n_out; i++) ht_array_free(t->out[i]);
    free(t->in);
    free(t->out);
    free(t);
}

static void free_kind(kind *k) {
    if (!k) return;
    ht_record_free(k->record);
    for (int i = 0; i < k->n_in; i++) ht_array_free(k->in[i]);
    free(k);
}

static const ht_compile_options defaults = {.size = sizeof defaults};

void ht_compile_options_init(ht_compile_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

ht_status ht_compile(const ht_function *f, const ht_compile_options *options, ht_compiled **out, ht_error *err) {
    *out = NULL;
    ht_compile_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_compile_options", err);
    if (status) return status;
    ht_compiled *c = calloc(1, sizeof *c);
    if (!c) return ht_fail_memory(err, sizeof *c, "a compiled function");
    *c = (ht_compiled){.f = *f, .options = o};
    pthread_mutexattr_t recursive; /* the function may call itself */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    *out = c;
    return HT_OK;
}

void ht_compiled_free(ht_compiled *c) {
    if (!c) return;
    while (c->traces) {
        trace *next = c->traces->next;
        free_trace(c->traces);
        c->traces = next;
    }
    while (c->kinds) {
        kind *next = c->kinds->next;
        free_kind(c->kinds);
        c->kinds = next;
    }
    if (c->options.release) c->options.release(c->f.user);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- tracing ---- */

static bool same_kind(const ht_array *a, const ht_array *b) { return a->dtype == b->dtype && ht_same_shape(a, b); }

static trace *find(const ht_compiled *c, ht_array *const *in, int n_in) {
    for (trace *t = c->traces; t; t = t->next) {
        bool same = t->n_in == n_in;
        for (int i = 0; same && i < n_in; i++) same = same_kind(t->in[i], in[i]);
        if (same) return t;
    }
    return NULL;
}

static const kind *find_kind(const ht_compiled *c, ht_array *const *in, int n_in) {
    for (const kind *k = c->kinds; k; k = k->next) {
        bool same = k->n_in == n_in;
        for (int i = 0; same && i < n_in; i++)
            same = k->in[i]->dtype == in[i]->dtype && k->in[i]->n_dims == in[i]->n_dims;
        if (same) return k;
    }
    return NULL;
}

/* Placeholder of x: a leaf without a value. */
static ht_array *argument_like(ht_scope *inner, const ht_array *x) {
    ht_array *a = ht_array_new(inner, HT_OP_LEAF, NULL, 0);
    if (a) ht_array_set_contiguous(a, x->dtype, x->shape, x->n_dims);
    return a;
}

/* Fills held[0 .. n) with placeholders of `in`. */
static bool hold_arguments(ht_scope *inner, ht_array *const *in, int n, ht_array **held) {
    for (int i = 0; i < n; i++) {
        held[i] = ht_array_retain(argument_like(inner, in[i]));
        if (!held[i]) return false;
    }
    return true;
}

static bool make_arguments(ht_scope *inner, ht_array *const *in, trace *t, int max_out) {
    t->in = ht_array_list(inner, t->n_in);
    t->out = ht_array_list(inner, max_out);
    return t->in && t->out && hold_arguments(inner, in, t->n_in, t->in);
}

static bool keep_results(ht_scope *inner, trace *t, int n) {
    t->n_out = n;
    for (int i = 0; i < n; i++) ht_array_retain(t->out[i]);
    return ht_tape_make(inner, HT_EDGES_ALL, t->in, t->n_in, t->out, n, &t->tape);
}

static bool trace_in(ht_scope *inner, ht_compiled *c, ht_array *const *in, trace *t, int max_out) {
    if (!make_arguments(inner, in, t, max_out)) return false;
    int n = ht_user_function_call(inner, &c->f, t->in, t->n_in, t->out, max_out);
    return n >= 0 && keep_results(inner, t, n);
}

/* Calls the function, records it, and adds the record to the list. */
static const kind *new_kind(ht_scope *inner, ht_compiled *c, ht_array *const *in, int n_in, int max_out) {
    kind *k = calloc(1, sizeof *k + (size_t)n_in * sizeof(ht_array *));
    ht_array **out = ht_array_list(inner, max_out);
    if (k) k->n_in = n_in;
    bool ok = k && out && hold_arguments(inner, in, n_in, k->in);
    if (ok) k->record = ht_record_open(k->in, n_in);
    if (!k || (ok && !k->record)) ht_scope_fail(inner, HT_ERR_MEMORY, "out of memory: the record of a function");
    ok = ok && k->record && (k->n_out = ht_user_function_call(inner, &c->f, k->in, n_in, out, max_out)) >= 0 &&
         ht_record_close(inner, k->record, out, k->n_out);
    free(out);
    if (!ok) {
        free_kind(k);
        return NULL;
    }
    k->next = c->kinds;
    return c->kinds = k;
}

/* Adds the new and the traced sizes to the error of a replay. */
static void explain(ht_scope *inner, const kind *k, ht_array *const *in) {
    char text[HT_SHAPE_TEXT], was[HT_SHAPE_TEXT], cause[sizeof inner->error.message];
    int other = 0;
    while (other < k->n_in && ht_same_shape(k->in[other], in[other])) other++;
    if (!inner->failed) ht_scope_fail(inner, HT_ERR_ARGUMENT, "a call failed without a word");
    if (other == k->n_in || inner->error.status != HT_ERR_ARGUMENT) return;
    memcpy(cause, inner->error.message, sizeof cause);
    inner->failed = false;
    ht_scope_fail(
        inner, HT_ERR_ARGUMENT,
        "%.500s (in a function compiled without shapes: argument %d is %s, it was traced with %s; sizes that it "
        "writes as numbers stay those of that call)",
        cause, other, ht_shape_text(in[other]->shape, in[other]->n_dims, text),
        ht_shape_text(k->in[other]->shape, k->in[other]->n_dims, was));
}

/* Trace by replaying the record, also for the recorded sizes: the recorded nodes are not used themselves, as they
 * include extra nodes of results that are operands, which would change the order in which gradients are summed. */
static bool trace_of_record(ht_scope *inner, ht_compiled *c, ht_array *const *in, trace *t, int max_out) {
    const kind *k = find_kind(c, in, t->n_in);
    if (!k) k = new_kind(inner, c, in, t->n_in, max_out);
    if (!k || !make_arguments(inner, in, t, k->n_out)) return false;
    if (ht_replay(inner, k->record, t->in, t->out) && keep_results(inner, t, k->n_out)) return true;
    t->n_out = 0;
    explain(inner, k, in);
    return false;
}

static trace *new_trace(ht_scope *s, ht_compiled *c, ht_array *const *in, int n_in, int max_out) {
    trace *t = calloc(1, sizeof *t);
    ht_scope *inner = ht_scope_new_tracing(s->stream);
    bool ok = t && inner;
    if (!ok)
        ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a trace of a function");
    else {
        t->n_in = n_in;
        ok =
            ht_scope_succeeded(s, inner, (c->options.shapeless ? trace_of_record : trace_in)(inner, c, in, t, max_out));
    }
    ht_scope_free(inner);
    if (ok) return t;
    free_trace(t);
    return NULL;
}

/* Moves a trace to the front of the list and drops the least recently used ones beyond MAX_TRACES. */
static void put_first(ht_compiled *c, trace *t) {
    trace **at = &c->traces;
    while (*at && *at != t) at = &(*at)->next;
    if (*at) *at = t->next;
    t->next = c->traces;
    c->traces = t;
    at = &c->traces;
    for (int i = 0; *at && i < MAX_TRACES; i++) at = &(*at)->next;
    free_trace(*at);
    *at = NULL;
}

/* ---- calling ---- */

/* True when a call can run as a flat program: it is neither differentiated nor traced. */
static bool is_flat(const ht_scope *s, trace *t) {
    if (ht_graphs_kept || s->tracing) return false;
    if (!t->tried) t->flat = ht_flat_new(s->stream->device, &t->tape, t->in, t->n_in, t->out, t->n_out);
    t->tried = true;
    return t->flat && ht_flat_device(t->flat) == s->stream->device;
}

static bool call_flat(ht_scope *inner, const trace *t, ht_array *const *in, ht_array **out) {
    ht_array *few[8], **whole = t->n_in > 8 ? ht_array_list(inner, t->n_in) : few;
    bool ok = whole != NULL;
    for (int i = 0; ok && i < t->n_in; i++) {
        whole[i] = ht_contiguous(inner, in[i]);
        ok = whole[i] != NULL;
    }
    ok = ok && ht_flat_call(inner, t->flat, whole, out);
    if (whole != few) free(whole);
    return ok;
}

/* Instantiates the trace: copies its nodes onto the arguments. */
static bool instantiate(ht_scope *inner, const trace *t, ht_array *const *in, ht_array **out) {
    const ht_tape *tape = &t->tape;
    ht_array **made = malloc((size_t)(tape->n + 1) * sizeof *made), *few[HT_INLINE_INPUTS];
    bool ok = made != NULL;
    if (!ok) ht_scope_fail(inner, HT_ERR_MEMORY, "out of memory: a call of a compiled function");
    for (int i = 0; ok && i < t->n_in; i++) {
        made[i] = ht_contiguous(inner, in[i]);
        ok = made[i] != NULL;
    }
    for (int64_t i = t->n_in; ok && i < tape->n; i++) {
        const ht_tape_step *step = &tape->step[i];
        ht_array **operand = step->n_in <= HT_INLINE_INPUTS ? few : ht_array_list(inner, step->n_in);
        for (int k = 0; operand && k < step->n_in; k++)
            operand[k] = step->in[k] >= 0 ? made[step->in[k]] : step->node->in[k];
        made[i] = operand ? ht_array_like(inner, step->node, operand) : NULL;
        if (operand != few) free(operand);
        ok = made[i] != NULL;
    }
    for (int i = 0; ok && i < t->n_out; i++) {
        int64_t at = ht_tape_index(tape, t->out[i]);
        out[i] = at >= 0 ? made[at] : ht_placeholder(inner, t->out[i]);
        ok = out[i] != NULL;
    }
    free(made);
    return ok;
}

static bool all_there(ht_scope *s, ht_array *const *in, int n_in) {
    for (int i = 0; i < n_in; i++) {
        if (!in[i]) return false;
        if (in[i] == HT_NONE) {
            ht_scope_fail(s, HT_ERR_ARGUMENT, "argument %d of a compiled function is HT_NONE", i);
            return false;
        }
    }
    return true;
}

/* Calls the original function, whose calls become part of the enclosing record. */
static int call_as_it_is(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_array **out,
                         int max_out) {
    ht_scope *inner = ht_scope_child(s);
    if (!inner) return -1;
    int n = ht_user_function_call(inner, f, in, n_in, out, max_out);
    return ht_scope_give(s, inner, n >= 0, out, n > 0 ? n : 0) ? n : -1;
}

int ht_compiled_call(ht_scope *s, ht_compiled *c, ht_array *const *in, int n_in, ht_array **out, int max_out) {
    for (int i = 0; i < max_out; i++) out[i] = NULL;
    if (!all_there(s, in, n_in)) return -1;
    if (ht_recording()) return call_as_it_is(s, &c->f, in, n_in, out, max_out);
    pthread_mutex_lock(&c->lock);
    trace *t = find(c, in, n_in);
    if (!t) t = new_trace(s, c, in, n_in, max_out);
    if (t) put_first(c, t);
    int n = t ? t->n_out : -1;
    bool ok = n >= 0 && n <= max_out;
    if (n > max_out)
        ht_scope_fail(s, HT_ERR_ARGUMENT, "a function gave %d arrays where there is room for %d", n, max_out);
    ht_scope *inner = ok ? ht_scope_child(s) : NULL;
    if (inner) ok = ht_scope_give(s, inner, (is_flat(s, t) ? call_flat : instantiate)(inner, t, in, out), out, n);
    pthread_mutex_unlock(&c->lock);
    return ok && inner ? n : -1;
}
