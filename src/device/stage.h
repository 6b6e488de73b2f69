/* Fused stage: kernel calls that run as one. Row-wise kernels come first; each thread takes a few rows through all of
 * them, so that intermediate rows stay in the cache. Then come matrix products (LINEAR) that share one f32 input: the
 * output of the last row-wise kernel, if there is one. */
#ifndef HT_DEVICE_STAGE_H
#define HT_DEVICE_STAGE_H

#include "device/kernel.h"
#include "device/matrix.h"

enum {
    HT_STAGE_CALLS = 8, /* limit of row-wise calls, and of products */
    HT_STAGE_INPUTS = 3 /* limit of inputs of a row-wise call */
};

typedef struct ht_fused_stage {
    int n_rowwise, n_products;
    const ht_call *call;         /* [n_rowwise + n_products] */
    ht_op_id op[HT_STAGE_CALLS]; /* of the row-wise calls */
    /* Outputs read only within the stage have no memory in the arena: call->out.data, and the data of inputs that read
     * them, are NULL. The device keeps the current rows in scratch memory. */
    bool is_local[HT_STAGE_CALLS];
    int8_t local_in[HT_STAGE_CALLS][HT_STAGE_INPUTS]; /* index of the call that makes a local input; -1: not local */
    void *layout;                                     /* filled by `layout` below, host memory, 64-byte aligned */
} ht_fused_stage;

typedef struct ht_stage_ops {
    /* Whether the operation can be a row-wise call: with f32 operands, row i reads only row i of every input with the
     * same leading axis. */
    bool (*is_rowwise)(const struct ht_device *d, ht_op_id op);
    /* Whether products read their activations row by row as they are computed, so that the f32 rows need no separate
     * memory. */
    bool (*takes_rows)(const ht_matrix *m);
    /* Bytes of stage->layout, for any sizes of the calls. */
    size_t (*bytes)(const struct ht_device *d, const ht_fused_stage *stage);
    /* Fills stage->layout and returns the scratch bytes of a run. Called again when sizes, addresses or scratch change.
     * stage->call[0].scratch is NULL in a call that asks for the scratch bytes only. */
    size_t (*layout)(const ht_fused_stage *stage);
    /* Computes, or submits to the device's queue. Results have the bits of separate calls. */
    ht_status (*run)(const ht_fused_stage *stage, ht_error *err);
} ht_stage_ops;

#endif
