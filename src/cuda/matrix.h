/* Packed weights, and the products with them: the arguments of the kernels of cuda/matrix.cu.
 *
 * Columns are summed in one order, for any type of weights and number of rows. Cycles of 64 columns are dealt to 8
 * lanes, 8 adjacent columns to each. A lane sums its columns in order, and the lanes' sums are added in pairs: lanes 4
 * apart, then 2, then 1. */
#ifndef HT_CUDA_MATRIX_H
#define HT_CUDA_MATRIX_H

#include "cuda/fault.h"

enum {
    HT_CUDA_LANES = 8,
    HT_CUDA_PART = 8,                             /* columns of a lane in a cycle */
    HT_CUDA_CYCLE = HT_CUDA_LANES * HT_CUDA_PART, /* columns */
    HT_CUDA_TILE_X = 32,                          /* rows of x in a tile of ht_cuda_many_* */
    HT_CUDA_TILE_W = 64,                          /* rows of the matrix */
    HT_CUDA_FEW_ROWS_1 = 1, /* of the matrix, that eight threads of ht_cuda_few_*_1 have, and so on */
    HT_CUDA_FEW_ROWS_2 = 1,
    HT_CUDA_FEW_ROWS_4 = 2,
    HT_CUDA_FEW_ROWS_8 = 2,
    HT_CUDA_FEW_ROWS = 32,     /* of the matrix, in a block of ht_cuda_few_* */
    HT_CUDA_FEW_CHUNK = 12288, /* floats of x in a block's shared memory */
    HT_CUDA_BACK_ROWS = 32,    /* of dy and of the matrix, in a tile of ht_cuda_back */
    HT_CUDA_BACK_COLUMNS = 128,
    HT_CUDA_ENTRIES = 224, /* experts whose addresses fit in a kernel's arguments */
};

/* Layout of rows in memory. Stored rows are those of the file. The other forms keep quantised integers apart from their
 * scales, ordered so that a lane loads those of several cycles as 16 bytes (cuda/matrix_layout.h). */
typedef enum ht_cuda_form {
    HT_CUDA_STORED,
    HT_CUDA_F32, /* as stored */
    HT_CUDA_F16,
    HT_CUDA_BF16,
    HT_CUDA_F8, /* likewise */
    HT_CUDA_Q4_0,
    HT_CUDA_Q8_0,
    HT_CUDA_Q4_K,
    HT_CUDA_Q6_K,
    HT_CUDA_MLX4, /* 4-bit groups with scales of 16 bits */
    HT_CUDA_MLX8,
    HT_CUDA_FORMS
} ht_cuda_form;

#define HT_CUDA_EACH_FORM(X) X(STORED) X(F32) X(F16) X(BF16) X(F8) X(Q4_0) X(Q8_0) X(Q4_K) X(Q6_K) X(MLX4) X(MLX8)

/* X(module, kernel): those of few rows take any form, or f32; tensor cores multiply by the others but in reference precision
 * (cuda/tensor_product.h). */
#define HT_CUDA_FEW_KERNELS(X, form)                                                                                   \
    X(matrix, ht_cuda_few_##form##_1)                                                                                  \
    X(matrix, ht_cuda_few_##form##_2)                                                                                  \
    X(matrix, ht_cuda_few_##form##_4)                                                                                  \
    X(matrix, ht_cuda_few_##form##_8)
#define HT_CUDA_KERNELS_OF_MATRIX(X)                                                                                   \
    HT_CUDA_FEW_KERNELS(X, ANY)                                                                                        \
    HT_CUDA_FEW_KERNELS(X, F32)                                                                                        \
    X(matrix, ht_cuda_gather)                                                                                          \
    X(matrix, ht_cuda_many)                                                                                            \
    X(matrix, ht_cuda_many_gather)                                                                                     \
    X(matrix, ht_cuda_back)                                                                                            \
    X(matrix, ht_cuda_back_gather)                                                                                     \
    X(matrix, ht_cuda_embed)

/* Index of 8-column part g in a row. Before part `whole`, the parts of a lane's `cycles` cycles are adjacent. */
HT_CUDA_BOTH int64_t ht_place_of(int64_t g, int cycles, int64_t whole) {
    const int64_t lanes = 8, span = lanes * cycles;
    return g >= whole ? g : g / span * span + g % lanes * cycles + g / lanes % cycles;
}
/* Index of the scale of group s of 32 columns. A cycle has two groups; the even groups of a span come first. */
HT_CUDA_BOTH int64_t ht_scale_place_of(int64_t s, int cycles, int64_t whole) {
    const int64_t span = 2 * cycles;
    return s >= whole ? s : s / span * span + s % 2 * cycles + s / 2 % cycles;
}

/* Rows [first_row, first_row + n_rows) of a matrix. */
typedef struct ht_cuda_weights {
    const unsigned char *packed; /* the first of the rows */
    const float *scales;         /* of 8-bit floats, of the whole matrix, or NULL */
    int64_t first_row, n_rows, k, row_bytes;
    int64_t whole; /* columns before this one are loaded for several cycles at a time */
    int64_t scale_rows, scale_columns;
    int32_t type;                    /* ht_weight_type */
    int32_t form;                    /* ht_cuda_form */
    int32_t bits, group, scale_type; /* affine groups; else 0 */
    int32_t group_shift;             /* groups, and blocks of 8-bit floats with a scale, are of 2^group_shift columns */
} ht_cuda_weights;

/* y [n, n_rows] = x [n, k] W^T + bias */
typedef struct ht_cuda_linear_arguments {
    ht_cuda_weights w;
    const float *x, *bias; /* bias may be NULL */
    float *y;
    int64_t n, ldx, ldy;
    int32_t x_aligned; /* rows of x begin at multiples of 16 bytes */
    int32_t chunk;     /* columns of x in shared memory, a multiple of 256; ht_cuda_few_* */
} ht_cuda_linear_arguments;

/* Rows of dy and dx that one matrix is for: rows order[begin] to order[begin + n - 1]. */
typedef struct ht_cuda_expert_tile {
    int32_t expert, begin, n, unused;
} ht_cuda_expert_tile;

/* An expert's matrix; NULL if another launch computes its type. */
typedef struct ht_cuda_expert {
    const unsigned char *packed;
    const float *scales;
} ht_cuda_expert;

typedef struct ht_cuda_expert_list {
    const ht_cuda_expert *table; /* of all experts; NULL: `entry` */
    ht_cuda_expert entry[HT_CUDA_ENTRIES];
} ht_cuda_expert_list;

/* The experts of pairs: pair i is entry i % per_row of row i / per_row. */
typedef struct ht_cuda_pair_ids {
    const int32_t *id;
    int64_t stride[2];
    int32_t per_row, n_experts;
} ht_cuda_pair_ids;

/* y[pair] = x[pair / x_share] W^T, with W the matrix of ids[pair]. */
typedef struct ht_cuda_gather_arguments {
    ht_cuda_linear_arguments l; /* of any of the matrices; n: the pairs */
    ht_cuda_reporter report;
    ht_cuda_pair_ids ids;
    int32_t x_share;
    const int32_t *order;             /* ht_cuda_many_gather */
    const ht_cuda_expert_tile *tiles; /* as above, of HT_CUDA_TILE_X rows at most */
    ht_cuda_expert_list experts;
} ht_cuda_gather_arguments;

/* out [n, k] = rows of the matrix times scale */
typedef struct ht_cuda_embed_arguments {
    ht_cuda_weights w;
    ht_cuda_reporter report;
    ht_cuda_view ids;
    int64_t n;
    float *out, scale;
} ht_cuda_embed_arguments;

/* dx [n, k] = dy [n, n_rows] W, added to dx when `accumulate`: each element in the order of the rows of W. */
typedef struct ht_cuda_back_arguments {
    ht_cuda_weights w;
    const float *dy;
    float *dx;
    int64_t n, ldx;
    int64_t dy_stride[2], dy_step; /* of the axes of a pair, or of rows and 0; of neighbours in a row of dy */
    int32_t accumulate;
} ht_cuda_back_arguments;

typedef struct ht_cuda_back_gather_arguments {
    ht_cuda_back_arguments b;
    int32_t per_row; /* pairs along the second axis */
    const int32_t *order;
    const ht_cuda_expert_tile *tiles;
    ht_cuda_expert_list experts;
} ht_cuda_back_gather_arguments;

#endif
