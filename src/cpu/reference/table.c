/* The plain kernels: one for every operation, any dtype, any strides. They are the yardstick of the vector kernels. */
#include "cpu/device.h"
#include "cpu/linear.h"
#include "cpu/reference/reference.h"

void ht_reference_kernels(ht_kernel kernels[HT_OP_COUNT]) {
    ht_reference_make(kernels);
    ht_reference_unary(kernels);
    ht_reference_binary(kernels);
    ht_reference_reduce(kernels);
    ht_reference_matmul(kernels);
    ht_reference_take(kernels);
    ht_reference_norm(kernels);
    ht_reference_rope(kernels);
    ht_reference_attend(kernels);
    ht_cpu_linear_kernels(kernels);
}
