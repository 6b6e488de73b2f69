/* Peak measurement of this machine, for benchmarks and `hearth doctor`. */
#ifndef HT_CPU_MEASURE_H
#define HT_CPU_MEASURE_H

#include "base/pool.h"
#include "cpu/isa.h"
#include "device/measure.h"

#include <stddef.h>

/* The CPU's entry in the device table. */
extern const ht_measure_ops ht_cpu_measure;

/* For benchmarks of single kernels: the best of `rounds` of some milliseconds each on all threads of the leased pool; with
 * one thread by its own time on the processor, so that what others run does not count. */
double ht_measure_int8_ops(ht_cpu_isa isa, ht_pool *pool, int rounds);  /* multiplications and additions per second */
double ht_measure_int16_ops(ht_cpu_isa isa, ht_pool *pool, int rounds); /* where ht_cpu_multiplies_words(isa) */
double ht_measure_f32_ops(ht_cpu_isa isa, ht_pool *pool, int rounds);
double ht_measure_read_bytes(ht_cpu_isa isa, ht_pool *pool, const void *memory, size_t bytes,
                             int rounds); /* per second, front to back */

#endif
