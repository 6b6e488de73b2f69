/* Products of a mixture of experts on tensor cores: the arguments of the kernels of cuda/experts.cu. Pairs of a row and
 * an expert are sorted by expert. The rows of the swizzled operand (cuda/tensor_product.h) are in that order; each
 * expert's begin at a multiple of eight. Columns are summed as in other products, but in four segments. */
#ifndef HT_CUDA_EXPERTS_H
#define HT_CUDA_EXPERTS_H

#include "cuda/tensor_product.h"

enum { HT_CUDA_EXPERT_SEGMENTS = 4 /* and warps of a block */ };

/* X(module, kernel) */
#define HT_CUDA_EXPERT_KERNELS(X, form)                                                                                \
    X(experts, ht_cuda_experts_##form##_1)                                                                             \
    X(experts, ht_cuda_experts_##form##_8)                                                                             \
    X(experts, ht_cuda_experts_##form##_32)                                                                            \
    X(experts, ht_cuda_expert_rows_##form)
#define HT_CUDA_KERNELS_OF_EXPERTS(X)                                                                                  \
    HT_CUDA_EACH_TENSOR_FORM(HT_CUDA_EXPERT_KERNELS, X)                                                                \
    X(experts, ht_cuda_sort_experts)

/* The matrices of one type, and the offset of their factors. */
typedef struct ht_cuda_expert_set {
    ht_cuda_weights w; /* the fields that all experts share */
    int64_t factors;   /* offset from a matrix's first row, in bytes */
    ht_cuda_expert_list experts;
} ht_cuda_expert_set;

/* Sorts pairs by expert into tiles of up to `per_tile`; unused tiles have n = 0. Each expert's pairs begin at a
 * multiple of eight in `order`; gaps are -1. */
typedef struct ht_cuda_sort_experts_arguments {
    ht_cuda_reporter report;
    ht_cuda_pair_ids ids;
    int64_t pairs, n_tiles, n_places;
    int32_t per_tile;
    int32_t *next;       /* [n_experts] workspace */
    int32_t *tile_begin; /* [n_experts + 1] */
    int32_t *order;      /* [n_places] */
    ht_cuda_expert_tile *tiles;
} ht_cuda_sort_experts_arguments;

/* y[pair] = the pair's row of the operand times its expert's matrix. A tile is up to 8 or 32 pairs of one expert. */
typedef struct ht_cuda_expert_arguments {
    ht_cuda_reporter report;
    ht_cuda_swizzled x;
    float *y;
    int64_t ldy, n_tiles;
    const ht_cuda_expert_tile *tiles; /* NULL: every pair is one */
    const int32_t *order;             /* the pair of a row of the operand */
    ht_cuda_pair_ids ids;             /* without tiles */
    int32_t x_rows;                   /* operand rows from a pair to the next, 0 or 1 */
    ht_cuda_expert_set of;
} ht_cuda_expert_arguments;

/* Experts [first, first + n) as a swizzled operand, `rows_each` rows per expert with tiles. Factors are 0 for experts
 * of another type. */
typedef struct ht_cuda_expert_rows_arguments {
    unsigned char *to;
    float *factors;            /* [n * rows_each / 64] */
    const int32_t *tile_begin; /* [n_experts + 1] */
    int64_t first, n, rows_each;
    ht_cuda_expert_set of;
} ht_cuda_expert_rows_arguments;

#endif
