/* Plan fusion: groups instructions into fused stages (device/kernel.h). Examples: residual sum, norm and the
 * projections that read it; activation, elementwise product and down projection. Rows stay in the cache between
 * kernels, activations are quantised once, and threads synchronise twice per stage instead of once per instruction.
 * Results are bit-identical to unfused kernels. */
#include "array/plan_internal.h"
#include "base/error.h"

#include <stdlib.h>

static const ht_operand *input(const ht_plan *p, const ht_instruction *ins, int i) {
    return &p->operand[ins->first_in + i];
}

static bool is_constant(ht_linear_form f) { return f.rows == 0 && f.out == 0; }

/* True when a size is the number of rows, or of output rows. */
static bool counts_rows(ht_linear_form n) { return n.constant == 0 && n.rows + n.out == 1; }

/* ---- fusible instructions ---- */

/* A matrix product with f32 activations, contiguous within rows, which a stage can share. */
static bool is_product(const ht_plan *p, const ht_instruction *ins) {
    if (ins->op != HT_OP_LINEAR) return false;
    const ht_operand *x = input(p, ins, 0), *bias = input(p, ins, 1);
    if (x->source != HT_FROM_VALUE || x->dtype != HT_F32 || x->n_dims != 2 || !counts_rows(x->shape[0])) return false;
    if (!is_constant(x->stride[0]) || !is_constant(x->stride[1]) || x->stride[1].constant != 1) return false;
    return bias->source == HT_FROM_NOTHING ||
           (bias->source == HT_FROM_CONSTANT && bias->dtype == HT_F32 && bias->stride[0].constant == 1);
}

static bool same_view(const ht_operand *a, const ht_operand *b) {
    bool same = a->source == b->source && a->index == b->index && a->dtype == b->dtype && a->n_dims == b->n_dims &&
                ht_same_form(a->offset, b->offset);
    for (int d = 0; same && d < a->n_dims; d++)
        same = ht_same_form(a->shape[d], b->shape[d]) && ht_same_form(a->stride[d], b->stride[d]);
    return same;
}

/* True when row i of the view lies within row i of its value. */
static bool sees_own_row(const ht_plan *p, const ht_operand *o, ht_linear_form rows) {
    const ht_instruction *maker = &p->instruction[o->index];
    int64_t width = rows.rows ? maker->elements.rows : maker->elements.out, last = 0;
    if (!ht_same_form(maker->out.shape[0], rows) || !ht_same_form(o->shape[0], rows)) return false;
    if (!ht_same_form(o->offset, (ht_linear_form){0}) ||
        !ht_same_form(o->stride[0], (ht_linear_form){.constant = width}))
        return false;
    for (int d = 1; d < o->n_dims; d++) {
        if (!is_constant(o->shape[d]) || !is_constant(o->stride[d]) || o->stride[d].constant < 0) return false;
        last += (o->shape[d].constant - 1) * o->stride[d].constant;
    }
    return last < width;
}

static bool is_rowwise(const ht_plan *p, const ht_instruction *ins, ht_linear_form rows) {
    if (!p->device->stages->is_rowwise(p->device, ins->op) || ins->out.dtype != HT_F32 || ins->out.n_dims < 2)
        return false;
    if (!ht_same_form(ins->out.shape[0], rows) || ins->n_in > HT_STAGE_INPUTS) return false;
    for (int i = 0; i < ins->n_in; i++) {
        const ht_operand *o = input(p, ins, i);
        if (o->source == HT_FROM_NOTHING) continue;
        if (o->dtype != HT_F32 || o->source == HT_FROM_BATCH) return false;
        if (o->source == HT_FROM_VALUE && !sees_own_row(p, o, rows)) return false;
    }
    return true;
}

/* ---- the order ---- */

static int32_t moves_behind(const ht_plan *p, const ht_instruction *ins);

/* A product that moves. A product of a product, or of one with adapters that have moved, keeps its place: its operand has
 * been placed by then. */
static bool moves(const ht_plan *p, const ht_instruction *ins) {
    if (!is_product(p, ins)) return false;
    const ht_instruction *maker = &p->instruction[input(p, ins, 0)->index];
    return !is_product(p, maker) && moves_behind(p, maker) < 0;
}

/* The instruction after which `ins` is placed: the producer of the rows that a product and its adapters (LORA) read.
 * -1: `ins` is not moved. */
static int32_t moves_behind(const ht_plan *p, const ht_instruction *ins) {
    if (moves(p, ins)) return input(p, ins, 0)->index;
    if (ins->op != HT_OP_LORA || input(p, ins, 0)->source != HT_FROM_VALUE) return -1;
    const ht_instruction *product = &p->instruction[input(p, ins, 0)->index];
    const bool follows = moves(p, product) && input(p, ins, 1)->source == HT_FROM_VALUE &&
                         input(p, ins, 1)->index == input(p, product, 0)->index;
    return follows ? input(p, ins, 1)->index : -1;
}

/* Moves products directly after the instruction whose output they read, and their adapters after them; biases are constants and
 * impose no order. order[i] is the instruction at position i. */
static ht_status order_instructions(const ht_plan *p, int32_t *order, ht_error *err) {
    int32_t n = p->n_instructions, placed = 0;
    int32_t *next = malloc((size_t)(3 * n + 1) * sizeof *next);
    if (!next) return ht_fail_memory(err, (size_t)(3 * n) * sizeof *next, "a plan");
    int32_t *first = next + n, *last = first + n;
    for (int32_t i = 0; i < n; i++) next[i] = first[i] = last[i] = -1;
    for (int32_t i = 0; i < n; i++) {
        const int32_t maker = moves_behind(p, &p->instruction[i]);
        if (maker < 0) continue;
        if (first[maker] < 0)
            first[maker] = i;
        else
            next[last[maker]] = i;
        last[maker] = i;
    }
    for (int32_t i = 0; i < n; i++) {
        if (moves_behind(p, &p->instruction[i]) >= 0) continue;
        order[placed++] = i;
        for (int adapters = 0; adapters < 2; adapters++)
            for (int32_t l = first[i]; l >= 0; l = next[l])
                if ((p->instruction[l].op == HT_OP_LORA) == (adapters == 1)) order[placed++] = l;
    }
    free(next);
    return HT_OK;
}

static ht_status reorder(ht_plan *p, ht_error *err) {
    int32_t n = p->n_instructions;
    int32_t *order = malloc((size_t)(2 * n + 1) * sizeof *order);
    ht_instruction *old = malloc((size_t)(n + 1) * sizeof *old);
    ht_status st =
        order && old ? order_instructions(p, order, err) : ht_fail_memory(err, (size_t)n * sizeof *old, "a plan");
    if (st == HT_OK) {
        int32_t *now_at = order + n;
        for (int32_t i = 0; i < n; i++) old[i] = p->instruction[i];
        for (int32_t i = 0; i < n; i++) {
            p->instruction[i] = old[order[i]];
            p->instruction[i].out.index = i;
            now_at[order[i]] = i;
        }
        for (int32_t i = 0; i < p->n_operands; i++)
            if (p->operand[i].source == HT_FROM_VALUE) p->operand[i].index = now_at[p->operand[i].index];
        if (p->output.source == HT_FROM_VALUE) p->output.index = now_at[p->output.index];
    }
    free(order);
    free(old);
    return st;
}

/* ---- stages ---- */

/* Number of products from instruction i on that read the same rows. */
static int count_products(const ht_plan *p, int32_t i) {
    int n = 0;
    while (n < HT_STAGE_CALLS && i + n < p->n_instructions && is_product(p, &p->instruction[i + n]) &&
           same_view(input(p, &p->instruction[i], 0), input(p, &p->instruction[i + n], 0)))
        n++;
    return n;
}

/* Number of consecutive row-wise instructions before the product i, the last of which makes its operand. */
static int count_rowwise(const ht_plan *p, int32_t i) {
    const ht_operand *x = input(p, &p->instruction[i], 0);
    ht_linear_form rows = x->shape[0];
    if (x->index != i - 1 || !sees_own_row(p, x, rows)) return 0;
    int n = 0;
    while (n < HT_STAGE_CALLS && n < i && is_rowwise(p, &p->instruction[i - 1 - n], rows)) n++;
    return n;
}

ht_status ht_plan_fuse(ht_plan *p, ht_error *err) {
    bool fuses = p->device->stages != NULL;
    ht_status st = fuses ? reorder(p, err) : HT_OK;
    for (int32_t i = 0; st == HT_OK && i < p->n_instructions;) {
        int n = fuses ? count_products(p, i) : 0;
        ht_stage stage = {.first = i};
        if (n > 0) {
            /* Merge the preceding row-wise instructions, each so far a separate stage, into this stage. */
            stage.n_rowwise = count_rowwise(p, i);
            stage.n_products = n;
            stage.first -= stage.n_rowwise;
            p->n_stages -= stage.n_rowwise;
        }
        p->stage[p->n_stages++] = stage;
        i += n > 0 ? n : 1;
    }
    return st;
}
