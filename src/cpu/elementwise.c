/* Elementwise programs (elementwise.h): contiguous operands are used in place, others are gathered block by block; all steps
 * of a program run on one block before the next block, so that intermediate results stay in the L1 cache. */
#include "cpu/elementwise.h"

#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/streaming_store.h"
#include "cpu/strided_iterator.h"

#include <string.h>

/* A constant stride lets the compiler vectorise the loop. */
#define GATHER(type, name)                                                                                             \
    static void name(type *to, const type *from, int64_t stride, int64_t n) {                                          \
        if (stride == 2)                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];                                                       \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];                                                  \
    }
GATHER(uint8_t, gather1)
GATHER(uint16_t, gather2)
GATHER(uint32_t, gather4)
GATHER(uint64_t, gather8)

/* Fills `to` with n copies of one element. */
static void fill(char *to, const char *from, int64_t n, size_t bytes) {
    switch (bytes) {
    case 1: memset(to, *from, (size_t)n); break;
    case 2: gather2((uint16_t *)(void *)to, (const uint16_t *)(const void *)from, 0, n); break;
    case 4: gather4((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, 0, n); break;
    default: gather8((uint64_t *)(void *)to, (const uint64_t *)(const void *)from, 0, n);
    }
}

void ht_gather_elements(char *to, const char *from, int64_t stride, int64_t n, size_t bytes) {
    if (stride == 0) {
        fill(to, from, n, bytes);
        return;
    }
    if (stride == 1) {
        memcpy(to, from, (size_t)n * bytes);
        return;
    }
    switch (bytes) {
    case 1: gather1((uint8_t *)(void *)to, (const uint8_t *)(const void *)from, stride, n); break;
    case 2: gather2((uint16_t *)(void *)to, (const uint16_t *)(const void *)from, stride, n); break;
    case 4: gather4((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, stride, n); break;
    default: gather8((uint64_t *)(void *)to, (const uint64_t *)(const void *)from, stride, n);
    }
}

/* ---- preparation: block functions of the steps, and buffers of intermediate results ---- */

/* Last step that reads each step's result. */
static void find_last_uses(const ht_program *p, int8_t *last) {
    for (int i = 0; i < p->n_steps; i++) {
        last[i] = (int8_t)i;
        for (int k = 0; k < p->step[i].n_in; k++)
            if (p->step[i].in[k] < 0) last[-1 - p->step[i].in[k]] = (int8_t)i;
    }
}

bool ht_elementwise_prepare(ht_program *p, ht_find_elementwise_fn *find) {
    int8_t last[HT_PROGRAM_STEPS], owner[HT_PROGRAM_LOCALS];
    find_last_uses(p, last);
    for (int l = 0; l < HT_PROGRAM_LOCALS; l++) owner[l] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        ht_program_step *s = &p->step[i];
        s->kernel = (void (*)(void))find(s->op, s->from, s->to);
        s->local = -1;
        if (!s->kernel) return false;
        if (s->out >= 0) continue;
        /* A buffer is reused only after the step of its last read, since a result must not overwrite its own
         * operands. */
        for (int l = 0; l < HT_PROGRAM_LOCALS && s->local < 0; l++)
            if (owner[l] < 0 || last[owner[l]] < i) s->local = (int8_t)l;
        if (s->local < 0) return false;
        owner[s->local] = (int8_t)i;
    }
    return true;
}

/* ---- layout ---- */

typedef enum operand_access {
    OPERAND_SAME_LAYOUT, /* strides of the result */
    OPERAND_SCALAR,      /* one element, broadcast */
    OPERAND_STRIDED      /* any other strides */
} operand_access;

typedef struct elementwise_operand {
    const char *data;
    int64_t bytes; /* per element */
    operand_access access;
    int64_t stride[HT_MAX_DIMS]; /* OPERAND_STRIDED: in elements, over the merged axes */
} elementwise_operand;

typedef struct elementwise_job {
    const ht_program *p;
    int64_t size, block; /* elements of the result, and per block */
    int n_dims;          /* merged axes; 0 if no operand is strided */
    bool by_rows;        /* blocks end at the end of each row of the last merged axis */
    bool compute_bound;  /* computing an element takes longer than its memory traffic */
    int64_t shape[HT_MAX_DIMS];
    elementwise_operand in[HT_PROGRAM_INPUTS];
    char *out[HT_PROGRAM_OUTPUTS];
    bool streaming[HT_PROGRAM_OUTPUTS]; /* written by streaming stores (streaming_store.h) */
} elementwise_job;

/* Buffers of one thread: intermediate results, gathered operands, and blocks to be streamed. */
typedef struct elementwise_scratch {
    _Alignas(64) char local[HT_PROGRAM_LOCALS][HT_ELEMENTWISE_BLOCK_BYTES];
    _Alignas(64) char staged[HT_PROGRAM_INPUTS][HT_ELEMENTWISE_BLOCK_BYTES];
    _Alignas(64) char streamed[HT_PROGRAM_OUTPUTS][HT_ELEMENTWISE_BLOCK_BYTES];
} elementwise_scratch;

/* Block of result elements [at, at + n). */
typedef struct elementwise_block {
    int64_t at, n;
    int64_t index[HT_MAX_DIMS]; /* of element `at`, over the merged axes */
} elementwise_block;

/* Least row length for which blocks end at the ends of rows. */
enum { MIN_ROW_BLOCK = 192 };

static bool same_layout(const ht_view *v, const ht_view *out) {
    for (int d = 0; d < out->n_dims; d++)
        if (out->shape[d] != 1 && v->stride[d] != out->stride[d]) return false;
    return true;
}

static bool is_scalar(const ht_view *v, const ht_view *out) {
    for (int d = 0; d < out->n_dims; d++)
        if (out->shape[d] != 1 && v->stride[d] != 0) return false;
    return true;
}

static bool mergeable(const elementwise_job *j, int outer, int inner) {
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].access == OPERAND_STRIDED && j->in[k].stride[outer] != j->in[k].stride[inner] * j->shape[inner])
            return false;
    return true;
}

/* Merges adjacent axes that are contiguous in every strided operand. */
static void merge_axes(elementwise_job *j, const ht_view *in, const ht_view *out) {
    int d = 0;
    for (int axis = 0; axis < out->n_dims; axis++) {
        if (out->shape[axis] == 1) continue;
        j->shape[d] = out->shape[axis];
        for (int k = 0; k < j->p->n_in; k++) j->in[k].stride[d] = in[k].stride[axis];
        if (d > 0 && mergeable(j, d - 1, d)) {
            j->shape[d - 1] *= j->shape[d];
            for (int k = 0; k < j->p->n_in; k++) j->in[k].stride[d - 1] = j->in[k].stride[d];
        } else
            d++;
    }
    j->n_dims = d;
}

/* Classifies every operand and merges axes for the strided ones. */
static void layout_operands(elementwise_job *j, const ht_view *in, const ht_view *out) {
    bool any_strided = false;
    for (int k = 0; k < j->p->n_in; k++) {
        elementwise_operand *s = &j->in[k];
        s->data = in[k].data;
        s->bytes = (int64_t)ht_dtype_bytes(in[k].dtype);
        s->access = same_layout(&in[k], out) ? OPERAND_SAME_LAYOUT
                    : is_scalar(&in[k], out) ? OPERAND_SCALAR
                                             : OPERAND_STRIDED;
        any_strided |= s->access == OPERAND_STRIDED;
    }
    j->n_dims = 0;
    j->by_rows = false;
    if (!any_strided) return;
    merge_axes(j, in, out);
    j->by_rows = j->shape[j->n_dims - 1] >= MIN_ROW_BLOCK;
}

/* ---- blocks ---- */

static int64_t offset_of(const elementwise_job *j, const elementwise_operand *s, const int64_t *index) {
    int64_t offset = 0;
    for (int d = 0; d < j->n_dims; d++) offset += index[d] * s->stride[d];
    return offset;
}

/* Gathers n elements from index `from` on, across row ends. */
static void gather_rows(const elementwise_job *j, const elementwise_operand *s, const int64_t *from, char *to,
                        int64_t n) {
    int64_t index[HT_MAX_DIMS], offset = offset_of(j, s, from);
    const int last = j->n_dims - 1;
    memcpy(index, from, (size_t)j->n_dims * sizeof *index);
    while (n > 0) {
        const int64_t run = ht_min_i64(n, j->shape[last] - index[last]);
        ht_gather_elements(to, s->data + offset * s->bytes, s->stride[last], run, (size_t)s->bytes);
        to += run * s->bytes;
        n -= run;
        offset -= index[last] * s->stride[last];
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            offset += s->stride[d];
            if (++index[d] < j->shape[d]) break;
            offset -= index[d] * s->stride[d];
            index[d] = 0;
        }
    }
}

/* Sets b->index from b->at. */
static void find_index(const elementwise_job *j, elementwise_block *b) {
    int64_t at = b->at;
    for (int d = j->n_dims - 1; d >= 0; d--) {
        b->index[d] = at % j->shape[d];
        at /= j->shape[d];
    }
}

/* Block of input k: in place if contiguous, else gathered into `r`. */
static const void *operand_block(const elementwise_job *j, int k, const elementwise_block *b, elementwise_scratch *r) {
    const elementwise_operand *s = &j->in[k];
    const int last = j->n_dims - 1;
    if (s->access == OPERAND_SAME_LAYOUT) return s->data + b->at * s->bytes;
    if (s->access == OPERAND_SCALAR) return r->staged[k];
    const bool in_row = b->index[last] + b->n <= j->shape[last];
    if (in_row && s->stride[last] == 1) return s->data + offset_of(j, s, b->index) * s->bytes;
    gather_rows(j, s, b->index, r->staged[k], b->n);
    return r->staged[k];
}

/* Fills the staged block of every scalar operand with n copies, n <= j->block. */
static void fill_scalars(const elementwise_job *j, int64_t n, elementwise_scratch *r) {
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].access == OPERAND_SCALAR) fill(r->staged[k], j->in[k].data, n, (size_t)j->in[k].bytes);
}

/* ---- execution ---- */

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
    layout_operands(j, in, out);
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
    for (int k = 0; k < p->n_in; k++) input[k] = operand_block(j, k, b, r);
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
    fill_scalars(j, ht_min_i64(j->block, end - begin), &r);
    for (b.at = begin; b.at < end; b.at += b.n) {
        b.n = ht_min_i64(j->block, end - b.at);
        find_index(j, &b);
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
