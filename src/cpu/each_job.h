/* Elementwise program state: a program laid out for a run (each_run.c) and its operands (each_operands.c). */
#ifndef HT_CPU_EACH_JOB_H
#define HT_CPU_EACH_JOB_H

#include "cpu/each.h"

typedef enum each_access {
    EACH_WHOLE,  /* lies like the result */
    EACH_SCALAR, /* one element */
    EACH_BY_AXIS /* any other strides */
} each_access;

typedef struct each_source {
    const char *data;
    int64_t bytes; /* of an element */
    each_access how;
    int64_t stride[HT_MAX_DIMS]; /* BY_AXIS, in elements, over the merged axes */
} each_source;

typedef struct each_job {
    const ht_program *p;
    int64_t size, block; /* elements */
    int n_dims;          /* of the merged axes; 0 when no operand needs them */
    bool by_rows;        /* a block is within a row of the last merged axis */
    bool heavy;          /* an element takes longer to compute than to read and write */
    int64_t shape[HT_MAX_DIMS];
    each_source in[HT_PROGRAM_INPUTS];
    char *out[HT_PROGRAM_OUTPUTS];
    bool bypass[HT_PROGRAM_OUTPUTS]; /* written round the caches (bypass.h) */
} each_job;

/* Memory of one thread: results kept between steps, operands gathered, results on their way round the caches. */
typedef struct each_scratch {
    _Alignas(64) char local[HT_PROGRAM_LOCALS][HT_EACH_BYTES];
    _Alignas(64) char staged[HT_PROGRAM_INPUTS][HT_EACH_BYTES];
    _Alignas(64) char bypassed[HT_PROGRAM_OUTPUTS][HT_EACH_BYTES];
} each_scratch;

/* Elements [at, at + n) of the result. */
typedef struct each_block {
    int64_t at, n;
    int64_t index[HT_MAX_DIMS]; /* of the first one, over the merged axes */
} each_block;

void ht_each_lay_operands(each_job *j, const ht_view *in, const ht_view *out);
/* b->index from b->at. */
void ht_each_find_index(const each_job *j, each_block *b);
/* The elements of input k for a block: where they lie, or gathered into the scratch memory. */
const void *ht_each_bring(const each_job *j, int k, const each_block *b, each_scratch *r);
/* Fills in scalars, n times each, at most j->block. */
void ht_each_fill_scalars(const each_job *j, int64_t n, each_scratch *r);

#endif
