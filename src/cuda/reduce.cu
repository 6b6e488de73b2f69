/* Reductions, scans and softmax. */
#include "cuda/kernel.cuh"
#include "cuda/reduce.h"
