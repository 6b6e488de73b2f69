/* Lifetime and properties of a device. */
#include "device/device.h"

ht_device *ht_device_retain(ht_device *d) {
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

void ht_device_free(ht_device *d) {
    if (d && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) d->destroy(d);
}

ht_status ht_device_settle(ht_device *d, ht_error *err) {
    ht_mark failed;
    if (!d->queue) return HT_OK;
    const unsigned state = d->begin(d);
    const ht_status status = ht_device_wait(d, &failed, err);
    d->end(d, state);
    return status;
}

const char *ht_device_name(const ht_device *d) { return d->name; }
const char *ht_device_instruction_set(const ht_device *d) { return d->instruction_set; }
int ht_device_threads(const ht_device *d) { return d->n_threads; }
