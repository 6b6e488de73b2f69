/* Elementwise fusion (fuse_elementwise.h): groups grow in topological order. */
#include "array/fuse_elementwise.h"

#include "array/op.h"

#include <string.h>

bool ht_fused_supports(ht_op_id op) {
    static const bool takes[HT_OP_COUNT] = {
#define X(id, name) [HT_OP_##id] = true,
        HT_OP_ELEMENTWISE(X)
#undef X
    };
    return takes[op];
}

static bool same_shape(const ht_array *a, const ht_array *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

/* Step that computes `a`; -1: not in the group. */
static int step_of(const ht_fused *f, const ht_array *a) {
    int i = a->slot - 1;
    return i >= 0 && i < f->program.n_steps && f->member[i] == a ? i : -1;
}

/* Index of an input with the same storage, offset, strides and dtype as `a`, or of the next free input. */
static int input_for(const ht_fused *f, int n_in, const ht_array *a) {
    for (int k = 0; k < n_in; k++) {
        const ht_array *b = f->in[k];
        if (b == a) return k;
        bool same = b->base && b->base == a->base && b->offset == a->offset && b->dtype == a->dtype;
        if (same && memcmp(b->stride, a->stride, (size_t)a->n_dims * sizeof *a->stride) == 0) return k;
    }
    return n_in;
}

/* Appends a lazy node to the group and sets its `slot` to its step + 1. Returns false, with the group unchanged, when
 * the device does not support the step, the shape differs, it reads a grouped node through a view, or the program is
 * full. */
static bool fused_add(ht_fused *f, const ht_device *d, ht_array *a) {
    ht_program *p = &f->program;
    if (!ht_fused_supports(a->op) || p->n_steps == HT_PROGRAM_STEPS || a->n_in < 1 || a->n_in > HT_STEP_INPUTS)
        return false;
    if (p->n_steps && !same_shape(f->member[0], a)) return false;
    ht_program_step *s = &p->step[p->n_steps];
    *s = (ht_program_step){.op = a->op,
                           .from = a->in[a->n_in - 1]->dtype,
                           .to = a->dtype,
                           .n_in = (int8_t)a->n_in,
                           .out = -1,
                           .params = a->params};
    int n_in = p->n_in;
    for (int i = 0; i < a->n_in; i++) {
        ht_array *x = a->in[i];
        if (x == HT_NONE || (x->base && step_of(f, x->base) >= 0)) return false;
        int step = x->base ? -1 : step_of(f, x);
        if (step >= 0) {
            s->in[i] = (int8_t)(-1 - step);
            continue;
        }
        int k = input_for(f, n_in, x);
        if (k == HT_PROGRAM_INPUTS) return false;
        f->in[k] = x;
        p->in[k] = x->dtype;
        if (k == n_in) n_in++;
        s->in[i] = (int8_t)k;
    }
    if (!d->programs->takes_step(d, s->op, s->from, s->to)) return false;
    p->n_in = n_in;
    f->member[p->n_steps++] = a;
    a->slot = p->n_steps;
    return true;
}

int32_t ht_fused_reads(const ht_fused *f, const ht_array *storage) {
    int32_t reads = 0;
    for (int i = 0; i < f->program.n_steps; i++)
        for (int k = 0; k < f->member[i]->n_in; k++) reads += ht_storage(f->member[i]->in[k]) == storage;
    return reads;
}

/* ---- grouping ---- */

enum { SMALL_BYTES = 4096, LOOK_AHEAD = 96, MOST_WAITING = 8 };

/* True when an operand of `a` waits for the group or, with `or_member`, belongs to it. */
static bool reads_waiting(uint64_t visit, const ht_array *a, bool or_member) {
    for (int i = 0; i < a->n_in; i++) {
        if (a->in[i] == HT_NONE) continue;
        const ht_array *from = ht_storage(a->in[i]);
        if (from->visit == visit && (from->slot == HT_FUSED_WAITING || (or_member && from->slot > 0))) return true;
    }
    return false;
}

static bool is_small(const ht_array *a) {
    return !ht_op_info_of(a->op)->effect && (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype) <= SMALL_BYTES;
}

ht_status ht_fused_gather(ht_fused *f, const ht_device *d, const ht_worklist *list, uint64_t visit, size_t *at,
                          ht_fused_between_fn *between, void *user) {
    ht_array **order = list->order;
    size_t i = *at, end = i + LOOK_AHEAD < list->n ? i + LOOK_AHEAD : list->n;
    ht_status st = HT_OK;
    f->program.n_steps = f->program.n_in = 0;
    if (!fused_add(f, d, order[i])) return HT_OK;
    int waiting = 0;
    while (st == HT_OK && waiting < MOST_WAITING && ++i < end) {
        ht_array *a = order[i];
        if (a->base || a->slot == HT_FUSED_DONE) continue;
        if (!reads_waiting(visit, a, false) && fused_add(f, d, a)) continue;
        if (reads_waiting(visit, a, true)) {
            a->slot = HT_FUSED_WAITING;
            waiting++;
        } else if (!is_small(a))
            break;
        else
            st = between(user, a);
    }
    for (size_t k = *at; waiting && k < end; k++)
        if (order[k]->slot == HT_FUSED_WAITING) order[k]->slot = HT_FUSED_TO_DO;
    if (st) *at = i;
    return st;
}

static bool is_output(const ht_array *member, int32_t reads) { return member->keep || member->kernel_uses > reads; }

/* Numbers the outputs; false when there are more than HT_PROGRAM_OUTPUTS. */
static bool find_outputs(ht_fused *f) {
    ht_program *p = &f->program;
    int32_t reads[HT_PROGRAM_STEPS] = {0};
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].n_in; k++)
            if (p->step[i].in[k] < 0) reads[-1 - p->step[i].in[k]]++;
    p->n_out = 0;
    for (int i = 0; i < p->n_steps; i++) {
        p->step[i].out = -1;
        if (!is_output(f->member[i], reads[i])) continue;
        if (p->n_out == HT_PROGRAM_OUTPUTS) return false;
        p->step[i].out = (int8_t)p->n_out;
        f->out[p->n_out++] = f->member[i];
    }
    return true;
}

/* Number of inputs that are still read. Inputs are numbered in the order of the steps, so removed steps had the last
 * ones. */
static int count_inputs(const ht_program *p) {
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].n_in; k++)
            if (p->step[i].in[k] >= n) n = p->step[i].in[k] + 1;
    return n;
}

int ht_fused_close(ht_fused *f, const ht_device *d) {
    ht_program *p = &f->program;
    while (p->n_steps > 1 && !(find_outputs(f) && d->programs->prepare(d, p)))
        f->member[--p->n_steps]->slot = HT_FUSED_TO_DO;
    p->n_in = count_inputs(p);
    return p->n_steps;
}
