/* What this machine can do at best, measured: the yardsticks of benchmarks and of `hearth doctor`. */
#ifndef HT_CPU_MEASURE_H
#define HT_CPU_MEASURE_H

#include "base/pool.h"
#include "cpu/isa.h"

#include <stddef.h>

/* Each runs on all threads of the (leased) pool for some milliseconds and gives the best of `rounds`. */
double ht_measure_int8_ops(ht_cpu_isa isa, ht_pool *pool,
                           int rounds); /* multiplications and additions per second, operands in registers */
double ht_measure_f32_ops(ht_cpu_isa isa, ht_pool *pool, int rounds);
double ht_measure_read_bytes(ht_cpu_isa isa, ht_pool *pool, const void *memory, size_t bytes,
                             int rounds); /* per second, front to back */

#endif
