/* Matrices on the CPU: which form a weight takes and what multiplies by it. */
#ifndef HT_CPU_MATRIX_H
#define HT_CPU_MATRIX_H

#include "cpu/isa.h"
#include "device/matrix.h"

/* Never NULL for a valid type and an instruction set of this build. */
const ht_matrix_ops *ht_cpu_matrix_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision);

#endif
