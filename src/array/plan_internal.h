/* Plan internals, shared by the tracer (plan.c), stage fusion (fuse.c) and the executor (executor.c). */
#ifndef HT_ARRAY_PLAN_INTERNAL_H
#define HT_ARRAY_PLAN_INTERNAL_H

#include "array/array.h"
#include "array/plan.h"
#include "array/symbol.h"

typedef enum ht_source { HT_FROM_NOTHING, HT_FROM_VALUE, HT_FROM_CONSTANT, HT_FROM_BATCH } ht_source;

/* Operand of an instruction: a view whose sizes, strides and offset are linear in the row counts. */
typedef struct ht_operand {
    ht_source source;
    int32_t index;        /* HT_FROM_VALUE: the producing instruction; HT_FROM_BATCH: ht_batch_field */
    const void *constant; /* HT_FROM_CONSTANT: address of element [0, ..., 0] */
    ht_dtype dtype;
    int n_dims;
    ht_linear_form shape[HT_MAX_DIMS], stride[HT_MAX_DIMS], offset;
} ht_operand;

typedef struct ht_instruction {
    ht_op_id op;
    bool effect;
    int n_in;
    int32_t first_in; /* index of its first input in plan->operand */
    int32_t slot;     /* arena slot of the output; -1: local to its stage */
    ht_operand out;
    ht_linear_form elements; /* of the output */
    _Alignas(8) unsigned char params[HT_MAX_PARAMS];
} ht_instruction;

/* Unit of execution: one instruction, or several as a fused stage (device/kernel.h). */
typedef struct ht_stage {
    int32_t first;
    int n_rowwise, n_products; /* both 0: the single instruction `first` */
} ht_stage;

/* Arena slot, alive from the stage that first writes it to the last stage that reads it. */
typedef struct ht_plan_slot {
    ht_linear_form bytes;
    int32_t first, last;
} ht_plan_slot;

struct ht_plan {
    ht_device *device;
    int32_t n_instructions, n_operands, n_slots, n_constants, n_stages;
    ht_instruction *instruction;
    ht_operand *operand;
    ht_plan_slot *slot;
    ht_stage *stage;
    ht_array **constants;      /* leaves of the graph, retained */
    ht_operand output, second; /* the latter HT_FROM_NOTHING: none */
    int32_t
        top_product; /* instruction of the product that is the plan's output and is read nowhere else, for top-k; -1: none */
};

/* Reorders the instructions, so that fusible ones are adjacent, and groups them into stages. */
ht_status ht_plan_fuse(ht_plan *p, ht_error *err);

static inline int ht_stage_length(const ht_stage *s) { return s->n_products ? s->n_rowwise + s->n_products : 1; }
static inline bool ht_same_form(ht_linear_form a, ht_linear_form b) {
    return a.constant == b.constant && a.rows == b.rows && a.out == b.out;
}

#endif
