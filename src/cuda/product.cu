/* Matrix products of arrays, dense and quantised. */
#include "cuda/kernel.cuh"
#include "cuda/product.h"
