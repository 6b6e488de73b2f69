/* Packed weights, and the products with them. */
#include "cuda/kernel.cuh"
#include "cuda/matrix.h"
