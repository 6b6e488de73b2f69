/* Matrix products of arrays, dense and quantised: the arguments of the kernels of cuda/product.cu. */
#ifndef HT_CUDA_PRODUCT_H
#define HT_CUDA_PRODUCT_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_PRODUCT(X)

#endif
