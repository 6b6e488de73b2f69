#include "support/cuda_driver.h"

#include <dlfcn.h>
#include <string.h>

static void *library(void) { return dlopen("libcuda.so.1", RTLD_NOW); }

bool cuda_driver_exists(void) { return library() != NULL; }

static void find(const char *name, void *out) {
    void *found = library() ? dlsym(library(), name) : NULL;
    memcpy(out, &found, sizeof found);
}

const cuda_driver *cuda_driver_on_host(void) {
    static cuda_driver driver;
    if (driver.fail_call) return &driver;
    find("on_host_calls", &driver.calls);
    find("on_host_bytes", &driver.bytes);
    find("on_host_limit", &driver.limit);
    find("on_host_fail", &driver.fail_call);
    return &driver;
}
