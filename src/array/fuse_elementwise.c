/* See fuse_elementwise.h. Members are added in an order in which they can be computed. */
#include "array/fuse_elementwise.h"

#include <string.h>

bool ht_fused_takes(ht_op_id op) {
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

static int step_of(const ht_fused *f, const ht_array *a) {
    int i = a->slot - 1;
    return i >= 0 && i < f->program.n_steps && f->member[i] == a ? i : -1;
}

/* The input that reads a's elements as `a` does, or the next free one. */
static int input_for(const ht_fused *f, int n_in, const ht_array *a) {
    for (int k = 0; k < n_in; k++) {
        const ht_array *b = f->in[k];
        if (b == a) return k;
        bool same = b->base && b->base == a->base && b->offset == a->offset && b->dtype == a->dtype;
        if (same && memcmp(b->stride, a->stride, (size_t)a->n_dims * sizeof *a->stride) == 0) return k;
    }
    return n_in;
}

bool ht_fused_add(ht_fused *f, const ht_device *d, ht_array *a) {
    ht_program *p = &f->program;
    if (!ht_fused_takes(a->op) || p->n_steps == HT_PROGRAM_STEPS || a->n_in < 1 || a->n_in > HT_STEP_INPUTS)
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
    if (!d->takes_step(d, s->op, s->from, s->to)) return false;
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

/* False when there are more outputs than a program has. */
static bool find_outputs(ht_fused *f, ht_is_output_fn *is_output) {
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

/* Inputs are numbered as they come, so those of members that left are the last ones. */
static int count_inputs(const ht_program *p) {
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].n_in; k++)
            if (p->step[i].in[k] >= n) n = p->step[i].in[k] + 1;
    return n;
}

int ht_fused_close(ht_fused *f, const ht_device *d, ht_is_output_fn *is_output) {
    ht_program *p = &f->program;
    while (p->n_steps > 1 && !(find_outputs(f, is_output) && d->prepare_program(d, p)))
        f->member[--p->n_steps]->slot = 0;
    p->n_in = count_inputs(p);
    return p->n_steps;
}
