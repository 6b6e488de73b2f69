#include "support/gpu.h"

#include "cpu/cpu.h"
#include "support/test.h"

#include <dlfcn.h>

ht_device *beside_device[DEVICES];
ht_stream *beside_stream[DEVICES];

int beside_open(void **state) {
    (void)state;
    ht_error err = {0};
    if (ht_cpu_device_new(1, "reference", &beside_device[CPU], &err)) fail_msg("%s", err.message);
    const bool has_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
    if (has_driver && ht_device_open("cuda", NULL, &beside_device[GPU], &err)) fail_msg("%s", err.message);
    for (int i = 0; i < DEVICES; i++)
        if (beside_device[i] && ht_stream_new(beside_device[i], &beside_stream[i], &err)) fail_msg("%s", err.message);
    return 0;
}

int beside_close(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        ht_stream_free(beside_stream[i]);
        ht_device_free(beside_device[i]);
    }
    return 0;
}
