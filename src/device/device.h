/* A device: the function table that runs operations. Nothing above this layer knows which one it is. */
#ifndef HT_DEVICE_DEVICE_H
#define HT_DEVICE_DEVICE_H

#include "device/kernel.h"
#include "device/matrix.h"
#include "device/measure.h"
#include "device/row.h"

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
    /* Runs a chain; both NULL: the device runs its calls one by one. */
    void (*run_chain)(const ht_chain *chain);
    size_t (*chain_scratch)(const ht_chain *chain); /* bytes for chain->call[0].scratch */
    ht_pool *pool;
    void (*destroy)(ht_device *d); /* called when the last hold is released */
    _Atomic int refs;
};

#endif
