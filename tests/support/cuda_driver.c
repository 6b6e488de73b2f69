#include "support/cuda_driver.h"

#include "support/gpu.h"
#include "support/test.h"

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

void cuda_driver_fail_each_call(cuda_attempt_fn *attempt, const void *how, bool stays, bool (*takes)(long k)) {
    const cuda_driver *driver = cuda_driver_on_host();
    ht_error err = {0};
    if (!driver->fail_call) skip();
    must(attempt(how, &err), &err);
    driver->fail_call(0, 0, 0);
    must(attempt(how, &err), &err);
    const long n = driver->calls();
    assert_true(n > 20);
    for (long k = 1; k <= n; k++) {
        if (!takes(k)) continue;
        driver->fail_call(k, k % 2 ? CUDA_RESULT : CUDA_OUT_OF_MEMORY, stays);
        err = (ht_error){0};
        const ht_status status = attempt(how, &err);
        driver->fail_call(0, 0, 0);
        if (status) assert_true(err.status == status && err.message[0]);
        if (driver->bytes()) fail_msg("%zu bytes are left behind call %ld", driver->bytes(), k);
        if (status) must(attempt(how, &err), &err);
    }
}
