#include "device/shared_device.h"

#include "base/error.h"

#include <hearth/version.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static ht_shared_device ours(void) {
    return (ht_shared_device){.version = ht_version(),
                              .sizes = {sizeof(ht_device), sizeof(ht_memory), sizeof(ht_call)},
                              .n_ops = HT_OP_COUNT};
}

ht_status ht_shared_device_check(const ht_shared_device *how, ht_error *err) {
    const ht_shared_device own = ours();
    if (strcmp(how->version, own.version) == 0 && memcmp(how->sizes, own.sizes, sizeof own.sizes) == 0 &&
        how->n_ops == own.n_ops)
        return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "the device's library is of another build (%s) than Hearth's (%s): install both", own.version,
                   how->version);
}

/* Opens the object from this library's directory, from its ../lib, or by name from the system's search path. */
static void *open_object(const char *file) {
    static const char *const places[] = {"", "../lib/"};
    Dl_info here;
    void *handle = NULL;
    if (dladdr((void *)(uintptr_t)ht_shared_device_load, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        const int n = slash ? (int)(slash + 1 - here.dli_fname) : 0;
        for (size_t i = 0; i < sizeof places / sizeof *places && !handle && n; i++) {
            char path[4096];
            if (snprintf(path, sizeof path, "%.*s%s%s", n, here.dli_fname, places[i], file) < (int)sizeof path)
                handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
    }
    return handle ? handle : dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/* Finds a function of the object, which stays loaded, as its devices may outlive any caller. */
static ht_status find(const char *name, const char *function, void *out, ht_error *err) {
    char file[64];
    snprintf(file, sizeof file, "libhearth_%s.so", name);
    void *object = open_object(file), *found = object ? dlsym(object, function) : NULL;
    if (!object)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "device \"%s\" needs %s, which cannot be loaded: %s", name, file,
                       dlerror()); /* of the last attempt */
    if (!found) return ht_fail(err, HT_ERR_UNSUPPORTED, "%s is not Hearth's, or of another version", file);
    memcpy(out, &found, sizeof found);
    return HT_OK;
}

ht_status ht_shared_device_number(const char *name, int *n, ht_error *err) {
    ht_shared_device_count_fn *count = NULL;
    *n = 0;
    const ht_status status = find(name, HT_SHARED_DEVICE_COUNT, &count, err);
    return status ? status : count(n, err);
}

ht_status ht_shared_device_load(const char *name, int index, ht_device *host, ht_device **out, ht_error *err) {
    ht_shared_device_open_fn *open = NULL;
    *out = NULL;
    ht_status status = find(name, HT_SHARED_DEVICE_OPEN, &open, err);
    if (!status) {
        ht_shared_device how = ours();
        how.index = index;
        how.host = host;
        status = open(&how, out, err);
    }
    if (status) host->destroy(host);
    return status;
}
