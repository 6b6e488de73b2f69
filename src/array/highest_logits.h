/* The highest logits of a step's rows, which the device finds where it can, so that whole rows need not come to the host. Of an executor, and
 * used by one thread at a time. */
#ifndef HT_ARRAY_HIGHEST_LOGITS_H
#define HT_ARRAY_HIGHEST_LOGITS_H

#include "device/device.h"

typedef struct ht_highest_logits {
    ht_device *device;
    int64_t n; /* of a row */
    int64_t most_rows;
    int32_t most; /* of a row, that can be found; 0: none */
    void *memory; /* the device's: values [rows, k], places [rows, k], and scratch */
    void *host;   /* the first two of them, as they are fetched */
    size_t memory_bytes, host_bytes;
    ht_logits_rows found; /* by the last step; x is NULL: nothing, whole rows are needed */
} ht_highest_logits;

/* Of steps of at most max_out rows of n logits; none can be found where the device has no function for it. */
ht_status ht_highest_logits_new(ht_device *d, int64_t max_out, int64_t n, ht_highest_logits *h, ht_error *err);
void ht_highest_logits_free(ht_highest_logits *h); /* zeros are fine */

static inline bool ht_highest_logits_can(const ht_highest_logits *h, int64_t n_rows, int32_t k) {
    return k > 0 && k <= h->most && n_rows <= h->most_rows;
}

/* Submits the search for the k highest of each of n_rows rows at x; between `begin` and `end`. Then, when the device has been waited
 * for, fills in `found`. */
ht_status ht_highest_logits_submit(ht_highest_logits *h, const float *x, int64_t n_rows, int32_t k, ht_error *err);
void ht_highest_logits_take(ht_highest_logits *h, int64_t n_rows, int32_t k);

#endif
