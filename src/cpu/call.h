/* Threads of a kernel call on the CPU, and plain kernels that go row by row. */
#ifndef HT_CPU_CALL_H
#define HT_CPU_CALL_H

#include "base/pool.h"
#include "device/kernel.h"

/* Leased while kernels run (cpu/device.h). */
ht_pool *ht_device_pool(const struct ht_device *d);
static inline ht_pool *ht_call_pool(const ht_call *call) { return ht_device_pool(call->device); }

/* Runs `fn` with `job` on the threads of the call over the rows of x, an operand that is cut into rows of n elements. */
void ht_run_rows(const ht_call *call, const ht_view *x, int64_t n, ht_block_fn *fn, const void *job);

#endif
