/* Attention over arrays and over cache pages, and adapters. */
#include "cuda/attention.h"
#include "cuda/kernel.cuh"
