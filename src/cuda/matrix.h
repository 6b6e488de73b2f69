/* Packed weights, and the products with them: the arguments of the kernels of cuda/matrix.cu. */
#ifndef HT_CUDA_MATRIX_H
#define HT_CUDA_MATRIX_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_MATRIX(X)

#endif
