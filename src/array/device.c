/* Device opening and reference counts; the devices themselves are in their own folders. */
#include "device/device.h"

#include "base/error.h"
#include "base/options.h"
#include "cpu/cpu.h"

#include <hearth/array.h>

#include <string.h>

static const ht_device_options defaults = {.size = sizeof defaults};

void ht_device_options_init(ht_device_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

ht_status ht_device_open(const char *name, const ht_device_options *options, ht_device **out, ht_error *err) {
    *out = NULL;
    ht_device_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_device_options", err);
    if (status) return status;
    if (strcmp(name, "cpu") == 0) return ht_cpu_device_new(o.n_threads, o.instruction_set, out, err);
    return ht_fail(err, HT_ERR_UNSUPPORTED, "device \"%s\" is unknown; this build has: cpu", name);
}

ht_device *ht_device_retain(ht_device *d) {
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

void ht_device_free(ht_device *d) {
    if (d && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) d->destroy(d);
}

const char *ht_device_name(const ht_device *d) { return d->name; }
const char *ht_device_instruction_set(const ht_device *d) { return d->instruction_set; }
int ht_device_threads(const ht_device *d) { return ht_pool_threads(d->pool); }
