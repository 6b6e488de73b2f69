/* Elementwise programs: operations on arrays of one shape, run as one pass over memory. The result of a step is kept, a
 * block at a time, in the first cache, unless it is an output. A program does not know shapes: it is built once,
 * prepared once by the device, and then run on any operands of its dtypes. */
#ifndef HT_DEVICE_PROGRAM_H
#define HT_DEVICE_PROGRAM_H

#include "device/kernel.h"
#include "device/params.h"

enum {
    HT_PROGRAM_STEPS = 32,
    HT_PROGRAM_INPUTS = 12,
    HT_PROGRAM_OUTPUTS = 6,
    HT_PROGRAM_LOCALS = 8, /* results that are alive together without being outputs */
    HT_STEP_INPUTS = 3
};

typedef struct ht_program_step {
    ht_op_id op;
    ht_dtype from, to; /* of what it reads (for WHERE: of what it chooses from) and of what it makes */
    int8_t n_in;
    int8_t in[HT_STEP_INPUTS]; /* from 0 on: an input; below: what step -1 - in has made */
    int8_t out;                /* the output that it makes; -1: it is read by later steps alone */
    int8_t local;              /* the device's: where in its room the result is kept */
    const void *params;        /* lent: the operation's parameter struct */
    void (*kernel)(void);      /* the device's */
} ht_program_step;

typedef struct ht_program {
    int n_steps, n_in, n_out;
    ht_dtype in[HT_PROGRAM_INPUTS];
    ht_program_step step[HT_PROGRAM_STEPS];
} ht_program;

/* One run: inputs of any strides, outputs row-contiguous, all of one shape. An output may be written over an input that
 * lies just like it, if no step behind the one that makes the output reads that input. */
typedef struct ht_program_run {
    const ht_program *program; /* prepared */
    const ht_view *in, *out;
    ht_pool *pool; /* leased */
} ht_program_run;

#endif
