/* Executors: the arena of a plan, and the loop that runs it. Views and addresses are resolved for a pair of row counts
 * (rows, output rows) and kept; decoding repeats one pair and only iterates over the stages. */
#include "array/highest_logits.h"
#include "array/op.h"
#include "array/plan_internal.h"
#include "base/checked.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct ht_exec {
    const ht_plan *plan;
    int32_t max_rows, max_out;
    int32_t n_tok, n_out; /* row counts of the resolved views and calls; -1: not resolved */
    size_t *slot_offset;
    unsigned char *arena;
    size_t arena_bytes;
    void *scratch;
    size_t scratch_bytes;
    ht_view *view;         /* [n_operands] */
    ht_call *call;         /* [n_instructions] */
    ht_fused_stage *fused; /* [n_stages] */
    void *layouts;         /* memory of all fused[i].layout */
    size_t layouts_bytes;
    bool *skip;          /* [n_instructions], true: no rows for these row counts */
    int32_t *from_batch; /* operands that are batch values */
    int32_t n_from_batch;
    /* The fields up to `highest` serve devices with separate memory. The batch is the fields of a step's
     * rows, concatenated: on the device, and its staging copy on the host. */
    int32_t *batch, *host_batch;
    float *read_output; /* host memory for the output of a step without an output buffer */
    size_t read_bytes;
    ht_highest_logits highest; /* of the output */
    float *output;             /* default address of the output, in the arena */
    float *second;             /* address of the second result, in the arena; NULL: none */
    float *read_second;        /* host copy of the second result, on a device with separate memory */
    size_t read_second_bytes;
    bool output_is_read; /* an instruction also reads the output */
    int32_t output_stage;
};

enum { ARENA_ALIGN = 64 };

static int64_t resolve(ht_linear_form f, int64_t n_tok, int64_t n_out) { return ht_symbol_resolve(f, n_tok, n_out); }

/* Assigns every slot the lowest offset that is free while the slot is alive. */
static ht_status place_slots(const ht_plan *p, int32_t max_rows, int32_t max_out, size_t *offset, size_t *total) {
    int32_t *alive = malloc((size_t)(p->n_slots + 1) * sizeof *alive); /* in address order */
    size_t *bytes = malloc((size_t)(p->n_slots + 1) * sizeof *bytes);
    int32_t n_alive = 0;
    *total = 0;
    for (int32_t s = 0; alive && bytes && s < p->n_slots; s++) {
        const ht_plan_slot *slot = &p->slot[s];
        size_t need;
        if (!ht_align_size((size_t)resolve(slot->bytes, max_rows, max_out), ARENA_ALIGN, &need)) need = SIZE_MAX / 4;
        bytes[s] = need;
        int32_t kept = 0;
        for (int32_t i = 0; i < n_alive; i++)
            if (p->slot[alive[i]].last >= slot->first) alive[kept++] = alive[i];
        n_alive = kept;
        size_t at = 0;
        int32_t where = 0;
        for (; where < n_alive; where++) {
            if (offset[alive[where]] >= at + need) break;
            at = ht_max_size(at, offset[alive[where]] + bytes[alive[where]]);
        }
        memmove(alive + where + 1, alive + where, (size_t)(n_alive - where) * sizeof *alive);
        alive[where] = s;
        n_alive++;
        offset[s] = at;
        *total = ht_max_size(*total, at + need);
    }
    bool ok = alive && bytes;
    free(alive);
    free(bytes);
    return ok ? HT_OK : HT_ERR_MEMORY;
}

/* ---- resolution for a pair of row counts ---- */

static ht_view resolve_view(const ht_exec *e, const ht_operand *o, int64_t n_tok, int64_t n_out) {
    ht_view v = {.dtype = o->dtype, .n_dims = o->n_dims};
    for (int i = 0; i < o->n_dims; i++) {
        v.shape[i] = resolve(o->shape[i], n_tok, n_out);
        v.stride[i] = resolve(o->stride[i], n_tok, n_out);
    }
    int64_t offset = resolve(o->offset, n_tok, n_out) * (int64_t)ht_dtype_bytes(o->dtype);
    if (o->source == HT_FROM_CONSTANT) v.data = (void *)(uintptr_t)o->constant;
    if (o->source == HT_FROM_VALUE && e->plan->instruction[o->index].slot >= 0 && e->arena)
        v.data = e->arena + e->slot_offset[e->plan->instruction[o->index].slot] + offset;
    return v;
}

static ht_status grow_scratch(ht_exec *e, size_t bytes, ht_error *err) {
    ht_memory *memory = e->plan->device->memory;
    ht_memory_free(memory, e->scratch, e->scratch_bytes);
    e->scratch = NULL;
    e->scratch_bytes = 0;
    ht_status st = ht_memory_alloc(memory, bytes, "kernel scratch", &e->scratch, err);
    if (st == HT_OK) e->scratch_bytes = bytes;
    return st;
}

static bool is_fused(const ht_stage *s) { return s->n_rowwise + s->n_products > 1; }

/* Index in the stage of the call that makes a local input; -1: not local. */
static int8_t local_maker(const ht_plan *p, const ht_stage *s, const ht_operand *o) {
    if (o->source != HT_FROM_VALUE || p->instruction[o->index].slot >= 0) return -1;
    return (int8_t)(o->index - s->first);
}

static void make_fused_stages(ht_exec *e) {
    const ht_plan *p = e->plan;
    for (int32_t i = 0; i < p->n_stages; i++) {
        const ht_stage *s = &p->stage[i];
        ht_fused_stage *stage = &e->fused[i];
        *stage = (ht_fused_stage){.n_rowwise = s->n_rowwise, .n_products = s->n_products, .call = e->call + s->first};
        for (int j = 0; j < s->n_rowwise; j++) {
            const ht_instruction *ins = &p->instruction[s->first + j];
            stage->op[j] = ins->op;
            stage->is_local[j] = ins->slot < 0;
            for (int k = 0; k < ins->n_in; k++)
                stage->local_in[j][k] = local_maker(p, s, &p->operand[ins->first_in + k]);
        }
    }
}

static size_t layout_bytes(const ht_exec *e, int32_t stage) {
    const ht_device *d = e->plan->device;
    if (!is_fused(&e->plan->stage[stage])) return 0;
    return (d->stages->bytes(d, &e->fused[stage]) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

static ht_status make_layouts(ht_exec *e, ht_error *err) {
    for (int32_t i = 0; i < e->plan->n_stages; i++) e->layouts_bytes += layout_bytes(e, i);
    ht_status st =
        ht_memory_alloc(ht_memory_of_host(), e->layouts_bytes, "the fused stages of a plan", &e->layouts, err);
    char *at = e->layouts;
    for (int32_t i = 0; st == HT_OK && i < e->plan->n_stages; i++) {
        e->fused[i].layout = at;
        at += layout_bytes(e, i);
    }
    return st;
}

/* Lays out all fused stages and returns the scratch bytes that they need. */
static size_t layout_stages(ht_exec *e) {
    const ht_plan *p = e->plan;
    size_t scratch = 0;
    for (int32_t i = 0; i < p->n_stages; i++)
        if (is_fused(&p->stage[i]) && !e->skip[p->stage[i].first])
            scratch = ht_max_size(scratch, p->device->stages->layout(&e->fused[i]));
    return scratch;
}

/* Resolves all views and calls; returns the scratch bytes that they need. */
static size_t resolve_calls(ht_exec *e, int32_t n_tok, int32_t n_out) {
    const ht_plan *p = e->plan;
    size_t scratch = 0;
    for (int32_t i = 0; i < p->n_operands; i++) e->view[i] = resolve_view(e, &p->operand[i], n_tok, n_out);
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const ht_instruction *ins = &p->instruction[i];
        const ht_kernel *kernel = &p->device->kernels[ins->op];
        ht_call *c = &e->call[i];
        *c = (ht_call){.params = ins->params, .n_in = ins->n_in, .in = e->view + ins->first_in, .device = p->device};
        c->out = resolve_view(e, &ins->out, n_tok, n_out);
        c->scratch = e->scratch;
        e->skip[i] = !ins->effect && resolve(ins->elements, n_tok, n_out) == 0;
        if (kernel->scratch && !e->skip[i]) scratch = ht_max_size(scratch, kernel->scratch(c));
    }
    return ht_max_size(scratch, layout_stages(e));
}

static ht_status resolve_for(ht_exec *e, int32_t n_tok, int32_t n_out, ht_error *err) {
    const ht_plan *p = e->plan;
    if (e->n_tok == n_tok && e->n_out == n_out) return HT_OK;
    e->n_tok = e->n_out = -1;
    const size_t scratch = resolve_calls(e, n_tok, n_out);
    if (scratch > e->scratch_bytes) {
        ht_status st = grow_scratch(e, scratch, err);
        if (st) return st;
        for (int32_t i = 0; i < p->n_instructions; i++) e->call[i].scratch = e->scratch;
        layout_stages(e);
    }
    e->output = resolve_view(e, &p->output, n_tok, n_out).data;
    if (p->second.source == HT_FROM_VALUE) e->second = resolve_view(e, &p->second, n_tok, n_out).data;
    e->n_tok = n_tok;
    e->n_out = n_out;
    return HT_OK;
}

enum { BATCH_FIELDS = HT_BATCH_TYPE };

static size_t batch_bytes(const ht_exec *e) { return BATCH_FIELDS * (size_t)e->max_rows * sizeof *e->batch; }

/* Columns of the output, whose leading axis is its rows. */
static int64_t output_columns(const ht_plan *p) {
    const ht_operand *out = &p->instruction[p->output.index].out;
    int64_t n = 1;
    for (int i = 1; i < out->n_dims; i++) n *= resolve(out->shape[i], 1, 1);
    return n;
}

/* Allocates the transfer buffers of a device whose memory the host cannot read. */
static ht_status make_room_beside(ht_exec *e, ht_error *err) {
    const ht_plan *p = e->plan;
    void *batch, *output;
    ht_status st = ht_memory_alloc(p->device->memory, batch_bytes(e), "the rows of a step", &batch, err);
    if (st) return st;
    e->batch = batch;
    e->host_batch = malloc(batch_bytes(e));
    if (!e->host_batch) return ht_fail_memory(err, batch_bytes(e), "the rows of a step");
    e->read_bytes = (size_t)resolve(p->instruction[p->output.index].elements, e->max_rows, e->max_out) * sizeof(float);
    st = ht_memory_host_alloc(p->device->memory, e->read_bytes, "the output of a step", &output, err);
    if (st == HT_OK) e->read_output = output;
    if (st == HT_OK) st = ht_highest_logits_new(p->device, e->max_out, output_columns(p), &e->highest, err);
    if (st || p->second.source != HT_FROM_VALUE) return st;
    void *second;
    e->read_second_bytes =
        (size_t)resolve(p->instruction[p->second.index].elements, e->max_rows, e->max_out) * sizeof(float);
    st = ht_memory_host_alloc(p->device->memory, e->read_second_bytes, "the output of a step", &second, err);
    if (st == HT_OK) e->read_second = second;
    return st;
}

/* An executor without memory on its device; *arena_bytes is the size of its arena. */
static ht_status make_tables(const ht_plan *p, int32_t max_rows, int32_t max_out, ht_exec **out, size_t *arena_bytes,
                             ht_error *err) {
    ht_exec *e = *out = calloc(1, sizeof *e);
    if (!e) return ht_fail_memory(err, sizeof *e, "an executor");
    e->plan = p;
    e->max_rows = max_rows;
    e->max_out = max_out;
    e->n_tok = e->n_out = -1;
    size_t n_ins = (size_t)p->n_instructions + 1, n_operands = (size_t)p->n_operands + 1;
    e->slot_offset = calloc((size_t)p->n_slots + 1, sizeof *e->slot_offset);
    e->view = calloc(n_operands, sizeof *e->view);
    e->call = calloc(n_ins, sizeof *e->call);
    e->fused = calloc((size_t)p->n_stages + 1, sizeof *e->fused);
    e->skip = calloc(n_ins, sizeof *e->skip);
    e->from_batch = calloc(n_operands, sizeof *e->from_batch);
    if (!e->slot_offset || !e->view || !e->call || !e->fused || !e->skip || !e->from_batch ||
        place_slots(p, max_rows, max_out, e->slot_offset, arena_bytes))
        return ht_fail_memory(err, n_ins * sizeof *e->call, "an executor");
    make_fused_stages(e);
    return make_layouts(e, err);
}

ht_status ht_exec_new(const ht_plan *p, int32_t max_rows, int32_t max_out, ht_exec **out, ht_error *err) {
    *out = NULL;
    if (max_rows < 1 || max_out < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "an executor of %d rows and %d outputs was asked for", (int)max_rows,
                       (int)max_out);
    ht_exec *e;
    void *arena = NULL;
    size_t total = 0;
    ht_status st = make_tables(p, max_rows, max_out, &e, &total, err);
    for (int32_t i = 0; st == HT_OK && i < p->n_operands; i++)
        if (p->operand[i].source == HT_FROM_BATCH) e->from_batch[e->n_from_batch++] = i;
    for (int32_t i = 0; st == HT_OK && i < p->n_operands; i++)
        if (p->operand[i].source == HT_FROM_VALUE && p->operand[i].index == p->output.index) e->output_is_read = true;
    while (st == HT_OK && e->output_stage + 1 < p->n_stages && p->stage[e->output_stage + 1].first <= p->output.index)
        e->output_stage++;
    if (st == HT_OK) st = ht_memory_alloc(p->device->memory, total, "an executor's arena", &arena, err);
    if (st == HT_OK) {
        e->arena = arena;
        e->arena_bytes = total;
        /* Scratch is sized for the largest step and for a single row, whichever needs more, so that no step allocates. */
        st = resolve_for(e, max_rows, max_out, err);
    }
    if (st == HT_OK) st = resolve_for(e, 1, max_out < 1 ? max_out : 1, err);
    if (st == HT_OK && !ht_memory_is_host(p->device->memory)) st = make_room_beside(e, err);
    if (st) {
        ht_exec_free(e);
        return st;
    }
    *out = e;
    return HT_OK;
}

size_t ht_exec_bytes(const ht_plan *p, int32_t max_rows, int32_t max_out) {
    ht_exec *e;
    size_t total = 0;
    if (make_tables(p, max_rows, max_out, &e, &total, NULL))
        total = 0;
    else {
        const size_t largest = resolve_calls(e, max_rows, max_out),
                     single = resolve_calls(e, 1, max_out < 1 ? max_out : 1);
        total = ht_memory_rounded(total) + ht_memory_rounded(ht_max_size(largest, single));
        total += ht_memory_rounded(ht_memory_is_host(p->device->memory) ? e->layouts_bytes : batch_bytes(e));
    }
    ht_exec_free(e);
    return total;
}

void ht_exec_free(ht_exec *e) {
    if (!e) return;
    ht_memory *memory = e->plan->device->memory;
    ht_memory_free(memory, e->scratch, e->scratch_bytes);
    ht_memory_free(memory, e->arena, e->arena_bytes);
    ht_memory_free(memory, e->batch, batch_bytes(e));
    ht_memory_free(ht_memory_of_host(), e->layouts, e->layouts_bytes);
    ht_memory_host_free(memory, e->read_output, e->read_bytes);
    ht_highest_logits_free(&e->highest);
    ht_memory_host_free(memory, e->read_second, e->read_second_bytes);
    free(e->host_batch);
    free(e->slot_offset);
    free(e->view);
    free(e->call);
    free(e->fused);
    free(e->skip);
    free(e->from_batch);
    free(e);
}

/* ---- running ---- */

static ht_status bind_batch(ht_exec *e, const ht_batch *b, ht_error *err) {
    const int32_t *const field[BATCH_FIELDS] = {b->id, b->pos, b->out_row, b->first, b->last, b->type};
    int32_t at[BATCH_FIELDS + 1] = {0}; /* of each in the staging copy */
    for (int32_t f = 0; f < BATCH_FIELDS; f++)
        at[f + 1] = at[f] + (!field[f] ? 0 : f == HT_BATCH_OUT_ROW - HT_BATCH_ID ? b->n_out : b->n_tok);
    for (int32_t i = 0; i < e->n_from_batch; i++) {
        const ht_operand *o = &e->plan->operand[e->from_batch[i]];
        const int32_t f = o->index - HT_BATCH_ID, *values = e->batch ? e->batch + at[f] : field[f];
        int64_t offset = resolve(o->offset, e->n_tok, e->n_out);
        e->view[e->from_batch[i]].data = (void *)(uintptr_t)(values + offset);
    }
    if (!e->batch) return HT_OK;
    for (int32_t f = 0; f < BATCH_FIELDS; f++)
        if (at[f + 1] > at[f]) memcpy(e->host_batch + at[f], field[f], (size_t)(at[f + 1] - at[f]) * sizeof *e->batch);
    return ht_memory_write(e->plan->device->memory, e->batch, e->host_batch,
                           (size_t)at[BATCH_FIELDS] * sizeof *e->batch, err);
}

/* Sets the address of the output and top_k; a fused stage with the output has to be laid out again. */
static void place_output(ht_exec *e, float *to, int32_t top_k) {
    const ht_stage *s = &e->plan->stage[e->output_stage];
    ht_call *call = &e->call[e->plan->output.index];
    if (e->plan->top_product < 0) top_k = 0;
    if (call->out.data == to && call->top_k == top_k) return;
    call->out.data = to;
    call->top_k = top_k;
    if (is_fused(s) && !e->skip[s->first]) e->plan->device->stages->layout(&e->fused[e->output_stage]);
}

/* Submits all stages. The step of another model may run between two of them: executors share no memory. */
static ht_status run_stages(ht_exec *e, const ht_step *step, ht_error *err) {
    const ht_plan *p = e->plan;
    ht_device *d = p->device;
    ht_status st = HT_OK;
    for (int32_t s = 0; s < p->n_stages && st == HT_OK; s++) {
        int32_t i = p->stage[s].first;
        if (e->skip[i]) continue; /* all calls of a fused stage have the same rows */
        if (s && d->yield) d->yield(d);
        if (is_fused(&p->stage[s])) {
            st = p->device->stages->run(&e->fused[s], err);
            continue;
        }
        e->call[i].step = step;
        st = p->device->kernels[p->instruction[i].op].run(&e->call[i], err);
    }
    return st;
}

static size_t result_bytes(const ht_exec *e, const ht_operand *result) {
    return (size_t)ht_view_size(&e->call[result->index].out) * sizeof(float);
}

static bool finds_highest(const ht_exec *e, const ht_step *step) {
    return !step->output && ht_highest_logits_can(&e->highest, step->batch->n_out, step->top_k);
}

/* Copies results from a device with separate memory. They are valid on the host after ht_device_wait. */
static ht_status fetch_results(ht_exec *e, const ht_step *step, ht_error *err) {
    const ht_plan *p = e->plan;
    ht_status st = HT_OK;
    if (finds_highest(e, step))
        st = ht_highest_logits_submit(&e->highest, e->output, step->batch->n_out, step->top_k, err);
    else if (!step->output)
        st = ht_memory_fetch(p->device->memory, e->read_output, e->output, result_bytes(e, &p->output), err);
    if (st == HT_OK && e->read_second)
        st = ht_memory_fetch(p->device->memory, e->read_second, e->second, result_bytes(e, &p->second), err);
    return st;
}

/* Copies the batch to the device, runs all stages and copies the results back. */
static ht_status run_on_device(ht_exec *e, const ht_step *step, ht_error *err) {
    ht_device *d = e->plan->device;
    ht_error late = {0};
    ht_mark failed;
    const unsigned state = d->begin(d);
    ht_status st = bind_batch(e, step->batch, err);
    if (st == HT_OK) st = run_stages(e, step, err);
    if (st == HT_OK && e->batch) st = fetch_results(e, step, err);
    const ht_status found = ht_device_wait(d, &failed, &late);
    if (found && err) *err = late; /* it came first, whatever else there was */
    d->end(d, state);
    return found ? found : st;
}

ht_status ht_exec_run(ht_exec *e, const ht_step *step, const float **output, ht_error *err) {
    const ht_plan *p = e->plan;
    const ht_batch *b = step->batch;
    *output = NULL;
    if (b->n_tok < 1 || b->n_tok > e->max_rows || b->n_out < 0 || b->n_out > e->max_out)
        return ht_fail(err, HT_ERR_LIMIT, "a step of %d rows with %d outputs, the executor holds %d and %d",
                       (int)b->n_tok, (int)b->n_out, (int)e->max_rows, (int)e->max_out);
    ht_status st = resolve_for(e, b->n_tok, b->n_out, err);
    if (st) return st;
    const bool is_host = ht_memory_is_host(p->device->memory);
    float *to = step->output && is_host && !e->output_is_read ? step->output : e->output;
    place_output(e, to, step->top_k);
    st = run_on_device(e, step, err);
    if (st) return st;
    float *wanted = step->output ? step->output : is_host ? to : e->read_output;
    e->highest.found = (ht_logits_rows){0};
    if (finds_highest(e, step)) {
        ht_highest_logits_take(&e->highest, b->n_out, step->top_k);
        if (e->highest.found.x) return HT_OK;
    }
    if (wanted != to && (step->output || finds_highest(e, step)))
        st = ht_memory_read(p->device->memory, wanted, to, result_bytes(e, &p->output), err);
    if (st == HT_OK) *output = wanted;
    return st;
}

const ht_logits_rows *ht_exec_highest(const ht_exec *e) { return e->highest.found.x ? &e->highest.found : NULL; }

const float *ht_exec_second(const ht_exec *e) { return e->read_second ? e->read_second : e->second; }
