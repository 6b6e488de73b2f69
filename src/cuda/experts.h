/* Products of a mixture of experts on tensor cores: the arguments of the kernels of cuda/tensor_experts.cu.
 *
 * Pairs of a row and an expert are sorted by expert: the rows of an image (cuda/tensor_product.h) are in that order, those of each
 * expert from a multiple of eight on. Columns are summed as in other products, but in four segments. */
#ifndef HT_CUDA_EXPERTS_H
#define HT_CUDA_EXPERTS_H

#include "cuda/tensor_product.h"

enum { HT_CUDA_EXPERT_SEGMENTS = 4 /* and warps of a block */ };

/* X(module, kernel) */
#define HT_CUDA_EXPERT_KERNELS(X, form)                                                                                \
    X(tensor_experts, ht_cuda_experts_##form##_1)                                                                      \
    X(tensor_experts, ht_cuda_experts_##form##_8)                                                                      \
    X(tensor_experts, ht_cuda_experts_##form##_32)                                                                     \
    X(tensor_experts, ht_cuda_expert_rows_##form)
#define HT_CUDA_KERNELS_OF_TENSOR_EXPERTS(X)                                                                           \
    HT_CUDA_EXPERT_KERNELS(X, STORED)                                                                                  \
    HT_CUDA_EXPERT_KERNELS(X, F16)                                                                                     \
    HT_CUDA_EXPERT_KERNELS(X, BF16)                                                                                    \
    HT_CUDA_EXPERT_KERNELS(X, F8)                                                                                      \
    HT_CUDA_EXPERT_KERNELS(X, Q4_0)                                                                                    \
    HT_CUDA_EXPERT_KERNELS(X, Q8_0)                                                                                    \
    HT_CUDA_EXPERT_KERNELS(X, Q4_K)                                                                                    \
    HT_CUDA_EXPERT_KERNELS(X, Q6_K)                                                                                    \
    HT_CUDA_EXPERT_KERNELS(X, MLX4)                                                                                    \
    HT_CUDA_EXPERT_KERNELS(X, MLX8)                                                                                    \
    X(tensor_experts, ht_cuda_prepare_pairs)

/* The matrices of one type, and where each has its factors. */
typedef struct ht_cuda_expert_set {
    ht_cuda_weights w;           /* but for what an expert has of its own */
    int64_t factors;             /* bytes behind its first row */
    const ht_cuda_expert *table; /* of all experts; NULL: `entry` */
    ht_cuda_expert entry[HT_CUDA_ENTRIES];
} ht_cuda_expert_set;

/* Rows of the image: row `order[i]` / x_share of x, or zeros where that is negative. */
typedef struct ht_cuda_prepare_pairs_arguments {
    ht_cuda_swizzled to;
    const float *x;
    const int32_t *order;
    int64_t ldx, k;
    int32_t x_share;
} ht_cuda_prepare_pairs_arguments;

/* y[pair] = the pair's row of the image times its expert's matrix. A tile is of up to 8 or 32 pairs of one expert. */
typedef struct ht_cuda_expert_arguments {
    ht_cuda_reporter report;
    ht_cuda_swizzled x;
    float *y;
    int64_t ldy, n_tiles;
    const ht_cuda_expert_tile *tiles; /* NULL: every pair is one */
    const int32_t *order;             /* the pair of a row of the image */
    const int32_t *ids;               /* without tiles: the pairs' experts, */
    int64_t id_stride;
    int32_t n_experts, x_rows; /* and rows of the image from a pair to the next, 0 or 1 */
    ht_cuda_expert_set of;
} ht_cuda_expert_arguments;

/* Experts [first, first + n) as an image, `rows_each` rows to each, of those that have tiles; their factors are 0 where their type is
 * another. */
typedef struct ht_cuda_expert_rows_arguments {
    unsigned char *to;
    float *factors;            /* [n * rows_each / 64] */
    const int32_t *tile_begin; /* [n_experts + 1] */
    int64_t first, n, rows_each;
    ht_cuda_expert_set of;
} ht_cuda_expert_rows_arguments;

#endif
