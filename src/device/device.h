/* Device: the function table that runs operations. Nothing above this layer knows which one it is. */
#ifndef HT_DEVICE_DEVICE_H
#define HT_DEVICE_DEVICE_H

#include "device/kernel.h"
#include "device/matrix.h"
#include "device/measure.h"
#include "device/program.h"
#include "device/row.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ht_device ht_device;

struct ht_device {
    const char *name;               /* "cpu" */
    const char *instruction_set;    /* such as "avx512"; cpu/isa.h has the names */
    ht_kernel kernels[HT_OP_COUNT]; /* run == NULL: the device does not support the op */
    const ht_matrix_ops *(*matrix_ops)(const ht_device *d, ht_weight_type type,
                                       ht_precision precision); /* NULL: cannot */
    /* The same for an output head of that size, of which often the highest outputs alone are wanted. */
    const ht_matrix_ops *(*head_ops)(const ht_device *d, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k);
    const ht_row_ops *row_ops;
    const ht_measure_ops *measure; /* NULL: cannot */
    /* Chains; all NULL: the device runs their calls one by one. A fused stage is laid out once for many runs: again when the
     * sizes of its calls, their addresses or the scratch memory have changed. */
    size_t (*stage_bytes)(const ht_fused_stage *stage, int n_threads); /* of fused stage->layout, whatever the sizes */
    size_t (*layout_stage)(const ht_fused_stage *stage); /* gives the bytes for fused stage->call[0].scratch, which may
                                                                  * be NULL if that is all that is asked */
    void (*run_stage)(const ht_fused_stage *stage);
    /* Programs of elementwise operations; all NULL: the device runs operations one by one. */
    bool (*takes_step)(const ht_device *d, ht_op_id op, ht_dtype from, ht_dtype to);
    bool (*prepare_program)(const ht_device *d, ht_program *p); /* false: it is too large */
    void (*run_program)(const ht_program_run *run);
    ht_pool *pool;
    /* Held while a graph is walked and computed. One for all streams, which share the pool anyway: so a stream never sees
     * an array half computed by another, and what two of them need is computed once. */
    pthread_mutex_t run_lock;
    void (*destroy)(ht_device *d); /* called when the last hold is released */
    _Atomic int refs;
};

#endif
