/* Elementwise program state: operand layouts (elementwise_operands.c) and execution state (elementwise_run.c). */
#ifndef HT_CPU_ELEMENTWISE_JOB_H
#define HT_CPU_ELEMENTWISE_JOB_H

#include "cpu/elementwise.h"

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

/* Classifies every operand and merges axes for the strided ones. */
void ht_elementwise_layout_operands(elementwise_job *j, const ht_view *in, const ht_view *out);
/* Sets b->index from b->at. */
void ht_elementwise_find_index(const elementwise_job *j, elementwise_block *b);
/* Block of input k: in place if contiguous, else gathered into `r`. */
const void *ht_elementwise_operand(const elementwise_job *j, int k, const elementwise_block *b, elementwise_scratch *r);
/* Fills the staged block of every scalar operand with n copies, n <= j->block. */
void ht_elementwise_fill_scalars(const elementwise_job *j, int64_t n, elementwise_scratch *r);

#endif
