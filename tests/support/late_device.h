/* Test device "late": a second device without a GPU. It computes with the plain kernels, but its memory cannot be touched
 * outside of them, its queue runs when somebody waits for it and no earlier, its cache pages have a form of their own, and
 * host memory that gets among a kernel's operands ends the program with a message.
 *
 * With HEARTH_TEST_DEVICE=late in the environment it is what ht_device_open("cpu") opens, so that any test runs on it. */
#ifndef TESTS_SUPPORT_LATE_DEVICE_H
#define TESTS_SUPPORT_LATE_DEVICE_H

#include "device/device.h"

ht_status late_device_open(const ht_device_options *options, ht_device **out, ht_error *err);

/* Work that is queued and has not run. */
int64_t late_device_waiting(ht_device *d);
/* The k-th kernel from now on that runs fails; 0: none does. */
void late_device_fail(ht_device *d, int64_t k);
/* The k-th copy, fill or packing from now on fails, and with it the device for good; 0: none does. */
void late_device_lose(ht_device *d, int64_t k);

#endif
