/* Kernel calls: views of the operands, parameters and scratch memory. Eager evaluation and the executor of a plan make the
 * same calls. */
#ifndef HT_DEVICE_KERNEL_H
#define HT_DEVICE_KERNEL_H

#include "device/op_id.h"
#include "device/step.h"

#include <hearth/dtype.h>

#include <stdbool.h>
#include <stdint.h>

enum { HT_MAX_DIMS = 8 };

struct ht_device;

/* Strided view of the device's memory. Strides are in elements and may be 0 or negative; `data` points at element [0, ..., 0]. An absent
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
    const ht_view *in;        /* [n_in], any strides */
    ht_view out;              /* row-contiguous; overlaps an input only if the operation is marked in-place */
    const ht_step *step;      /* NULL outside a model step */
    struct ht_device *device; /* owner of the kernel */
    int32_t top_k; /* LINEAR: only the top_k highest outputs of each row are needed (device/matrix.h); 0: all */
    void *scratch; /* the device's, 64-byte aligned, of the size that the kernel's scratch function returned, or more */
} ht_call;

/* Computes call->out, or submits that to the device's queue. When it returns, the caller may change the call and what
 * it points at, except device memory and what a matrix or a step points at. The operation's shape rule has checked
 * shapes and dtypes; the kernel checks values, such as an index out of range. */
typedef ht_status ht_kernel_fn(const ht_call *call, ht_error *err);
/* Scratch bytes of the kernel for the shapes of `call`, whose data pointers are not set. */
typedef size_t ht_scratch_fn(const ht_call *call);

typedef struct ht_kernel {
    ht_kernel_fn *run;
    ht_scratch_fn *scratch; /* NULL: none */
} ht_kernel;

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

/* Whether x is f32 rows of unit stride, equally spaced; *ld is then their distance. */
bool ht_view_has_rows(const ht_view *x, int64_t *ld);

#endif
