/* Rows of views, for the host side of cuda/reduce.cu and cuda/norm.cu. */
#ifndef HT_CUDA_ROWS_OF_H
#define HT_CUDA_ROWS_OF_H

#include "cuda/cuda.h"
#include "cuda/rows.h"

/* The rows of a view along `axis`, in row-major order of the other axes. */
ht_cuda_rows ht_cuda_rows_of(const ht_view *v, int axis);
/* The same with `n_dims` leading axes as rows; the element step is of the last axis. */
ht_cuda_rows ht_cuda_leading_rows_of(const ht_view *v, int n_dims);
int64_t ht_cuda_n_rows(const ht_view *v, int axis);

/* A launch with a team for each row, warps together in blocks. */
ht_cuda_shape ht_cuda_team_shape(const ht_cuda_device *d, int32_t team, int64_t n_rows);

/* The kernel for a floating-point type, of those of HT_CUDA_FLOATS, whose first is of f16. */
static inline ht_cuda_kernel_id ht_cuda_of_float(ht_cuda_kernel_id first, ht_dtype t) {
    return (ht_cuda_kernel_id)((int)first + (int)t - (int)HT_F16);
}

void ht_cuda_scan_kernels(ht_kernel *kernels);

#endif
