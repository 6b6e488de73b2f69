/* The inside of a plan, shared by the tracer (plan.c) and the executor (executor.c). */
#ifndef HT_ARRAY_PLAN_INSIDE_H
#define HT_ARRAY_PLAN_INSIDE_H

#include "array/array.h"
#include "array/plan.h"
#include "array/symbol.h"

typedef enum ht_source { HT_FROM_NOTHING, HT_FROM_VALUE, HT_FROM_CONSTANT, HT_FROM_BATCH } ht_source;

/* A view whose sizes are linear in the row counts. */
typedef struct ht_operand {
    ht_source source;
    int32_t index;        /* HT_FROM_VALUE: the instruction that made it; HT_FROM_BATCH: ht_batch_field */
    const void *constant; /* HT_FROM_CONSTANT: element [0, ..., 0] */
    ht_dtype dtype;
    int n_dims;
    ht_linear_form shape[HT_MAX_DIMS], stride[HT_MAX_DIMS], offset;
} ht_operand;

typedef struct ht_instruction {
    ht_op_id op;
    bool effect;
    int n_in;
    int32_t first_in; /* operands of the plan */
    int32_t slot;     /* piece of the arena its output lives in */
    ht_operand out;
    ht_linear_form elements; /* of the output */
    _Alignas(8) unsigned char params[HT_MAX_PARAMS];
} ht_instruction;

/* A piece of the arena, from the instruction that first writes it to the last that reads it. */
typedef struct ht_slot {
    ht_linear_form bytes;
    int32_t first, last;
} ht_slot;

struct ht_plan {
    ht_device *device;
    int32_t n_instructions, n_operands, n_slots, n_constants;
    ht_instruction *instruction;
    ht_operand *operand;
    ht_slot *slot;
    ht_array **constants; /* held: the leaves the graph refers to */
    ht_operand output;
};

#endif
