#include "cuda/driver.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static ht_cuda_driver functions;
static ht_error failure;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define TEXT_OF(symbol) #symbol
#define NAME_OF(symbol) TEXT_OF(symbol)

static void find(void) {
    static const char library[] = "libcuda.so.1";
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* never closed: its threads may outlive the device */
    if (!handle) {
        ht_fail(&failure, HT_ERR_UNSUPPORTED, "there is no CUDA driver: %s is not found", library);
        return;
    }
    const char *missing = NULL;
#define X(member, symbol)                                                                                              \
    {                                                                                                                  \
        void *found = dlsym(handle, NAME_OF(symbol));                                                                  \
        memcpy(&functions.member, &found, sizeof found);                                                               \
        if (!found && !missing) missing = NAME_OF(symbol);                                                             \
    }
    HT_CUDA_FUNCTIONS(X)
#undef X
    if (missing) {
        ht_fail(&failure, HT_ERR_UNSUPPORTED, "the CUDA driver is too old: it has no %s", missing);
        return;
    }
    const CUresult result = functions.init(0);
    if (result == CUDA_SUCCESS) return;
    const char *text = NULL;
    (void)functions.error_text(result, &text);
    ht_fail(&failure, HT_ERR_UNSUPPORTED, "the CUDA driver cannot be used: %s", text ? text : "unknown error");
}

ht_status ht_cuda_driver_find(const ht_cuda_driver **out, ht_error *err) {
    pthread_once(&once, find);
    *out = failure.status ? NULL : &functions;
    if (failure.status && err) *err = failure;
    return failure.status;
}

ht_status ht_cuda_check(const ht_cuda_driver *driver, CUresult result, ht_error *err, const char *what) {
    if (result == CUDA_SUCCESS) return HT_OK;
    const char *text = NULL, *name = NULL;
    (void)driver->error_text(result, &text);
    (void)driver->error_name(result, &name);
    return ht_fail(err, result == CUDA_ERROR_OUT_OF_MEMORY ? HT_ERR_MEMORY : HT_ERR_INTERNAL, "%s: %s (%s)", what,
                   text ? text : "unknown error", name ? name : "no name");
}
