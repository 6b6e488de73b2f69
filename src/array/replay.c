#include "array/replay.h"

#include "array/differentiate.h"
#include "array/node_map.h"
#include "array/topological_order.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

/* Operand of a recorded call: index of an argument or earlier result (>= 0), absent, or a constant (<= FIRST_CONSTANT). */
typedef int32_t operand;
enum { ABSENT = -1, FIRST_CONSTANT = -2 };

typedef struct event {
    ht_replay_fn *again;
    void *args;
    void (*release)(void *args);
    operand *in;
    int n_in, n_out;
    int32_t first_out; /* index of its first result */
    bool needed;
} event;

struct ht_record {
    struct ht_record *outer; /* while open: the enclosing record of the thread */
    int inside;              /* depth of calls in progress; nested calls are not recorded */
    bool open, failed;
    event *event;
    int64_t n;
    int n_in, n_out;
    int32_t n_places;
    operand *out;
    ht_node_map known; /* while open: 2 * place, or 2 * constant + 1 */
    ht_array **held;   /* while open: arguments and results, retained so that addresses stay unique */
    size_t n_held, held_capacity;
    ht_array **constant;
    size_t n_constants, constant_capacity;
};

_Atomic int ht_records_open;
static _Thread_local ht_record *recorder;

bool ht_record_is_open(void) { return recorder && recorder->inside == 0; }

/* ---- operands ---- */

static bool hold(ht_array ***list, size_t *n, size_t *capacity, ht_array *a) {
    if (!ht_list_push(list, n, capacity, a)) return false;
    ht_array_retain(a);
    return true;
}

static bool new_place(ht_record *r, ht_array *a) {
    int32_t place = r->n_places++;
    if (a == HT_NONE) return true;
    return hold(&r->held, &r->n_held, &r->held_capacity, a) && ht_node_map_set(&r->known, a, 2 * (int64_t)place);
}

static bool depends(const ht_record *r, const ht_array *a) {
    int64_t known = a == HT_NONE ? -1 : ht_node_map_get(&r->known, a);
    return known >= 0 && known % 2 == 0;
}

static bool operand_of(ht_record *r, ht_array *a, operand *out) {
    *out = ABSENT;
    if (a == HT_NONE) return true;
    int64_t known = ht_node_map_get(&r->known, a);
    if (known < 0) {
        known = 2 * (int64_t)r->n_constants + 1;
        if (!hold(&r->constant, &r->n_constants, &r->constant_capacity, a) || !ht_node_map_set(&r->known, a, known))
            return false;
    }
    *out = known % 2 ? FIRST_CONSTANT - (operand)(known / 2) : (operand)(known / 2);
    return true;
}

static ht_array *array_of(const ht_record *r, operand o, ht_array *const *place) {
    return o >= 0 ? place[o] : o == ABSENT ? HT_NONE : r->constant[FIRST_CONSTANT - o];
}

/* ---- recording ---- */

static void free_event(event *e) {
    if (e->release && e->args) e->release(e->args);
    free(e->args);
    free(e->in);
}

static event *next_event(ht_record *r) {
    if (!HT_GROW_ONE(r->event, r->n)) return NULL;
    return &r->event[r->n];
}

/* Appends a call; owns call->args, also on failure. */
static bool note(ht_record *r, const event *call, ht_array *const *in, ht_array *const *out) {
    event e = *call, *at = next_event(r);
    e.in = malloc((size_t)(e.n_in + 1) * sizeof *e.in);
    e.first_out = r->n_places;
    bool ok = at && e.in;
    for (int i = 0; ok && i < e.n_in; i++) ok = operand_of(r, in[i], &e.in[i]);
    for (int i = 0; ok && i < e.n_out; i++) ok = new_place(r, out[i]);
    if (ok) {
        *at = e;
        r->n++;
    } else
        free_event(&e);
    return ok;
}

/* Gives a result that is already known as another value a new node; otherwise later operands would be ambiguous. */
static bool make_distinct(ht_scope *s, const ht_record *r, ht_array *const *in, int n_in, ht_array **out, int n_out) {
    for (int i = 0; i < n_out; i++) {
        if (out[i] == HT_NONE) continue;
        bool taken = ht_node_map_get(&r->known, out[i]) >= 0;
        for (int k = 0; k < n_in; k++) taken = taken || out[i] == in[k];
        for (int k = 0; k < i; k++) taken = taken || out[i] == out[k];
        if (taken && !(out[i] = ht_placeholder(s, out[i]))) return false;
    }
    return true;
}

bool ht_record_call(ht_scope *s, const ht_recorded_call *call, ht_array *const *in, int n_in, ht_array **out,
                    int n_out) {
    ht_record *r = recorder;
    event e = {.again = call->again,
               .args = malloc(call->args_bytes + 1),
               .release = call->release,
               .n_in = n_in,
               .n_out = n_out};
    if (e.args && call->args_bytes) memcpy(e.args, call->args, call->args_bytes);
    bool follows = false, whole = e.args != NULL;
    for (int i = 0; i < n_in; i++) {
        whole = whole && in[i];
        follows = follows || (in[i] && depends(r, in[i]));
    }
    if (!e.args) {
        if (call->release) call->release((void *)(uintptr_t)call->args);
        ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: the record of a function");
    }
    r->inside++;
    bool ok = e.args && call->again(s, e.args, in, n_in, out);
    follows = follows && whole && ok;
    if (follows) ok = follows = make_distinct(s, r, in, n_in, out, n_out);
    r->inside--;
    if (follows)
        r->failed = !note(r, &e, in, out) || r->failed;
    else
        free_event(&e);
    return ok;
}

ht_array *ht_record_one(ht_scope *s, ht_replay_fn *again, const void *args, size_t args_bytes, ht_array *const *in,
                        int n_in) {
    ht_array *out = NULL;
    return ht_record_call(s, &(ht_recorded_call){again, args, args_bytes, NULL}, in, n_in, &out, 1) ? out : NULL;
}

ht_record *ht_record_open(ht_array *const *in, int n_in) {
    ht_record *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->n_in = n_in;
    r->open = true;
    r->outer = recorder;
    for (int i = 0; i < n_in; i++) r->failed = !new_place(r, in[i]) || r->failed;
    recorder = r;
    atomic_fetch_add(&ht_records_open, 1);
    return r;
}

/* Closes a record and frees the state of recording. */
static void end(ht_record *r) {
    if (!r->open) return;
    r->open = false;
    recorder = r->outer;
    atomic_fetch_sub(&ht_records_open, 1);
    for (size_t i = 0; i < r->n_held; i++) ht_array_free(r->held[i]);
    free(r->held);
    r->held = NULL;
    r->n_held = 0;
    ht_node_map_free(&r->known);
}

/* Marks the calls to be replayed: those whose results are used, and checks, which have no results. */
static bool mark_needed(ht_record *r) {
    bool *needed = calloc((size_t)r->n_places + 1, 1);
    if (!needed) return false;
    for (int i = 0; i < r->n_out; i++)
        if (r->out[i] >= 0) needed[r->out[i]] = true;
    for (int64_t i = r->n - 1; i >= 0; i--) {
        event *e = &r->event[i];
        e->needed = e->n_out == 0;
        for (int k = 0; k < e->n_out; k++) e->needed = e->needed || needed[e->first_out + k];
        for (int k = 0; e->needed && k < e->n_in; k++)
            if (e->in[k] >= 0) needed[e->in[k]] = true;
    }
    free(needed);
    return true;
}

bool ht_record_close(ht_scope *s, ht_record *r, ht_array *const *out, int n_out) {
    bool ok = !r->failed && (r->out = malloc((size_t)(n_out + 1) * sizeof *r->out));
    r->n_out = n_out;
    for (int i = 0; ok && i < n_out; i++) ok = operand_of(r, out[i], &r->out[i]);
    ok = ok && mark_needed(r);
    end(r);
    if (!ok) ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: the record of a function");
    return ok;
}

void ht_record_free(ht_record *r) {
    if (!r) return;
    end(r);
    for (int64_t i = 0; i < r->n; i++) free_event(&r->event[i]);
    for (size_t i = 0; i < r->n_constants; i++) ht_array_free(r->constant[i]);
    free(r->event);
    free(r->constant);
    free(r->out);
    free(r);
}

/* ---- replaying ---- */

static bool event_again(ht_scope *s, const ht_record *r, const event *e, ht_array **place) {
    ht_array *few[8], **in = e->n_in <= 8 ? few : ht_array_list(s, e->n_in);
    if (!in) return false;
    bool ok = true;
    for (int i = 0; i < e->n_in; i++) in[i] = array_of(r, e->in[i], place);
    for (int i = 0; ok && i < e->n_in; i++)
        if (!in[i] || (in[i] == HT_NONE && e->in[i] != ABSENT)) {
            ht_scope_fail(s, HT_ERR_ARGUMENT, "a value that was computed for the traced sizes is missing for these");
            ok = false;
        }
    ok = ok && e->again(s, e->args, in, e->n_in, place + e->first_out);
    if (in != few) free(in);
    return ok;
}

bool ht_replay(ht_scope *s, const ht_record *r, ht_array *const *in, ht_array **out) {
    ht_array **place = ht_array_list(s, r->n_places);
    if (!place) return false;
    memcpy(place, in, (size_t)r->n_in * sizeof(ht_array *));
    bool ok = true;
    for (int64_t i = 0; ok && i < r->n; i++)
        if (r->event[i].needed) ok = event_again(s, r, &r->event[i], place) && !s->failed;
    for (int i = 0; i < r->n_out; i++) {
        out[i] = ok ? array_of(r, r->out[i], place) : NULL;
        ok = ok && out[i] && out[i] != HT_NONE;
    }
    free(place);
    return ok;
}
