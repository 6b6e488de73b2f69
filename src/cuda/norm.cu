/* Norms, their gradients, and rotary embeddings. */
#include "cuda/kernel.cuh"
#include "cuda/norm.h"
