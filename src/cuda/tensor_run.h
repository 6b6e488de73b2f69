/* The host's side of products on tensor cores (cuda/tensor_product.h). */
#ifndef HT_CUDA_TENSOR_RUN_H
#define HT_CUDA_TENSOR_RUN_H

#include "cuda/cuda.h"
#include "cuda/tensor_product.h"

/* Whether tensor cores multiply by the matrix: not in reference precision, and not by f32. */
bool ht_cuda_is_tensor(const ht_matrix *m);

/* Bytes of the factors that follow the rows of such a matrix, and those of rows [row, row + n), which have been written: `row` is a
 * multiple of 64. */
size_t ht_cuda_factor_bytes(int64_t n_rows);
ht_status ht_cuda_set_factors(ht_cuda_device *d, const ht_matrix *m, int64_t row, int64_t n, ht_error *err);

/* Bytes of the scratch memory of products of n rows of k columns: of the rows as f16, and of a part of the matrix. */
size_t ht_cuda_swizzled_bytes(const ht_cuda_device *d, int64_t n, int64_t k);
size_t ht_cuda_tensor_room(const ht_cuda_device *d, int64_t n, int64_t n_rows, int64_t k);

/* The image of n rows of x that such memory has room for. */
ht_cuda_swizzled ht_cuda_swizzled_at(const ht_cuda_device *d, void *room, int64_t n, int64_t k);
/* Whether a product of n rows with the matrix takes an image that is apart; all products of an image do, or none. */
bool ht_cuda_takes_apart(const ht_cuda_device *d, const ht_matrix *m, int64_t n);
/* Rows of it that products of n rows read, of which the first n are x's. */
int64_t ht_cuda_swizzled_rows(const ht_cuda_swizzled *image, int64_t n);
/* Makes it. */
ht_status ht_cuda_prepare_rows(ht_cuda_device *d, const float *x, int64_t ldx, int64_t n, int64_t k,
                               const ht_cuda_swizzled *image, ht_error *err);

/* An image of any number of rows, a multiple of 8, and its bytes. */
ht_cuda_swizzled ht_cuda_swizzled_of_rows(void *room, int64_t rows, int64_t k);
size_t ht_cuda_swizzled_of_rows_bytes(int64_t rows, int64_t k);

/* Bytes of shared memory of a warp's ring for one panel. */
int ht_cuda_ring_bytes(int form);

/* Rows of an expert in an image of several, and how many experts such an image has. */
int64_t ht_cuda_rows_of_expert(int64_t n_rows);
int64_t ht_cuda_experts_at_once(int64_t n_rows, int64_t k, int64_t n_experts);
/* The product of images, of matrices like `w`, of at most so many tiles of pairs. */
ht_status ht_cuda_multiply_swizzled_experts(ht_cuda_device *d, const ht_cuda_weights *w,
                                            ht_cuda_gemm_large_arguments *a, int64_t tiles, ht_error *err);

/* A product of the rows of an image. */
typedef struct ht_cuda_product {
    const ht_matrix *m;
    const float *bias; /* may be NULL */
    float *y;          /* [n, m->n_rows] */
} ht_cuda_product;

/* Products of n rows with matrices of one width. `room` is for the largest of them. */
ht_status ht_cuda_multiply_swizzled(ht_cuda_device *d, const ht_cuda_product *products, int n_products,
                                    const ht_cuda_swizzled *x, int64_t n, void *room, ht_error *err);

#endif
