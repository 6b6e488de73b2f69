/* The CPU with two threads, opened once for all tests of a program. */
#ifndef TESTS_SUPPORT_CPU_DEVICE_H
#define TESTS_SUPPORT_CPU_DEVICE_H

#include "device/device.h"

extern ht_device *cpu_device;
/* As a group's setup and teardown. */
int cpu_device_open(void **state);
int cpu_device_close(void **state);

#endif
