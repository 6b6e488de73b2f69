/* Vector kernel table of one instruction set, overriding the plain one. */
#include "cpu/device.h"
#include "cpu/vector/vector.h"

void HT_ISA_NAME(ht_vector_kernels)(ht_kernel kernels[HT_OP_COUNT]) {
#define SET(name) HT_ISA_NAME(ht_vector_##name)(kernels);
    HT_VECTOR_FAMILIES(SET)
}

void HT_ISA_NAME(ht_vector_rows)(ht_rows_fn *rows[HT_OP_COUNT]) {
    HT_ISA_NAME(ht_vector_elementwise_rows)(rows);
    HT_ISA_NAME(ht_vector_norm_rows)(rows);
}
