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
    ht_kernel kernels[HT_OP_COUNT]; /* run == NULL: the device does not support the operation */

    /* ---- packed weights and sampling ---- */

    /* Functions for matrices of a weight type; NULL: the type is not supported. */
    const ht_matrix_ops *(*matrix_ops)(const ht_device *d, ht_weight_type type, ht_precision precision);
    /* Functions for an output head [n_rows, k]. The head may pack its rows so that top-k sampling reads less memory. */
    const ht_matrix_ops *(*head_ops)(const ht_device *d, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k);
    const ht_row_ops *row_ops;
    const ht_measure_ops *measure; /* NULL: measurement is not supported */

    /* ---- fused stages (device/kernel.h); all NULL: the executor makes the calls of a stage one by one ---- */

    /* Bytes of stage->layout, for any sizes of the calls. */
    size_t (*stage_bytes)(const ht_fused_stage *stage, int n_threads);
    /* Fills stage->layout and returns the scratch bytes of a run. Called again when sizes, addresses or scratch change.
     * stage->call[0].scratch is NULL in a call that asks for the scratch bytes only. */
    size_t (*layout_stage)(const ht_fused_stage *stage);
    void (*run_stage)(const ht_fused_stage *stage);

    /* ---- elementwise programs (device/program.h); all NULL: operations run one by one ---- */

    bool (*takes_step)(const ht_device *d, ht_op_id op, ht_dtype from, ht_dtype to); /* the step is supported */
    bool (*prepare_program)(const ht_device *d, ht_program *p); /* fills in the device's fields; false: too large */
    void (*run_program)(const ht_program_run *run);

    /* ---- threads and lifetime ---- */

    ht_pool *pool;
    /* Held while a graph is traversed and evaluated. All streams share it, as they share the pool: a stream never sees an
     * array half computed by another stream, and an array that two streams need is computed once. */
    pthread_mutex_t run_lock;
    void (*destroy)(ht_device *d); /* called when the last reference is released */
    _Atomic int refs;
};

#endif
