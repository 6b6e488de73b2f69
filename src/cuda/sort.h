/* Sorting, the largest elements, and random numbers: the arguments of the kernels of cuda/sort.cu. */
#ifndef HT_CUDA_SORT_H
#define HT_CUDA_SORT_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_SORT(X)

#endif
