/* Elementwise program execution (elementwise.h): all steps of a program on one block before the next block, so that
 * intermediate results stay in the L1 cache. */
#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/elementwise_job.h"
#include "cpu/streaming_store.h"
#include "cpu/strided_iterator.h"

/* Programs of at most this many cheap operations are memory-bound. */
enum { MEMORY_BOUND_STEPS = 3 };

/* Whether one operation alone takes longer to compute than its memory traffic. */
static bool is_compute_bound(ht_op_id op) {
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

/* Whether an output is written by streaming stores. An output over one of the inputs is not: its lines are cached
 * already. */
static bool uses_streaming(const elementwise_job *j, const ht_view *in, const ht_view *out) {
    if (!ht_use_streaming((size_t)j->size * ht_dtype_bytes(out->dtype))) return false;
    for (int k = 0; k < j->p->n_in; k++)
        if (in[k].data == out->data) return false;
    return true;
}

/* Lays out a program for its operands and results. */
static void init_job(elementwise_job *j, const ht_program *p, const ht_view *in, const ht_view *out) {
    j->p = p;
    j->size = ht_view_size(&out[0]);
    ht_elementwise_layout_operands(j, in, out);
    int64_t widest = 4;
    for (int k = 0; k < p->n_in; k++) widest = ht_max_i64(widest, j->in[k].bytes);
    for (int k = 0; k < p->n_out; k++) {
        j->out[k] = out[k].data;
        j->streaming[k] = uses_streaming(j, in, &out[k]);
    }
    j->compute_bound = p->n_steps > MEMORY_BOUND_STEPS;
    for (int i = 0; i < p->n_steps; i++) {
        widest = ht_max_i64(widest, (int64_t)ht_dtype_bytes(p->step[i].to));
        j->compute_bound |= is_compute_bound(p->step[i].op);
    }
    j->block = HT_ELEMENTWISE_BLOCK_BYTES / widest;
}

/* Prefetch streams for the operands from element `next` on, paced for a result of `bytes` bytes per element. */
static int next_operands(const elementwise_job *j, int64_t bytes, int64_t next,
                         ht_prefetch_stream ahead[HT_PROGRAM_INPUTS]) {
    int n = 0;
    for (int k = 0; k < j->p->n_in; k++) {
        const elementwise_operand *s = &j->in[k];
        if (s->access == OPERAND_SAME_LAYOUT)
            ahead[n++] = (ht_prefetch_stream){s->data + next * s->bytes, (size_t)(64 * s->bytes / bytes)};
    }
    return n;
}

static void run_block(const elementwise_job *j, const elementwise_block *b, elementwise_scratch *r) {
    const ht_program *p = j->p;
    const void *input[HT_PROGRAM_INPUTS], *results[HT_PROGRAM_STEPS];
    for (int k = 0; k < p->n_in; k++) input[k] = ht_elementwise_operand(j, k, b, r);
    for (int i = 0; i < p->n_steps; i++) {
        const ht_program_step *s = &p->step[i];
        const void *in[HT_STEP_INPUTS];
        for (int k = 0; k < s->n_in; k++) in[k] = s->in[k] >= 0 ? input[s->in[k]] : results[-1 - s->in[k]];
        const int64_t bytes = (int64_t)ht_dtype_bytes(s->to);
        const bool streaming = s->out >= 0 && j->streaming[s->out];
        char *result = s->out >= 0 ? j->out[s->out] + b->at * bytes : r->local[s->local];
        void *to = streaming ? r->streamed[s->out] : result;
        ((ht_elementwise_fn *)s->kernel)(in, to, b->n, s->params);
        results[i] = to;
        if (!streaming) continue;
        ht_prefetch_stream ahead[HT_PROGRAM_INPUTS];
        const int n_ahead = next_operands(j, bytes, b->at + 2 * b->n, ahead);
        ht_stream_store(result, to, (size_t)(b->n * bytes), ahead, n_ahead);
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
        if (j->streaming[k]) ht_stream_fence();
}

ht_status ht_elementwise_run_program(const ht_program_run *run, ht_error *err) {
    (void)err;
    elementwise_job j;
    init_job(&j, run->program, run->in, run->out);
    if (j.size)
        ht_pool_run(ht_device_pool(run->device), j.size, j.compute_bound ? HT_GRAIN_MATH : HT_GRAIN_CHEAP, run_range,
                    &j);
    return HT_OK;
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
    (void)ht_elementwise_run_program(
        &(ht_program_run){.program = &p, .in = call->in, .out = &call->out, .device = call->device}, NULL);
}

void ht_elementwise_run_rows(const ht_call *call, ht_op_id op, ht_elementwise_fn *fn, int64_t begin, int64_t end) {
    ht_program p;
    elementwise_job j;
    one_step(&p, call, op, fn);
    init_job(&j, &p, call->in, &call->out);
    const int64_t width = call->out.shape[0] > 0 ? j.size / call->out.shape[0] : 0;
    run_range(&j, begin * width, end * width, 0);
}
