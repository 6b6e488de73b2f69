/* Mixture-of-experts products (LINEAR_GATHER). */
#ifndef HT_CPU_EXPERTS_H
#define HT_CPU_EXPERTS_H

#include "device/kernel.h"

ht_kernel_fn ht_cpu_linear_gather;
ht_scratch_fn ht_cpu_linear_gather_scratch;

#endif
