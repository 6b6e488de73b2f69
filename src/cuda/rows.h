/* Rows of a strided operand, for the kernels of cuda/reduce.cu and cuda/norm.cu. For C and for CUDA C. */
#ifndef HT_CUDA_ROWS_H
#define HT_CUDA_ROWS_H

#include "cuda/fault.h"

/* An operand as rows of equal length. */
typedef struct ht_cuda_rows {
    void *data;
    ht_dtype dtype;
    int32_t n_dims; /* of the rows, merged where memory allows */
    int64_t shape[HT_CUDA_DIMS], stride[HT_CUDA_DIMS];
    int64_t step; /* elements from one element of a row to the next */
    bool quads;   /* every fourth element of every row is aligned to four elements, which are adjacent */
} ht_cuda_rows;

/* Threads of the team that computes a row: a warp, or a block of up to HT_CUDA_LARGE_TEAM. */
enum { HT_CUDA_WARP = 32, HT_CUDA_LARGE_TEAM = 512 };
/* Quads that a thread of a team keeps in registers. */
enum { HT_CUDA_KEPT_QUADS = 4 };

/* X(module, kernel) for every floating-point type, in the order of ht_dtype. */
#define HT_CUDA_FLOATS(X, module, kernel)                                                                              \
    X(module, kernel##_f16) X(module, kernel##_bf16) X(module, kernel##_f32) X(module, kernel##_f64)

/* Team size for a row of n elements, read four at a time. */
static inline int32_t ht_cuda_team_of(int64_t n) {
    int32_t team = HT_CUDA_WARP;
    while (team < HT_CUDA_LARGE_TEAM && team * 4 * HT_CUDA_KEPT_QUADS < n) team *= 2;
    return team;
}

#endif
