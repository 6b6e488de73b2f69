/* Peak throughput measurement of this machine, for benchmarks and `hearth doctor`. */
#ifndef HT_CPU_MEASURE_H
#define HT_CPU_MEASURE_H

#include "base/pool.h"
#include "cpu/isa.h"
#include "device/device.h"

#include <stddef.h>

/* Measurement functions in the device table. */
extern const ht_measure_ops ht_cpu_measure;

/* Peak rates for kernel benchmarks: the best of `rounds` rounds of a few milliseconds on all threads of the leased
 * pool. A single thread is timed by its CPU time, which excludes other processes. */
double ht_measure_operations(ht_cpu_isa isa, ht_pool *pool, ht_arithmetic a, int rounds); /* operations per second */
double ht_measure_read_bytes(ht_cpu_isa isa, ht_pool *pool, const void *memory, size_t bytes,
                             int rounds); /* bytes per second, sequential */

#endif
