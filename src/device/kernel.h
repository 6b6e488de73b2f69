/* Kernel arguments: views of the operands, the parameters of the operation, the step it serves, a leased pool and
 * scratch memory. The same call is made by eager evaluation and by an executor walking a plan. */
#ifndef HT_DEVICE_KERNEL_H
#define HT_DEVICE_KERNEL_H

#include "base/pool.h"
#include "device/op_id.h"
#include "device/step.h"

#include <hearth/dtype.h>

#include <stdbool.h>
#include <stdint.h>

enum { HT_MAX_DIMS = 8 };

/* A strided window on memory. Strides are in elements and may be 0 or negative; `data` points at element [0, ..., 0].
 * An absent operand (HT_NONE) has n_dims == -1 and data == NULL. */
typedef struct ht_view {
    void *data;
    ht_dtype dtype;
    int n_dims;
    int64_t shape[HT_MAX_DIMS];
    int64_t stride[HT_MAX_DIMS];
} ht_view;

typedef struct ht_call {
    const void *params; /* the operation's parameter struct from device/params.h */
    int n_in;
    const ht_view *in;   /* any strides */
    ht_view out;         /* row-contiguous, never overlaps an input unless the op is marked in-place */
    const ht_step *step; /* NULL outside a model step */
    ht_pool *pool;       /* leased */
    int32_t top_k;       /* LINEAR: only the so many highest of each row are wanted (device/matrix.h); 0: all */
    void *scratch;       /* 64-byte aligned, at least what the kernel's scratch function asked for */
} ht_call;

/* Computes call->out. Shapes and dtypes were checked by the op's shape rule; what depends on values (an index out of
 * range) is the kernel's to check. */
typedef ht_status ht_kernel_fn(const ht_call *call, ht_error *err);
/* Bytes of scratch the kernel needs for these shapes; data pointers are not to be read. */
typedef size_t ht_scratch_fn(const ht_call *call);

/* Rows [begin, end) of the leading axis of call->out, on the calling thread, with the bits `run` gives. Everything is f32,
 * and row i needs of the inputs that have such rows no other than row i. Cannot fail and uses no scratch. */
typedef void ht_rows_fn(const ht_call *call, int64_t begin, int64_t end);

typedef struct ht_kernel {
    ht_kernel_fn *run;
    ht_scratch_fn *scratch; /* NULL: none */
    ht_rows_fn *rows;       /* NULL: the kernel does not work row by row */
} ht_kernel;

/* Calls that are made as one: first kernels that work row by row, a few rows at a time through all of them, then products
 * (LINEAR) that read the same f32 rows, which are the output of the last kernel if there is any. */
enum {
    HT_STAGE_CALLS = 8, /* at most, of either kind */
    HT_STAGE_INPUTS = 3 /* of a row-wise kernel, at most */
};
typedef struct ht_fused_stage {
    int n_rowwise, n_products;
    const ht_call *call; /* [n_rowwise + n_products] */
    ht_rows_fn *rows[HT_STAGE_CALLS];
    /* An output that nothing outside the fused stage reads has no place of its own: call->out.data is NULL, and so are the
     * inputs that read it. The device keeps the rows it is at. */
    bool is_local[HT_STAGE_CALLS];
    int8_t local_in[HT_STAGE_CALLS][HT_STAGE_INPUTS]; /* by which call of the fused stage; -1: not a local one */
    void *layout;                                     /* the device's own (device/device.h), 64-byte aligned */
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
