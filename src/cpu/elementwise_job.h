/* Elementwise program state: a program laid out for a run (elementwise_run.c) and its operands (elementwise_operands.c). */
#ifndef HT_CPU_ELEMENTWISE_JOB_H
#define HT_CPU_ELEMENTWISE_JOB_H

#include "cpu/elementwise.h"

typedef enum operand_access {
    OPERAND_WHOLE,  /* lies like the result */
    OPERAND_SCALAR, /* one element */
    OPERAND_BY_AXIS /* any other strides */
} operand_access;

typedef struct elementwise_operand {
    const char *data;
    int64_t bytes; /* of an element */
    operand_access how;
    int64_t stride[HT_MAX_DIMS]; /* BY_AXIS, in elements, over the merged axes */
} elementwise_operand;

typedef struct elementwise_job {
    const ht_program *p;
    int64_t size, block; /* elements */
    int n_dims;          /* of the merged axes; 0 when no operand needs them */
    bool by_rows;        /* a block is within a row of the last merged axis */
    bool heavy;          /* an element takes longer to compute than to read and write */
    int64_t shape[HT_MAX_DIMS];
    elementwise_operand in[HT_PROGRAM_INPUTS];
    char *out[HT_PROGRAM_OUTPUTS];
    bool bypass[HT_PROGRAM_OUTPUTS]; /* written round the caches (bypass.h) */
} elementwise_job;

/* Memory of one thread: results kept between steps, operands gathered, results on their way round the caches. */
typedef struct elementwise_scratch {
    _Alignas(64) char local[HT_PROGRAM_LOCALS][HT_ELEMENTWISE_BLOCK_BYTES];
    _Alignas(64) char staged[HT_PROGRAM_INPUTS][HT_ELEMENTWISE_BLOCK_BYTES];
    _Alignas(64) char bypassed[HT_PROGRAM_OUTPUTS][HT_ELEMENTWISE_BLOCK_BYTES];
} elementwise_scratch;

/* Elements [at, at + n) of the result. */
typedef struct elementwise_block {
    int64_t at, n;
    int64_t index[HT_MAX_DIMS]; /* of the first one, over the merged axes */
} elementwise_block;

void ht_elementwise_layout_operands(elementwise_job *j, const ht_view *in, const ht_view *out);
/* b->index from b->at. */
void ht_elementwise_find_index(const elementwise_job *j, elementwise_block *b);
/* The elements of input k for a block: where they lie, or gathered into the scratch memory. */
const void *ht_elementwise_operand(const elementwise_job *j, int k, const elementwise_block *b, elementwise_scratch *r);
/* Fills in scalars, n times each, at most j->block. */
void ht_elementwise_fill_scalars(const elementwise_job *j, int64_t n, elementwise_scratch *r);

#endif
