/* Plan tracing: runs a forward function on symbolic row counts and flattens its graph into a list of kernel calls. */
#include "array/plan.h"

#include "array/op.h"
#include "array/plan_internal.h"
#include "array/topological_order.h"
#include "base/error.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

static ht_status bad_count(const ht_array *a, ht_error *err) {
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "%s: a traced function may only multiply row counts; this result adds to them or mixes them",
                   ht_op_name(a->op));
}

static ht_status operand_of(const ht_array *a, ht_operand *o, ht_error *err) {
    *o = (ht_operand){.source = HT_FROM_NOTHING, .n_dims = -1};
    if (a == HT_NONE) return HT_OK;
    const ht_array *storage = a->base ? a->base : a;
    o->dtype = a->dtype;
    o->n_dims = a->n_dims;
    bool ok = ht_symbol_decode(a->offset, &o->offset);
    for (int i = 0; i < a->n_dims; i++)
        ok = ok && ht_symbol_decode(a->shape[i], &o->shape[i]) && ht_symbol_decode(a->stride[i], &o->stride[i]);
    if (!ok) return bad_count(a, err);
    if (storage->batch_field != HT_BATCH_NONE) {
        o->source = HT_FROM_BATCH;
        o->index = (int32_t)storage->batch_field;
    } else if (storage->op == HT_OP_LEAF || storage->buffer) {
        o->source = HT_FROM_CONSTANT;
        o->constant = (const char *)storage->buffer->data + a->offset * (int64_t)ht_dtype_bytes(a->dtype);
    } else {
        o->source = HT_FROM_VALUE;
        o->index = storage->slot;
    }
    return HT_OK;
}

/* ---- construction ---- */

static void add_constant(ht_plan *p, ht_array *a) { p->constants[p->n_constants++] = ht_array_retain(ht_storage(a)); }

static ht_status add_instruction(ht_plan *p, ht_array *a, ht_error *err) {
    ht_instruction *ins = &p->instruction[p->n_instructions];
    const ht_op_info *info = ht_op_info_of(a->op);
    if (!p->device->kernels[a->op].run)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: not supported on %s", ht_op_name(a->op), p->device->name);
    *ins = (ht_instruction){.op = a->op, .effect = info->effect, .n_in = a->n_in, .first_in = p->n_operands};
    memcpy(ins->params, a->params, sizeof ins->params);
    for (int i = 0; i < a->n_in; i++) {
        ht_operand *o = &p->operand[p->n_operands++];
        ht_status st = operand_of(a->in[i], o, err);
        if (st) return st;
        if (o->source == HT_FROM_CONSTANT) add_constant(p, a->in[i]);
    }
    a->slot = p->n_instructions++;
    ht_status st = operand_of(a, &ins->out, err);
    if (st) return st;
    if (!ht_symbol_decode(ht_array_size(a), &ins->elements)) return bad_count(a, err);
    return HT_OK;
}

static ht_linear_form times(ht_linear_form f, int64_t k) {
    return (ht_linear_form){f.constant * k, f.rows * k, f.out * k};
}

/* last[i]: the last instruction that reads the output of instruction i; n_instructions for the outputs of the plan. */
static void find_last_reads(const ht_plan *p, int32_t *last) {
    for (int32_t i = 0; i < p->n_instructions; i++) last[i] = i;
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int j = 0; j < p->instruction[i].n_in; j++) {
            const ht_operand *o = &p->operand[p->instruction[i].first_in + j];
            if (o->source == HT_FROM_VALUE) last[o->index] = i;
        }
    if (p->output.source == HT_FROM_VALUE) last[p->output.index] = p->n_instructions;
    if (p->second.source == HT_FROM_VALUE) last[p->second.index] = p->n_instructions;
}

/* Buffer donation: the instruction whose output, an input of i, an in-place operation may overwrite. The input is read
 * as a whole, has the output's size and dtype, and is read for the last time here and only once. -1: none. */
static int32_t donor_of(const ht_plan *p, int32_t i, const int32_t *last) {
    const ht_instruction *ins = &p->instruction[i];
    const ht_op_info *info = ht_op_info_of(ins->op);
    int32_t candidates = info->in_place ? ins->n_in : info->updates ? 1 : 0;
    for (int j = 0; j < candidates; j++) {
        const ht_operand *o = &p->operand[ins->first_in + j];
        if (o->source != HT_FROM_VALUE || last[o->index] != i || o->dtype != ins->out.dtype) continue;
        const ht_instruction *maker = &p->instruction[o->index];
        if (maker->slot < 0) continue;
        bool whole = ht_same_form(maker->elements, ins->elements) && o->n_dims == ins->out.n_dims;
        for (int d = 0; whole && d < o->n_dims; d++) whole = ht_same_form(o->stride[d], ins->out.stride[d]);
        for (int other = 0; whole && other < ins->n_in; other++) {
            const ht_operand *q = &p->operand[ins->first_in + other];
            whole = other == j || q->source != HT_FROM_VALUE || q->index != o->index;
        }
        if (whole) return o->index;
    }
    return -1;
}

/* True when the output of instruction i, read last by instruction `last`, needs no memory in the arena: only its stage
 * reads it, and the products of the stage read it row by row. */
static bool is_local(const ht_plan *p, int32_t i, const ht_stage *s, int32_t last) {
    int32_t first_product = s->first + s->n_rowwise, end = first_product + s->n_products;
    if (i >= first_product || last >= end) return false;
    for (int32_t j = first_product; j <= last; j++)
        if (!p->device->stages->takes_rows(((const ht_linear_params *)(const void *)p->instruction[j].params)->matrix))
            return false;
    return true;
}

/* Assigns arena slots. A stage interleaves the rows of its instructions, so its slots are alive throughout the stage. */
static ht_status assign_slots(ht_plan *p, ht_error *err) {
    int32_t n = p->n_instructions;
    int32_t *last = malloc((size_t)(n + 1) * sizeof *last), *stage_of = malloc((size_t)(n + 1) * sizeof *stage_of);
    if (!last || !stage_of) {
        free(last);
        free(stage_of);
        return ht_fail_memory(err, 2 * (size_t)n * sizeof *last, "a plan");
    }
    find_last_reads(p, last);
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int j = 0; j < ht_stage_length(&p->stage[s]); j++) stage_of[p->stage[s].first + j] = s;
    stage_of[n] = p->n_stages;
    for (int32_t i = 0; i < n; i++) {
        ht_instruction *ins = &p->instruction[i];
        ins->slot = -1;
        if (is_local(p, i, &p->stage[stage_of[i]], last[i])) continue;
        int32_t donor = donor_of(p, i, last);
        if (donor >= 0) {
            ins->slot = p->instruction[donor].slot;
            p->slot[ins->slot].last = stage_of[last[i]];
            continue;
        }
        ins->slot = p->n_slots++;
        p->slot[ins->slot] = (ht_plan_slot){times(ins->elements, (int64_t)ht_dtype_bytes(ins->out.dtype)), stage_of[i],
                                            stage_of[last[i]]};
    }
    free(last);
    free(stage_of);
    return HT_OK;
}

static bool same_place(const ht_operand *a, const ht_operand *b) {
    bool same = a->n_dims == b->n_dims && ht_same_form(a->offset, b->offset);
    for (int d = 0; same && d < a->n_dims; d++) same = ht_same_form(a->shape[d], b->shape[d]);
    return same;
}

static int32_t find_top_product(const ht_plan *p) {
    int32_t made = p->output.index;
    const ht_instruction *ins = &p->instruction[made];
    if (ins->op != HT_OP_LINEAR || !same_place(&ins->out, &p->output)) return -1;
    for (int32_t i = 0; i < p->n_operands; i++)
        if (p->operand[i].source == HT_FROM_VALUE && p->operand[i].index == made) return -1;
    return made;
}

static ht_status set_output(ht_operand *o, const ht_array *a, ht_error *err) {
    ht_status st = operand_of(a, o, err);
    if (st) return st;
    if (o->source != HT_FROM_VALUE || a->dtype != HT_F32 || a->n_dims < 1 || !ht_array_is_contiguous(a) ||
        a->offset != 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "a traced function must return a computed, contiguous f32 array");
    return HT_OK;
}

/* `second` may be NULL. */
static ht_status build(ht_plan *p, const ht_worklist *w, const ht_array *output, const ht_array *second,
                       ht_error *err) {
    size_t n_nodes = 0, n_inputs = 0;
    for (size_t i = 0; i < w->n; i++) {
        n_nodes++;
        n_inputs += (size_t)w->order[i]->n_in;
    }
    p->instruction = calloc(n_nodes + 1, sizeof *p->instruction);
    p->operand = calloc(n_inputs + 1, sizeof *p->operand);
    p->slot = calloc(n_nodes + 1, sizeof *p->slot);
    p->stage = calloc(n_nodes + 1, sizeof *p->stage);
    p->constants = calloc(n_inputs + 1, sizeof *p->constants);
    if (!p->instruction || !p->operand || !p->slot || !p->stage || !p->constants)
        return ht_fail_memory(err, n_nodes * sizeof *p->instruction, "a plan");
    for (size_t i = 0; i < w->n; i++) {
        ht_array *a = w->order[i];
        if (a->base || a->op == HT_OP_LEAF) continue;
        ht_status st = add_instruction(p, a, err);
        if (st) return st;
    }
    ht_status st = set_output(&p->output, output, err);
    if (!st && second) st = set_output(&p->second, second, err);
    if (!st) st = ht_plan_fuse(p, err);
    if (st) return st;
    p->top_product = find_top_product(p);
    return assign_slots(p, err);
}

/* The nodes of `second` in order, then the others of `output`. */
static ht_status order_two(ht_worklist *w, ht_array *output, ht_array *second, ht_error *err) {
    uint64_t visit;
    ht_worklist rest = {0};
    ht_status st = ht_topological_order(w, &second, 1, &visit, err);
    if (!st) st = ht_topological_order(&rest, &output, 1, &visit, err);
    for (size_t i = 0; i < rest.n; i++) rest.order[i]->slot = 0;
    for (size_t i = 0; i < w->n; i++) w->order[i]->slot = 1;
    for (size_t i = 0; !st && i < rest.n; i++)
        if (rest.order[i]->slot == 0 && !ht_list_push(&w->order, &w->n, &w->capacity, rest.order[i]))
            st = ht_fail_memory(err, (w->n + rest.n) * sizeof(void *), "the order of a graph");
    ht_worklist_free(&rest);
    return st;
}

ht_status ht_plan_trace(ht_device *device, ht_plan_fn *fn, void *user, ht_array *const *more, ht_plan **out,
                        ht_error *err) {
    *out = NULL;
    ht_plan *p = calloc(1, sizeof *p);
    if (!p) return ht_fail_memory(err, sizeof *p, "a plan");
    p->device = ht_device_retain(device);
    ht_stream *stream;
    ht_status st = ht_stream_new(device, &stream, err);
    ht_scope *s = st ? NULL : ht_scope_new_tracing(stream);
    if (st == HT_OK && !s) st = ht_fail_memory(err, 1, "a trace");
    if (st == HT_OK) {
        ht_array *output = fn(s, user), *second = more ? *more : NULL;
        const ht_error *failure = ht_scope_error(s);
        ht_worklist w = {0};
        uint64_t visit;
        if (!output || failure) {
            if (failure && err) *err = *failure;
            st = failure ? failure->status : ht_fail(err, HT_ERR_ARGUMENT, "the traced function returned no array");
        } else
            st = second ? order_two(&w, output, second, err) : ht_topological_order(&w, &output, 1, &visit, err);
        if (st == HT_OK) st = build(p, &w, output, second, err);
        ht_worklist_free(&w);
    }
    ht_scope_free(s);
    ht_stream_free(stream);
    if (st) {
        ht_plan_free(p);
        return st;
    }
    *out = p;
    return HT_OK;
}

void ht_plan_free(ht_plan *p) {
    if (!p) return;
    for (int32_t i = 0; i < p->n_constants; i++) ht_array_free(p->constants[i]);
    free(p->instruction);
    free(p->operand);
    free(p->slot);
    free(p->stage);
    free(p->constants);
    ht_device_free(p->device);
    free(p);
}
