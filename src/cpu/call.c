/* Apart from the device, whose table names every kernel: a kernel needs its threads alone. */
#include "cpu/call.h"

#include "cpu/device.h"

ht_pool *ht_device_pool(const ht_device *d) { return ((const ht_cpu_device *)d)->pool; }
