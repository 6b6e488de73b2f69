/* Threads of a kernel call on the CPU. */
#ifndef HT_CPU_CALL_H
#define HT_CPU_CALL_H

#include "base/pool.h"
#include "device/kernel.h"

/* Leased while kernels run (cpu/device.h). */
ht_pool *ht_device_pool(const struct ht_device *d);
static inline ht_pool *ht_call_pool(const ht_call *call) { return ht_device_pool(call->device); }

#endif
