/* Reductions, scans and softmax: the arguments of the kernels of cuda/reduce.cu. */
#ifndef HT_CUDA_REDUCE_H
#define HT_CUDA_REDUCE_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_REDUCE(X)

#endif
