/* Indexing: slices by indices, and what puts them together: the arguments of the kernels of cuda/index.cu. */
#ifndef HT_CUDA_INDEX_H
#define HT_CUDA_INDEX_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_INDEX(X)

#endif
