/* Internals of the CUDA device: its state, and functions that submit work to it. All work is in one stream, in
 * submission order. Kernels write a bad value to a fault record, which a wait reads; an asynchronous failure of a
 * driver call loses the device. */
#ifndef HT_CUDA_CUDA_H
#define HT_CUDA_CUDA_H

#include "cuda/driver.h"
#include "cuda/fault.h"
#include "cuda/kernels.h"
#include "cuda/staging.h"
#include "device/device.h"

#include <pthread.h>

typedef struct ht_cuda_device {
    ht_device base;
    const ht_cuda_driver *driver;
    ht_device *host; /* its threads read weights and choose tokens */
    CUdevice device;
    CUcontext context;
    CUstream stream;
    char name[128];
    int multiprocessors, major, minor;
    int most_shared, most_shared_of_block; /* bytes of shared memory per multiprocessor, and per block on request */
    ht_memory memory;
    pthread_mutex_t turn; /* held from `begin` to `end` */
    pthread_mutex_t lock; /* guards the fields below */
    CUmodule module[HT_CUDA_MODULE_COUNT];
    CUfunction function[HT_CUDA_KERNEL_COUNT];
    unsigned shared_bytes[HT_CUDA_KERNEL_COUNT]; /* dynamic shared memory requested for each kernel; 0: the default */
    ht_error lost;                               /* the error that lost the device, kept for good */
    _Atomic ht_mark submitted;
    ht_cuda_fault *fault; /* memory of the device */
    ht_cuda_fault *found; /* page-locked copy of `fault`, made by a wait */
    ht_cuda_staging staging;
    uint32_t *arrivals;   /* memory of the device, zeros between kernels (cuda/attend.h) */
    bool may_have_failed; /* kernels that report were submitted since the last wait */
} ht_cuda_device;

static inline ht_cuda_device *ht_cuda_of(ht_device *d) { return (ht_cuda_device *)(void *)d; }

/* Make the device's context current, and restore the thread's earlier one. Between `begin` and `end` it is already
 * current. */
void ht_cuda_enter(const ht_cuda_device *d);
void ht_cuda_leave(const ht_cuda_device *d);

/* HT_OK, or the error that lost the device. */
ht_status ht_cuda_lost(ht_cuda_device *d, ht_error *err);

/* Marks the device as lost if `result` is an error; the first error is kept. */
ht_status ht_cuda_note(ht_cuda_device *d, CUresult result, ht_error *err, const char *what);

/* Blocks and threads of a launch. */
typedef struct ht_cuda_shape {
    unsigned grid[3], block[3]; /* 0 is 1 */
    unsigned shared_bytes;
    unsigned cluster; /* cluster size along the first axis, where supported; 0 is 1 */
} ht_cuda_shape;

/* Submits a kernel with the struct at `arguments` as its only parameter. Between `begin` and `end`. */
ht_status ht_cuda_launch(ht_cuda_device *d, ht_cuda_kernel_id kernel, const ht_cuda_shape *shape, const void *arguments,
                         ht_error *err);
/* Blocks of a launch for n items of work; if n is large, a block takes several. */
unsigned ht_cuda_blocks(const ht_cuda_device *d, int64_t n);
/* Launches one thread per item; nothing if n is 0. */
ht_status ht_cuda_launch_threads(ht_cuda_device *d, ht_cuda_kernel_id kernel, int64_t n, const void *arguments,
                                 ht_error *err);

/* The shape of a launch over rows of `size` elements (cuda/kernel.cuh). */
ht_cuda_shape ht_cuda_grid_of_rows(const ht_cuda_device *d, int64_t rows, int64_t size);

/* Consecutive allocations in a call's scratch memory; if `at` is NULL, bytes are only counted. */
typedef struct ht_cuda_scratch {
    char *at;
    size_t bytes;
} ht_cuda_scratch;
void *ht_cuda_take(ht_cuda_scratch *s, size_t bytes);

/* Reporter for the next submitted kernel, which may find invalid values. */
ht_cuda_reporter ht_cuda_report(ht_cuda_device *d, ht_op_id op);

/* A view as a kernel argument. */
ht_cuda_view ht_cuda_view_of(const ht_view *v);
/* A row-contiguous view of `data` with the shape of another. */
ht_view ht_cuda_contiguous(const ht_view *shape, void *data);
/* Drops axes of size 1 from views of one shape, and merges adjacent axes that one stride covers in every view. */
void ht_cuda_collapse(int n_views, ht_cuda_view *const *views);
/* Widens the words of dense rows from elements of `bytes` to at most 16 bytes: the widest that divides `more` and all
 * addresses, strides and lengths in bytes. The first n_dense views have such rows on their last axis. Returns the
 * elements per word, the new unit of all views and `bytes`. */
int64_t ht_cuda_use_wide_words(int n_views, ht_cuda_view *const *views, int n_dense, uint64_t more, int32_t *bytes);

/* ---- rows (cuda/rows.c) ---- */

/* The rows of a view along `axis`, in row-major order of the other axes. */
ht_cuda_rows ht_cuda_rows_of(const ht_view *v, int axis);
/* The same with the `n_dims` leading axes as rows; the element step is the last axis's. */
ht_cuda_rows ht_cuda_leading_rows_of(const ht_view *v, int n_dims);
int64_t ht_cuda_n_rows(const ht_view *v, int axis);

/* A launch with one team per row; several warps share a block. */
ht_cuda_shape ht_cuda_team_shape(const ht_cuda_device *d, int32_t team, int64_t n_rows);

/* The kernel for a floating-point type; `first` is the f16 kernel of HT_CUDA_FLOATS. */
static inline ht_cuda_kernel_id ht_cuda_of_float(ht_cuda_kernel_id first, ht_dtype t) {
    return (ht_cuda_kernel_id)((int)first + (int)t - (int)HT_F16);
}

extern const ht_memory_ops ht_cuda_memory_ops; /* whose `user` is the device */
extern const ht_queue_ops ht_cuda_queue;
extern const ht_measure_ops ht_cuda_measure;
extern const ht_program_ops ht_cuda_programs;
extern const ht_stage_ops ht_cuda_stages;

extern const ht_top_ops ht_cuda_top;
extern const ht_kv_ops ht_cuda_kv;
ht_cuda_page_form ht_cuda_page_form_of(const ht_kv_shape *shape);
const ht_matrix_ops *ht_cuda_matrix_ops(const ht_device *d, ht_weight_type type, ht_precision precision);

/* Copies between views of one shape and dtype. */
ht_status ht_cuda_strided_copy(ht_cuda_device *d, const ht_view *to, const ht_view *from, ht_error *err);

/* Sorts n numbers, using a second buffer of the same size; *sorted is one of the two. */
ht_status ht_cuda_sort_items(ht_cuda_device *d, uint64_t *items, uint64_t *room, int64_t n, const uint64_t **sorted,
                             ht_error *err);

/* Each registers the kernels of its module. */
#define X(module) void ht_cuda_##module##_kernels(ht_kernel *kernels);
HT_CUDA_OPERATIONS(X)
#undef X

#endif
