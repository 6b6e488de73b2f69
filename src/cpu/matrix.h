/* Matrix operations of the CPU: the packed form of a weight type, and its products. */
#ifndef HT_CPU_MATRIX_H
#define HT_CPU_MATRIX_H

#include "cpu/isa.h"
#include "device/matrix.h"

/* Never NULL for a valid type and an instruction set of this build. */
const ht_matrix_ops *ht_cpu_matrix_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision);

/* For an output head: the same, but for large ones of 8 bits, whose highest outputs can be had for less (cpu/coarse_head.h). */
const ht_matrix_ops *ht_cpu_head_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k);
/* Those of Q8_0, whatever the size. */
const ht_matrix_ops *ht_cpu_coarse_head_ops(ht_cpu_isa isa, ht_precision precision);

/* Whether it multiplies f16 and bf16 weights in words (cpu/matrix_kernels.h), not in f32. */
bool ht_cpu_multiplies_words(ht_cpu_isa isa);

#endif
