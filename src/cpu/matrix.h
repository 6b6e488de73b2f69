/* Matrix operations of the CPU: the packed form of a weight type, and its products. */
#ifndef HT_CPU_MATRIX_H
#define HT_CPU_MATRIX_H

#include "cpu/isa.h"
#include "device/matrix.h"

/* Never NULL for a valid type and an instruction set of this build. */
const ht_matrix_ops *ht_cpu_matrix_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision);

/* Operations of an output head. Large Q8_0 heads use coarse panels, which find the highest outputs faster. */
const ht_matrix_ops *ht_cpu_head_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k);
/* Coarse-head operations of Q8_0 for any size. */
const ht_matrix_ops *ht_cpu_coarse_head_ops(ht_cpu_isa isa, ht_precision precision);

/* Whether it multiplies f16 and bf16 weights in words (cpu/matrix_kernels.h), not in f32. */
bool ht_cpu_multiplies_words(ht_cpu_isa isa);

#endif
