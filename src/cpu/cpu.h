/* CPU device constructor. */
#ifndef HT_CPU_CPU_H
#define HT_CPU_CPU_H

#include "device/device.h"

/* n_threads counts the calling thread; 0: one per available core. `isa` is a name of cpu/isa.h; NULL: the best
 * available. */
ht_status ht_cpu_device_new(int n_threads, const char *isa, ht_device **out, ht_error *err);
void ht_cpu_device_free(ht_device *device); /* NULL is allowed; users of the device call ht_device_free instead */

#endif
