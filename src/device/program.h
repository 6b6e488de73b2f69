/* Elementwise programs: a sequence of elementwise operations on arrays of one shape, run in one pass over memory.
 * Arrays are processed in blocks; intermediate results stay in the L1 cache, only outputs are written to memory. A
 * program has dtypes but no shape: it is built once, prepared once by the device, and runs on operands of any shape. */
#ifndef HT_DEVICE_PROGRAM_H
#define HT_DEVICE_PROGRAM_H

#include "device/kernel.h"
#include "device/params.h"

enum {
    HT_PROGRAM_STEPS = 32,
    HT_PROGRAM_INPUTS = 12,
    HT_PROGRAM_OUTPUTS = 6,
    HT_PROGRAM_LOCALS = 8, /* intermediate results alive at the same time */
    HT_STEP_INPUTS = 3
};

/* One operation of a program. */
typedef struct ht_program_step {
    ht_op_id op;
    ht_dtype from, to; /* dtype of the operands (WHERE: of the two values) and of the result */
    int8_t n_in;
    int8_t in[HT_STEP_INPUTS]; /* operands: input i of the program as i >= 0, the result of step i as -1 - i */
    int8_t out;                /* index of the output that the step writes; -1: an intermediate result */
    int8_t local;              /* set by the device: its local buffer for the result */
    const void *params;        /* the operation's parameter struct (device/params.h), lent */
    void (*kernel)(void);      /* set by the device */
} ht_program_step;

typedef struct ht_program {
    int n_steps, n_in, n_out;
    ht_dtype in[HT_PROGRAM_INPUTS]; /* [n_in] */
    ht_program_step step[HT_PROGRAM_STEPS];
} ht_program;

/* One run of a program: inputs of any strides and row-contiguous outputs, all of one shape. An output may share memory
 * with an input of the same strides if no step after the output's own step reads that input. */
typedef struct ht_program_run {
    const ht_program *program; /* prepared */
    const ht_view *in, *out;
    struct ht_device *device;
} ht_program_run;

typedef struct ht_program_ops {
    bool (*takes_step)(const struct ht_device *d, ht_op_id op, ht_dtype from, ht_dtype to); /* the step is supported */
    bool (*prepare)(const struct ht_device *d, ht_program *p);  /* fills in the device's fields; false: too large */
    ht_status (*run)(const ht_program_run *run, ht_error *err); /* an error: none of the outputs means anything */
} ht_program_ops;

#endif
