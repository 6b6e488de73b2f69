/* The vector kernels of one instruction set, put over the plain ones. */
#include "cpu/device.h"
#include "cpu/vector/simd.h"

void HT_ISA_NAME(ht_vector_kernels)(ht_kernel kernels[HT_OP_COUNT]) { (void)kernels; }
