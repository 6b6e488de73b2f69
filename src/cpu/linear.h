/* Linear layers with packed weights: the same code for every instruction set, since the matrix brings its own kernels. */
#ifndef HT_CPU_LINEAR_H
#define HT_CPU_LINEAR_H

#include "device/kernel.h"

void ht_cpu_linear_kernels(ht_kernel kernels[HT_OP_COUNT]); /* linear, embed */

#endif
