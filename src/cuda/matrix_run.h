/* The host's side of products with packed weights, between the files that have it. */
#ifndef HT_CUDA_MATRIX_RUN_H
#define HT_CUDA_MATRIX_RUN_H

#include "base/checked.h"
#include "cuda/cuda.h"

/* ---- layout (cuda/matrix_layout.c) ---- */

typedef struct ht_cuda_layout {
    ht_cuda_form form;
    int64_t row_bytes, stored_bytes; /* of a row */
    int64_t whole;                   /* columns that lanes load for several cycles at a time */
} ht_cuda_layout;

ht_cuda_layout ht_cuda_layout_of(ht_weight_type type, int64_t k);
/* Cycles of 64 columns that a lane loads at a time. */
int ht_cuda_cycles_of(ht_cuda_form form);

/* A row as stored of one as laid out; forms other than those as stored. */
void ht_cuda_restore_row(ht_weight_type type, const ht_cuda_layout *l, int64_t k, const void *packed, void *stored);
/* Lays out n rows on the GPU, of and to memory of the device. Between `begin` and `end`. */
ht_status ht_cuda_lay_out(ht_cuda_device *d, ht_weight_type type, const ht_cuda_layout *l, int64_t k, int64_t n,
                          void *stored, void *packed, ht_error *err);

/* ---- products in f32 (cuda/matrix.c) ---- */

/* All rows of a matrix, as kernels take it, and some of them. */
ht_cuda_weights ht_cuda_weights_of(const ht_matrix *m);
ht_cuda_weights ht_cuda_some_rows(const ht_cuda_weights *w, int64_t row, int64_t n);

/* Rows of x, copied to `room` unless contiguous, and the bytes of that workspace. */
ht_status ht_cuda_contiguous_rows(ht_cuda_device *d, const ht_view *x, void *room, const float **rows, int64_t *ld,
                                  ht_error *err);
size_t ht_cuda_rows_bytes(const ht_view *x);

/* Sets `chunk`, `x_aligned`; gives the shared memory of a product of r rows at a time. */
unsigned ht_cuda_few_shared(ht_cuda_linear_arguments *a, int64_t r);
/* y = x W^T + bias, with the fields of `a` except chunk and x_aligned. */
ht_status ht_cuda_multiply(ht_cuda_device *d, ht_cuda_linear_arguments *a, ht_error *err);
/* dx = dy W */
ht_status ht_cuda_multiply_back(ht_cuda_device *d, const ht_cuda_back_arguments *a, ht_error *err);

ht_kernel_fn ht_cuda_linear_gather, ht_cuda_linear_gather_back, ht_cuda_head_loss, ht_cuda_head_loss_grad;
ht_scratch_fn ht_cuda_linear_gather_scratch, ht_cuda_linear_gather_back_scratch, ht_cuda_head_loss_scratch;

/* ---- products on tensor cores (cuda/tensor_product.c) ---- */

/* Whether tensor cores multiply by the matrix: not in reference precision, and not by f32. */
bool ht_cuda_is_tensor(const ht_matrix *m);

/* Bytes of the factors that follow the rows of such a matrix, and those of rows [row, row + n), which have been written: `row` is a
 * multiple of 64. */
size_t ht_cuda_factor_bytes(int64_t n_rows);
ht_status ht_cuda_set_factors(ht_cuda_device *d, const ht_matrix *m, int64_t row, int64_t n, ht_error *err);

/* Scratch bytes for products of n rows of k columns: for the rows as f16, and for part of the matrix. */
size_t ht_cuda_swizzled_bytes(const ht_cuda_device *d, int64_t n, int64_t k);
size_t ht_cuda_tensor_room(const ht_cuda_device *d, int64_t n, int64_t n_rows, int64_t k);

/* The swizzled operand of n rows, in scratch memory at `room`. */
ht_cuda_swizzled ht_cuda_swizzled_at(const ht_cuda_device *d, void *room, int64_t n, int64_t k);
/* Whether products of n rows with the matrix need an operand with `apart` set; all products of an operand must
 * agree. */
bool ht_cuda_takes_apart(const ht_cuda_device *d, const ht_matrix *m, int64_t n);
/* Writes x to `image` (cuda/stage.c). */
ht_status ht_cuda_prepare_rows(ht_cuda_device *d, const float *x, int64_t ldx, int64_t n, int64_t k,
                               const ht_cuda_swizzled *image, ht_error *err);

/* A swizzled operand of any multiple of 8 rows, and its bytes. */
ht_cuda_swizzled ht_cuda_swizzled_of_rows(void *room, int64_t rows, int64_t k);
size_t ht_cuda_swizzled_of_rows_bytes(int64_t rows, int64_t k);

/* Bytes of shared memory of a warp's ring for one panel. */
int ht_cuda_ring_bytes(int form);

/* Rows of an expert in a swizzled operand of several experts, and the number of experts in such an operand. */
int64_t ht_cuda_rows_of_expert(int64_t n_rows);
int64_t ht_cuda_experts_at_once(int64_t n_rows, int64_t k, int64_t n_experts);
/* The product of swizzled operands, for matrices like `w` and at most `tiles` tiles of pairs. */
ht_status ht_cuda_multiply_swizzled_experts(ht_cuda_device *d, const ht_cuda_weights *w,
                                            ht_cuda_gemm_large_arguments *a, int64_t tiles, ht_error *err);

/* A product of the rows of a swizzled operand. */
typedef struct ht_cuda_product {
    const ht_matrix *m;
    const float *bias; /* may be NULL */
    float *y;          /* [n, m->n_rows] */
} ht_cuda_product;

/* Products of n rows with matrices of one width. `room` is the workspace of the largest product. */
ht_status ht_cuda_multiply_swizzled(ht_cuda_device *d, const ht_cuda_product *products, int n_products,
                                    const ht_cuda_swizzled *x, int64_t n, void *room, ht_error *err);

#endif
