/* Matrix products of arrays, dense and quantised: the arguments of the kernels of cuda/product.cu. */
#ifndef HT_CUDA_PRODUCT_H
#define HT_CUDA_PRODUCT_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_PRODUCT(X)                                                                                  \
    X(product, ht_cuda_multiply_tiles)                                                                                 \
    X(product, ht_cuda_multiply_few)                                                                                   \
    X(product, ht_cuda_multiply_one)                                                                                   \
    X(product, ht_cuda_multiply_f64)                                                                                   \
    X(product, ht_cuda_multiply_int)                                                                                   \
    X(product, ht_cuda_multiply_quantized_tiles)                                                                       \
    X(product, ht_cuda_multiply_quantized_few)                                                                         \
    X(product, ht_cuda_multiply_quantized_one)                                                                         \
    X(product, ht_cuda_multiply_quantized_f64)                                                                         \
    X(product, ht_cuda_add_chunks)                                                                                     \
    X(product, ht_cuda_check_matrices)                                                                                 \
    X(product, ht_cuda_quantize)                                                                                       \
    X(product, ht_cuda_dequantize)

/* Elements along k of a chunk. Chunks are summed separately, then added in order, so the order of a sum is the same if
 * several blocks share it. */
enum { HT_CUDA_CHUNK = 256 };

/* Rows and columns of the result that a block computes. */
enum { HT_CUDA_TILE = 64, HT_CUDA_PRODUCT_FEW = 8, HT_CUDA_WIDE_TILE = 32 /* of f64 and integers */ };
enum { HT_CUDA_TILE_THREADS = 128, HT_CUDA_FEW_THREADS = 64 };

/* Operands of a product: the left one, and the right one or its numbers, scales and biases. */
enum { HT_CUDA_LEFT, HT_CUDA_RIGHT, HT_CUDA_SCALES, HT_CUDA_BIASES, HT_CUDA_OPERANDS };

/* ht_quantization. */
typedef struct ht_cuda_quantization {
    int32_t mode, group, bits; /* mode: ht_quantization_mode */
} ht_cuda_quantization;

/* out[entry, i, j] = sum over l of left[i, l] * right[l, j]. */
typedef struct ht_cuda_product_arguments {
    int64_t m, n, k, entries;
    ht_cuda_view operand[HT_CUDA_OPERANDS];
    int64_t left_row, left_k, right_k, right_column; /* strides */
    ht_cuda_quantization how;
    bool transpose; /* the right operand's numbers are [n, k], else [k, n] */
    /* Matrices of an entry: by index, or without indices by position in the leading axes. */
    ht_cuda_view index[2];
    int32_t n_lead;
    int64_t lead[HT_CUDA_DIMS], lead_stride[HT_CUDA_OPERANDS][HT_CUDA_DIMS];
    void *out;
    ht_dtype dtype; /* of out */
    int64_t out_row, out_column;
    int64_t chunks_each; /* that a block sums */
    void *partial;       /* [chunks, entries, m, n]: sums of chunks, where several blocks have those of one result */
} ht_cuda_product_arguments;

/* out[i] = sum over c of partial[c, i], in this order */
typedef struct ht_cuda_add_chunks_arguments {
    const void *partial;
    int64_t chunks, n;
    void *out;
    ht_dtype dtype;
} ht_cuda_add_chunks_arguments;

/* Checks that left and right matrix indices are below limit[0] and limit[1]. */
typedef struct ht_cuda_check_matrices_arguments {
    ht_cuda_view index[2];
    int64_t n, limit[2];
    ht_cuda_reporter reporter;
} ht_cuda_check_matrices_arguments;

typedef struct ht_cuda_quantize_arguments {
    ht_cuda_view w;
    void *out;
    ht_dtype dtype; /* of out */
    ht_cuda_quantization how;
    int32_t part;   /* 0 packed elements, 1 scales, 2 biases */
    int64_t groups; /* in all */
} ht_cuda_quantize_arguments;

typedef struct ht_cuda_dequantize_arguments {
    int64_t n; /* elements */
    const void *numbers, *scales, *biases;
    ht_dtype scale_dtype;
    ht_cuda_quantization how;
    void *out;
    ht_dtype dtype; /* of out */
} ht_cuda_dequantize_arguments;

#endif
