/* Norms, their gradients, and rotary embeddings: the arguments of the kernels of cuda/norm.cu. */
#ifndef HT_CUDA_NORM_H
#define HT_CUDA_NORM_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_NORM(X)

#endif
