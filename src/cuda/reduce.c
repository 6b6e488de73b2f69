/* Reductions, scans and softmax. */
#include "cuda/reduce.h"

#include "cuda/cuda.h"

void ht_cuda_reduce_kernels(ht_kernel *kernels) { (void)kernels; }
