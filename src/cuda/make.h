/* Copies and fills: the arguments of the kernels of cuda/make.cu. */
#ifndef HT_CUDA_MAKE_H
#define HT_CUDA_MAKE_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_MAKE(X)                                                                                     \
    X(make, ht_cuda_copy)                                                                                              \
    X(make, ht_cuda_sequence)

/* to[i] = from[i] for all places of a shape; elements are of `bytes` bytes. */
typedef struct ht_cuda_copy_arguments {
    int64_t n;
    ht_cuda_view to, from; /* of one shape */
    int32_t bytes;
} ht_cuda_copy_arguments;

/* out[i] = value + i step */
typedef struct ht_cuda_sequence_arguments {
    int64_t n;
    void *out;
    int32_t dtype;
    double value, step;
} ht_cuda_sequence_arguments;

#endif
