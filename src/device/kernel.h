/* Kernel calls: views of the operands, parameters, thread pool and scratch memory. Eager evaluation and the executor of a
 * plan make the same calls. */
#ifndef HT_DEVICE_KERNEL_H
#define HT_DEVICE_KERNEL_H

#include "base/pool.h"
#include "device/op_id.h"
#include "device/step.h"

#include <hearth/dtype.h>

#include <stdbool.h>
#include <stdint.h>

enum { HT_MAX_DIMS = 8 };

/* Strided view of memory. Strides are in elements and may be 0 or negative; `data` points at element [0, ..., 0]. An absent
 * operand (HT_NONE) has n_dims == -1 and data == NULL. */
typedef struct ht_view {
    void *data;
    ht_dtype dtype;
    int n_dims;
    int64_t shape[HT_MAX_DIMS];
    int64_t stride[HT_MAX_DIMS];
} ht_view;

/* One kernel call. */
typedef struct ht_call {
    const void *params; /* the operation's parameter struct (device/params.h) */
    int n_in;
    const ht_view *in;   /* [n_in], any strides */
    ht_view out;         /* row-contiguous; overlaps an input only if the operation is marked in-place */
    const ht_step *step; /* NULL outside a model step */
    ht_pool *pool;       /* leased */
    int32_t top_k;       /* LINEAR: only the top_k highest outputs of each row are needed (device/matrix.h); 0: all */
    void *scratch;       /* 64-byte aligned, of the size that the kernel's scratch function returned, or more */
} ht_call;

/* Computes call->out. The operation's shape rule has checked shapes and dtypes; the kernel checks values, such as an index
 * out of range. */
typedef ht_status ht_kernel_fn(const ht_call *call, ht_error *err);
/* Scratch bytes of the kernel for the shapes of `call`, whose data pointers are not set. */
typedef size_t ht_scratch_fn(const ht_call *call);

/* Computes rows [begin, end) of the leading axis of call->out on the calling thread, bit-identical to `run`. Operands
 * are f32; row i reads row i only of every input that has the same leading axis. Never fails; needs no scratch. */
typedef void ht_rows_fn(const ht_call *call, int64_t begin, int64_t end);

typedef struct ht_kernel {
    ht_kernel_fn *run;
    ht_scratch_fn *scratch; /* NULL: none */
    ht_rows_fn *rows;       /* NULL: the kernel is not row-wise */
} ht_kernel;

/* Fused stage: kernel calls that run as one. Row-wise kernels come first; each thread takes a few rows through all of
 * them, so that intermediate rows stay in the cache. Then come matrix products (LINEAR) that share one f32 input: the
 * output of the last row-wise kernel, if there is one. */
enum {
    HT_STAGE_CALLS = 8, /* limit of row-wise calls, and of products */
    HT_STAGE_INPUTS = 3 /* limit of inputs of a row-wise call */
};
typedef struct ht_fused_stage {
    int n_rowwise, n_products;
    const ht_call *call; /* [n_rowwise + n_products] */
    ht_rows_fn *rows[HT_STAGE_CALLS];
    /* Outputs read only within the stage have no memory in the arena: call->out.data, and the data of inputs that read
     * them, are NULL. The device keeps the current rows in scratch memory. */
    bool is_local[HT_STAGE_CALLS];
    int8_t local_in[HT_STAGE_CALLS][HT_STAGE_INPUTS]; /* index of the call that makes a local input; -1: not local */
    void *layout;                                     /* filled by the device (layout_stage), 64-byte aligned */
} ht_fused_stage;

static inline bool ht_view_absent(const ht_view *v) { return v->n_dims < 0; }

static inline int64_t ht_view_size(const ht_view *v) {
    int64_t n = 1;
    for (int i = 0; i < v->n_dims; i++) n *= v->shape[i];
    return n;
}

static inline bool ht_view_contiguous(const ht_view *v) {
    int64_t expected = 1;
    for (int i = v->n_dims - 1; i >= 0; i--) {
        if (v->shape[i] != 1 && v->stride[i] != expected) return false;
        expected *= v->shape[i];
    }
    return true;
}

#endif
