/* Sorting, the largest elements, and random numbers. */
#include "cuda/kernel.cuh"
#include "cuda/sort.h"
