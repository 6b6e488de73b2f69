/* Products with packed weights on tensor cores: the arguments of the kernels of cuda/tensor_product.cu,
 * cuda/gemm_medium.cu and cuda/gemm_large.cu.
 *
 * Operands are f16. Each 64 rows of weights (`factors`) and each row of activations are scaled by a power of two, so
 * that the largest values are near the largest f16; f32 sums are scaled back. The columns of a row form eight segments.
 * Each is summed from 0 in steps of 16 columns, and the segments' sums are added in order. All kernels do this, for any
 * number of rows. mma and wgmma add 16 products and the accumulator exactly, then truncate to f32, so their results
 * have the same bits.
 *
 * Rows of an f16 operand are swizzled: in K-tiles of 64 columns, each eight rows take 1024 bytes. A row's 128 bytes are
 * four steps, two for each 32 columns. 4-bit integers come out of words in the order 0 4 1 5, 2 6 3 7: the first step
 * has columns 0 4 1 5 of every eight, the second the others. The index of each 16-byte chunk of row r is XORed with r.
 * This is wgmma's 128-byte swizzle, so contiguous copies fill shared memory. */
#ifndef HT_CUDA_TENSOR_PRODUCT_H
#define HT_CUDA_TENSOR_PRODUCT_H

#include "cuda/matrix.h"

enum {
    HT_CUDA_SEGMENTS = 8,
    HT_CUDA_K_TILE = 64,         /* columns */
    HT_CUDA_K_TILE_BYTES = 1024, /* of eight rows */
    HT_CUDA_FACTOR_ROWS = 64,    /* rows of the matrix with one factor */
    HT_CUDA_PANEL = 16,          /* rows of the matrix that a warp has */
    HT_CUDA_TOGETHER = 4,        /* matrices in a launch */
    HT_CUDA_TENSOR_WARPS = 8,    /* one for each segment */
    HT_CUDA_WIDE_ROWS = 256,     /* of the matrix, in a tile of ht_cuda_gemm_large_wgmma */
    HT_CUDA_WIDE_BLOCKS = 2,     /* of a cluster, which share a tile */
    HT_CUDA_WIDE_TOKENS = 192,   /* rows of x */
    HT_CUDA_WIDE_STAGES = 4,
    HT_CUDA_SOME_ROWS = 128, /* of the matrix, in a tile of ht_cuda_gemm_medium_* */
    HT_CUDA_SOME_TOKENS = 64,
    HT_CUDA_SOME_SLOTS = 2,    /* of a warp's ring */
    HT_CUDA_SOME_CUTS = 3,     /* of x, in shared memory at once */
    HT_CUDA_SOME_STRIDE = 132, /* of a tile's sums: tokens are in different banks */
};

/* Slots of a warp's ring; a lane has `bytes` bytes per span of one row, or of one row of both panels. */
#define HT_CUDA_RING_SLOTS(bytes) ((bytes) > 48 ? 2 : 3)

/* Bytes of a row's span per lane. */
enum {
    HT_CUDA_RAW_STORED = 0,
    HT_CUDA_RAW_F16 = 32,
    HT_CUDA_RAW_BF16 = 32,
    HT_CUDA_RAW_F8 = 24,
    HT_CUDA_RAW_Q4_0 = 48,
    HT_CUDA_RAW_Q8_0 = 48,
    HT_CUDA_RAW_Q4_K = 48,
    HT_CUDA_RAW_Q6_K = 64,
    HT_CUDA_RAW_MLX4 = 64,
    HT_CUDA_RAW_MLX8 = 48,
};

/* Y(X, form): those whose spans are loaded, and all that tensor cores multiply by. */
#define HT_CUDA_EACH_LOADED_FORM(Y, X)                                                                                 \
    Y(X, F16) Y(X, BF16) Y(X, F8) Y(X, Q4_0) Y(X, Q8_0) Y(X, Q4_K) Y(X, Q6_K) Y(X, MLX4) Y(X, MLX8)
#define HT_CUDA_EACH_TENSOR_FORM(Y, X) Y(X, STORED) HT_CUDA_EACH_LOADED_FORM(Y, X)

/* X(module, kernel) */
#define HT_CUDA_TENSOR_KERNELS(X, form)                                                                                \
    X(tensor_product, ht_cuda_tensor_##form##_8)                                                                       \
    X(tensor_product, ht_cuda_tensor_##form##_16)                                                                      \
    X(tensor_product, ht_cuda_tensor_##form##_64)                                                                      \
    X(tensor_product, ht_cuda_tensor_rows_##form)
#define HT_CUDA_KERNELS_OF_TENSOR_PRODUCT(X)                                                                           \
    HT_CUDA_EACH_TENSOR_FORM(HT_CUDA_TENSOR_KERNELS, X)                                                                \
    X(tensor_product, ht_cuda_factors)                                                                                 \
    X(tensor_product, ht_cuda_prepare)
#define HT_CUDA_MEDIUM_KERNEL(X, form)    X(gemm_medium, ht_cuda_gemm_medium_##form)
#define HT_CUDA_KERNELS_OF_GEMM_MEDIUM(X) HT_CUDA_EACH_LOADED_FORM(HT_CUDA_MEDIUM_KERNEL, X)
#define HT_CUDA_KERNELS_OF_GEMM_LARGE(X)                                                                               \
    X(gemm_large, ht_cuda_gemm_large_mma)                                                                              \
    X(gemm_large, ht_cuda_gemm_large_wgmma)                                                                            \
    X(gemm_large, ht_cuda_gemm_large_experts_mma)                                                                      \
    X(gemm_large, ht_cuda_gemm_large_experts_wgmma)

/* Byte offset of columns 8 t to 8 t + 7 of a K-tile in row r of eight: the four of step 0 or 1 of their 32 columns. */
#define HT_CUDA_STEP_PLACE(r, t, step) ((r)*128 + ((((t) >> 2) * 4 + (step)*2 + ((t)&3) / 2) ^ (r)) * 16 + ((t)&1) * 8)
/* Byte offset of two of these, the first or the second, if `apart` is set: wgmma's order for a register operand. */
#define HT_CUDA_PAIR_PLACE(r, t, step, second)                                                                         \
    ((r)*128 + ((((t) >> 2) * 4 + (step)*2 + (second)) ^ (r)) * 16 + ((t)&3) * 4)

/* Swizzled rows of x as f16, and the inverse of their factors. */
typedef struct ht_cuda_swizzled {
    unsigned char *rows; /* [K-tiles][n_padded / 8][1024] */
    float *inverse;      /* [n] */
    int64_t n_padded;    /* a multiple of 8 */
    int32_t apart;       /* a step's pairs of columns are in its two halves, not adjacent */
} ht_cuda_swizzled;

/* Row i of the operand is row i of x, or with `order` that of pair order[i]; x_share pairs share a row. -1: zeros. */
typedef struct ht_cuda_prepare_arguments {
    ht_cuda_swizzled to;
    const float *x;
    int64_t n, ldx, k;
    const int32_t *order;
    int32_t x_share;
} ht_cuda_prepare_arguments;

/* The factors of n rows of a matrix that begin at a multiple of 64. */
typedef struct ht_cuda_factors_arguments {
    ht_cuda_weights w;
    float *factors;
} ht_cuda_factors_arguments;

/* One of the matrices that a launch multiplies the same rows by. */
typedef struct ht_cuda_tensor_matrix {
    ht_cuda_weights w;
    const float *factors; /* of its rows from the first on */
    const float *bias;    /* may be NULL */
    float *y;             /* [n, ldy] */
    int64_t ldy;
    int64_t first_panel; /* in the launch */
} ht_cuda_tensor_matrix;

typedef struct ht_cuda_tensor_arguments {
    ht_cuda_tensor_matrix matrix[HT_CUDA_TOGETHER];
    int32_t n_matrices;
    int64_t panels; /* of all of them */
    ht_cuda_swizzled x;
    int64_t n;
} ht_cuda_tensor_arguments;

/* Rows [first, first + n) of the matrix as a swizzled operand of n_padded rows. */
typedef struct ht_cuda_tensor_rows_arguments {
    ht_cuda_weights w;
    const float *factors;
    unsigned char *to;
    int64_t first, n, n_padded;
} ht_cuda_tensor_rows_arguments;

/* Rows [first, first + n_rows) of the product of two swizzled operands. For experts (cuda/experts.h): all rows of
 * experts [first, first + n), `rows_each` apart in the weights, in tiles of up to HT_CUDA_WIDE_TOKENS pairs. */
typedef struct ht_cuda_gemm_large_arguments {
    const unsigned char *weights; /* rows_padded of them */
    ht_cuda_swizzled x;
    const float *factors,
        *bias; /* of the whole matrix; for experts, factors per row of the operand, 0 for rows without output */
    float *y;
    int64_t first, n_rows, rows_padded, n, ldy;
    int32_t cuts;
    int32_t segment_k_tiles[HT_CUDA_SEGMENTS + 1]; /* first K-tile of each segment */
    const ht_cuda_expert_tile *tiles;              /* for experts, like the fields below */
    const int32_t *tile_begin;                     /* [n_experts + 1]: the first tile of each */
    const int32_t *order;                          /* the pair of a row of x */
    int64_t rows_each;
} ht_cuda_gemm_large_arguments;

#endif
