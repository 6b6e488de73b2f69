/* The host's side of products with packed weights, between the files that have it: cuda/matrix.c, cuda/experts.c and
 * cuda/head_loss.c. */
#ifndef HT_CUDA_MATRIX_RUN_H
#define HT_CUDA_MATRIX_RUN_H

#include "cuda/cuda.h"
#include "cuda/matrix.h"

static inline int64_t ht_cuda_parts(int64_t n, int64_t of) { return (n + of - 1) / of; }

/* All rows of a matrix, as kernels take it, and some of them. */
ht_cuda_weights ht_cuda_weights_of(const ht_matrix *m);
ht_cuda_weights ht_cuda_some_rows(const ht_cuda_weights *w, int64_t row, int64_t n);

/* Rows of x, which are copied to `room` where they are not in place. */
ht_status ht_cuda_contiguous_rows(ht_cuda_device *d, const ht_view *x, void *room, const float **rows, int64_t *ld,
                                  ht_error *err);
/* Bytes of that room, a multiple of 64. */
size_t ht_cuda_rows_bytes(const ht_view *x);

/* Sets `chunk`, `x_aligned`; gives the shared memory of a product of r rows at a time. */
unsigned ht_cuda_few_shared(ht_cuda_linear_arguments *a, int64_t r);
/* y = x W^T + bias, but for chunk and x_aligned as in `a`. */
ht_status ht_cuda_multiply(ht_cuda_device *d, ht_cuda_linear_arguments *a, ht_error *err);
/* dx = dy W */
ht_status ht_cuda_multiply_back(ht_cuda_device *d, const ht_cuda_back_arguments *a, ht_error *err);

ht_kernel_fn ht_cuda_linear_gather, ht_cuda_linear_gather_back, ht_cuda_head_loss, ht_cuda_head_loss_grad;
ht_scratch_fn ht_cuda_linear_gather_scratch, ht_cuda_linear_gather_back_scratch, ht_cuda_head_loss_scratch,
    ht_cuda_head_loss_grad_scratch;

#endif
