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

void ht_cuda_scan_kernels(ht_kernel *kernels);

#endif
