/* Attention over arrays and over cache pages, and adapters: the arguments of the kernels of cuda/attention.cu. */
#ifndef HT_CUDA_ATTENTION_H
#define HT_CUDA_ATTENTION_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_ATTENTION(X)

#endif
