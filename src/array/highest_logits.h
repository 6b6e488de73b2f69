/* Top-k of a step's logits on the device, which avoids the transfer of whole rows to the host. Owned by an executor and
 * used by one thread at a time. */
#ifndef HT_ARRAY_HIGHEST_LOGITS_H
#define HT_ARRAY_HIGHEST_LOGITS_H

#include "device/device.h"

typedef struct ht_highest_logits {
    ht_device *device;
    int64_t n; /* logits per row */
    int64_t most_rows;
    int32_t most; /* largest k; 0: unsupported */
    void *memory; /* on the device: values [rows, k], indices [rows, k], and scratch */
    void *host;   /* host copy of values and indices */
    size_t memory_bytes, host_bytes;
    ht_logits_rows found; /* by the last step; x is NULL when whole rows are needed */
} ht_highest_logits;

/* For steps of at most max_out rows of n logits. ht_highest_logits_can is false if the device has no top-k function. */
ht_status ht_highest_logits_new(ht_device *d, int64_t max_out, int64_t n, ht_highest_logits *h, ht_error *err);
void ht_highest_logits_free(ht_highest_logits *h); /* zeros are fine */

static inline bool ht_highest_logits_can(const ht_highest_logits *h, int64_t n_rows, int32_t k) {
    return k > 0 && k <= h->most && n_rows <= h->most_rows;
}

/* `submit` starts the search for the k highest logits of n_rows rows at x, between the device's `begin` and `end`.
 * `take` fills in `found`, after ht_device_wait. */
ht_status ht_highest_logits_submit(ht_highest_logits *h, const float *x, int64_t n_rows, int32_t k, ht_error *err);
void ht_highest_logits_take(ht_highest_logits *h, int64_t n_rows, int32_t k);

#endif
