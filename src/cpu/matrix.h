/* Matrices on the CPU: which form a weight takes and what multiplies by it. */
#ifndef HT_CPU_MATRIX_H
#define HT_CPU_MATRIX_H

#include "cpu/isa.h"
#include "device/matrix.h"

/* Never NULL for a valid type and an instruction set of this build. */
const ht_matrix_ops *ht_cpu_matrix_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision);

/* Whether it multiplies f16 and bf16 weights in words (cpu/matrix_kernels.h), not in f32. */
bool ht_cpu_multiplies_words(ht_cpu_isa isa);

#endif
