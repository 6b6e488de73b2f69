/* Peaks of a GPU: the arguments of the kernels of cuda/measure.cu. */
#ifndef HT_CUDA_MEASURE_H
#define HT_CUDA_MEASURE_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_MEASURE(X)                                                                                  \
    X(measure, ht_cuda_measure_read)                                                                                   \
    X(measure, ht_cuda_measure_f32)                                                                                    \
    X(measure, ht_cuda_measure_f16)

/* Reads `words` of 16 bytes front to back. */
typedef struct ht_cuda_measure_read_arguments {
    const void *from;
    int64_t words;
    uint64_t *out; /* never written in practice: keeps the compiler from removing the reads */
} ht_cuda_measure_read_arguments;

/* So many multiply-adds, times `iterations`, of a thread in f32, and of a group of four warps in f16 with f32 sums. */
enum { HT_CUDA_MEASURE_F32 = 64, HT_CUDA_MEASURE_F16 = 4 * 64 * 192 * 16 };
enum { HT_CUDA_MEASURE_THREADS = 256 }; /* of a block */
typedef struct ht_cuda_measure_arguments {
    int32_t iterations;
    float *out; /* likewise */
} ht_cuda_measure_arguments;

/* Shared memory of the f16 kernel: rows of 64 columns, of A for each group of warps and of B, where 1024 bytes begin. */
enum { HT_CUDA_MEASURE_SHARED = (2 * 64 + 192) * 64 * 2 + 1024 };

#endif
