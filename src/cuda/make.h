/* Copies and fills: the arguments of the kernels of cuda/make.cu. */
#ifndef HT_CUDA_MAKE_H
#define HT_CUDA_MAKE_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_MAKE(X)                                                                                     \
    X(make, ht_cuda_copy)                                                                                              \
    X(make, ht_cuda_transpose)                                                                                         \
    X(make, ht_cuda_sequence)

/* to[i] = from[i] for all indices of a shape, in words of `bytes` bytes, at most 16. */
typedef struct ht_cuda_copy_arguments {
    int64_t rows;          /* indices of all axes but the last */
    ht_cuda_view to, from; /* of one shape of at least one axis */
    int32_t bytes;
} ht_cuda_copy_arguments;

/* The same where `from` is dense along another axis, `across`: squares are transposed in shared memory, so that reads
 * and writes are both coalesced. */
enum { HT_CUDA_SQUARE = 64, HT_CUDA_SQUARE_ROWS = 8 }; /* threads of a block: 32 x 8 */
typedef struct ht_cuda_transpose_arguments {
    int64_t matrices, squares_across, squares_along; /* along: the last axis */
    ht_cuda_view to, from;                           /* the last two axes are `across` and the last one */
    int32_t bytes;                                   /* at most 8 */
} ht_cuda_transpose_arguments;

/* out[i] = value + i step */
typedef struct ht_cuda_sequence_arguments {
    int64_t n;
    void *out;
    ht_dtype dtype;
    double value, step;
} ht_cuda_sequence_arguments;

#endif
