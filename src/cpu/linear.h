/* Linear layers with packed weights. The code is the same for every instruction set: the matrix selects the kernels. */
#ifndef HT_CPU_LINEAR_H
#define HT_CPU_LINEAR_H

#include "device/kernel.h"

void ht_cpu_linear_kernels(ht_kernel kernels[HT_OP_COUNT]); /* linear, embed */

#endif
