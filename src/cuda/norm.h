/* Norms, their gradients, and rotary embeddings: the arguments of the kernels of cuda/norm.cu. */
#ifndef HT_CUDA_NORM_H
#define HT_CUDA_NORM_H

#include "cuda/rows.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_NORM(X)                                                                                     \
    HT_CUDA_FLOATS(X, norm, ht_cuda_rms_norm)                                                                          \
    HT_CUDA_FLOATS(X, norm, ht_cuda_layer_norm)                                                                        \
    HT_CUDA_FLOATS(X, norm, ht_cuda_norm_grad_rows)                                                                    \
    X(norm, ht_cuda_norm_grad_columns)                                                                                 \
    X(norm, ht_cuda_norm_grad_join)                                                                                    \
    HT_CUDA_FLOATS(X, norm, ht_cuda_rope)

/* All of one dtype. An absent weight or bias has no data. */
typedef struct ht_cuda_norm_arguments {
    ht_cuda_rows x, weight, bias, out;
    int64_t n_rows, n;
    float eps, weight_offset;
    int32_t team;
} ht_cuda_norm_arguments;

/* Columns of a block that sums gradients over rows, threads per column, and rows per chunk. */
enum { HT_CUDA_GRAD_COLUMNS = 32, HT_CUDA_GRAD_TEAM = 8, HT_CUDA_GRAD_CHUNK = 128 };

/* `stats`: mean and scale of every row; `part`: sums of the weight's and the bias's gradients over chunks of rows,
 * [n_chunks, 2, n]. Both are f64. */
typedef struct ht_cuda_norm_grad_arguments {
    ht_cuda_rows x, weight, grad, out; /* `out`: the gradient of x */
    void *to_weight, *to_bias;         /* NULL: not needed */
    double *stats, *part;
    int64_t n_rows, n, n_chunks;
    float eps, weight_offset;
    int32_t team;
    bool centred; /* layer norm subtracts the mean */
} ht_cuda_norm_grad_arguments;

/* Frequencies that fit in the arguments: of heads of up to 512 elements. */
enum { HT_CUDA_ROPE_PAIRS = 256 };

typedef struct ht_cuda_rope_arguments {
    ht_cuda_rows x, position; /* rows: all but heads and head_dim */
    void *out;
    const float *factors; /* NULL: none */
    int64_t factor_step;
    int64_t n_rows, n_heads, head_dim, head_stride;
    int64_t heads_at_once; /* of a thread, which have one angle */
    int32_t dims;
    bool interleaved;
    float theta, magnitude;
    double scale;
    double frequency[HT_CUDA_ROPE_PAIRS]; /* theta^(-2 i / dims) */
} ht_cuda_rope_arguments;

#endif
