/* Indexing: slices by indices, and what puts them together. */
#include "cuda/index.h"
#include "cuda/kernel.cuh"
