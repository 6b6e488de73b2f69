/* Lifetime and properties of a device, and of views of its memory. */
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

bool ht_view_has_rows(const ht_view *x, int64_t *ld) {
    const int last = x->n_dims - 1;
    if (x->dtype != HT_F32 || (x->shape[last] > 1 && x->stride[last] != 1)) return false;
    *ld = x->shape[last];
    bool has_axis = false;
    int64_t expected = 0;
    for (int d = last - 1; d >= 0; d--) {
        if (x->shape[d] == 1) continue;
        if (!has_axis) {
            if (x->stride[d] < 0) return false;
            *ld = x->stride[d];
            has_axis = true;
        } else if (x->stride[d] != expected)
            return false;
        expected = x->stride[d] * x->shape[d];
    }
    return true;
}
