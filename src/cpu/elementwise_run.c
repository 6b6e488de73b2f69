/* Elementwise program execution by blocks (elementwise.h): every step of a program on one block, then on the next, so that
 * intermediate results stay in the first-level cache. */
#include "base/checked.h"
#include "cpu/bypass.h"
#include "cpu/elementwise_job.h"
#include "cpu/strided_iterator.h"

/* Programs of so many operations take no longer than memory, if none of them does. */
enum { LIGHT_STEPS = 3 };

/* Whether an element takes longer to compute than to read and write. */
static bool is_math(ht_op_id op) {
    switch (op) {
    case HT_OP_COPY:
    case HT_OP_CAST:
    case HT_OP_NEGATIVE:
    case HT_OP_ABS:
    case HT_OP_SIGN:
    case HT_OP_SQUARE:
    case HT_OP_ADD:
    case HT_OP_SUBTRACT:
    case HT_OP_MULTIPLY:
    case HT_OP_SCALE:
    case HT_OP_MINIMUM:
    case HT_OP_MAXIMUM:
    case HT_OP_WHERE:
    case HT_OP_EQUAL:
    case HT_OP_NOT_EQUAL:
    case HT_OP_LESS:
    case HT_OP_LESS_EQUAL:
    case HT_OP_LOGICAL_NOT:
    case HT_OP_LOGICAL_AND:
    case HT_OP_LOGICAL_OR:
    case HT_OP_BITWISE_INVERT:
    case HT_OP_BITWISE_AND:
    case HT_OP_BITWISE_OR:
    case HT_OP_BITWISE_XOR:
    case HT_OP_LEFT_SHIFT:
    case HT_OP_RIGHT_SHIFT: return false;
    default: return true;
    }
}

/* Whether an output goes round the caches: a result over an input is in a cache when it is written. */
static bool bypasses(const elementwise_job *j, const ht_view *in, const ht_view *out) {
    if (!ht_bypasses((size_t)j->size * ht_dtype_bytes(out->dtype))) return false;
    for (int k = 0; k < j->p->n_in; k++)
        if (in[k].data == out->data) return false;
    return true;
}

static void lay(elementwise_job *j, const ht_program *p, const ht_view *in, const ht_view *out) {
    j->p = p;
    j->size = ht_view_size(&out[0]);
    ht_elementwise_layout_operands(j, in, out);
    int64_t widest = 4;
    for (int k = 0; k < p->n_in; k++) widest = ht_max_i64(widest, j->in[k].bytes);
    for (int k = 0; k < p->n_out; k++) {
        j->out[k] = out[k].data;
        j->bypass[k] = bypasses(j, in, &out[k]);
    }
    j->heavy = p->n_steps > LIGHT_STEPS;
    for (int i = 0; i < p->n_steps; i++) {
        widest = ht_max_i64(widest, (int64_t)ht_dtype_bytes(p->step[i].to));
        j->heavy |= is_math(p->step[i].op);
    }
    j->block = HT_ELEMENTWISE_BLOCK_BYTES / widest;
}

/* Operands of the next block, asked for while this one is stored round the caches: the core would otherwise wait for them
 * behind its stores. `bytes`: of an element of the result. */
static int lay_ahead(const elementwise_job *j, int64_t bytes, int64_t next, ht_ahead ahead[HT_PROGRAM_INPUTS]) {
    int n = 0;
    for (int k = 0; k < j->p->n_in; k++) {
        const elementwise_operand *s = &j->in[k];
        if (s->how == OPERAND_WHOLE)
            ahead[n++] = (ht_ahead){s->data + next * s->bytes, (size_t)(64 * s->bytes / bytes)};
    }
    return n;
}

static void run_block(const elementwise_job *j, const elementwise_block *b, elementwise_scratch *r) {
    const ht_program *p = j->p;
    const void *input[HT_PROGRAM_INPUTS], *made[HT_PROGRAM_STEPS];
    for (int k = 0; k < p->n_in; k++) input[k] = ht_elementwise_operand(j, k, b, r);
    for (int i = 0; i < p->n_steps; i++) {
        const ht_program_step *s = &p->step[i];
        const void *in[HT_STEP_INPUTS];
        for (int k = 0; k < s->n_in; k++) in[k] = s->in[k] >= 0 ? input[s->in[k]] : made[-1 - s->in[k]];
        const int64_t bytes = (int64_t)ht_dtype_bytes(s->to);
        const bool bypass = s->out >= 0 && j->bypass[s->out];
        char *result = s->out >= 0 ? j->out[s->out] + b->at * bytes : r->local[s->local];
        void *to = bypass ? r->bypassed[s->out] : result;
        ((ht_elementwise_fn *)s->kernel)(in, to, b->n, s->params);
        made[i] = to;
        if (!bypass) continue;
        ht_ahead ahead[HT_PROGRAM_INPUTS];
        const int n_ahead = lay_ahead(j, bytes, b->at + 2 * b->n, ahead);
        ht_bypass(result, to, (size_t)(b->n * bytes), ahead, n_ahead);
    }
}

static void run_range(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const elementwise_job *j = arg;
    elementwise_scratch r;
    elementwise_block b;
    ht_elementwise_fill_scalars(j, ht_min_i64(j->block, end - begin), &r);
    for (b.at = begin; b.at < end; b.at += b.n) {
        b.n = ht_min_i64(j->block, end - b.at);
        ht_elementwise_find_index(j, &b);
        if (j->by_rows) b.n = ht_min_i64(b.n, j->shape[j->n_dims - 1] - b.index[j->n_dims - 1]);
        run_block(j, &b, &r);
    }
    for (int k = 0; k < j->p->n_out; k++)
        if (j->bypass[k]) ht_bypass_end();
}

void ht_elementwise_run_program(const ht_program_run *run) {
    elementwise_job j;
    lay(&j, run->program, run->in, run->out);
    if (j.size) ht_pool_run(run->pool, j.size, j.heavy ? HT_GRAIN_MATH : HT_GRAIN_CHEAP, run_range, &j);
}

/* ---- one operation ---- */

static void one_step(ht_program *p, const ht_call *call, ht_op_id op, ht_elementwise_fn *fn) {
    p->n_steps = 1;
    p->n_in = call->n_in;
    p->n_out = 1;
    p->step[0] = (ht_program_step){.op = op,
                                   .from = call->n_in ? call->in[call->n_in - 1].dtype : call->out.dtype,
                                   .to = call->out.dtype,
                                   .n_in = (int8_t)call->n_in,
                                   .in = {0, 1, 2},
                                   .params = call->params,
                                   .kernel = (void (*)(void))fn};
}

void ht_elementwise_run(const ht_call *call, ht_op_id op, ht_elementwise_fn *fn) {
    ht_program p;
    one_step(&p, call, op, fn);
    ht_elementwise_run_program(&(ht_program_run){.program = &p, .in = call->in, .out = &call->out, .pool = call->pool});
}

void ht_elementwise_run_rows(const ht_call *call, ht_op_id op, ht_elementwise_fn *fn, int64_t begin, int64_t end) {
    ht_program p;
    elementwise_job j;
    one_step(&p, call, op, fn);
    lay(&j, &p, call->in, &call->out);
    const int64_t width = call->out.shape[0] > 0 ? j.size / call->out.shape[0] : 0;
    run_range(&j, begin * width, end * width, 0);
}
