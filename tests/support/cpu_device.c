#include "support/cpu_device.h"

#include "support/options.h"
#include "support/test.h"

ht_device *cpu_device;

int cpu_device_open(void **state) {
    (void)state;
    ht_error err = {0};
    return ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &cpu_device, &err) != HT_OK;
}

int cpu_device_close(void **state) {
    (void)state;
    ht_device_free(cpu_device);
    return 0;
}
