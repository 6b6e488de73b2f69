#include "array/highest_logits.h"

#include "base/checked.h"

/* With more rows, a search on the device takes longer than the transfer and a search on the host. */
enum { MOST_ROWS = 64, ENTRY_BYTES = sizeof(float) + sizeof(int32_t) };

ht_status ht_highest_logits_new(ht_device *d, int64_t max_out, int64_t n, ht_highest_logits *h, ht_error *err) {
    *h = (ht_highest_logits){.device = d, .n = n, .most_rows = ht_min_i64(max_out, MOST_ROWS)};
    if (!d->top || max_out < 1) return HT_OK;
    const int32_t most = d->top->most(n);
    if (!most) return HT_OK;
    h->host_bytes = (size_t)h->most_rows * (size_t)most * ENTRY_BYTES;
    h->memory_bytes = h->host_bytes + 64 + d->top->scratch(h->most_rows, n, most);
    ht_status status = ht_memory_alloc(d->memory, h->memory_bytes, "the highest logits", &h->memory, err);
    if (!status) status = ht_memory_host_alloc(d->memory, h->host_bytes, "the highest logits", &h->host, err);
    if (!status) h->most = most;
    return status;
}

void ht_highest_logits_free(ht_highest_logits *h) {
    if (!h->device) return;
    ht_memory_free(h->device->memory, h->memory, h->memory_bytes);
    ht_memory_host_free(h->device->memory, h->host, h->host_bytes);
}

ht_status ht_highest_logits_submit(ht_highest_logits *h, const float *x, int64_t n_rows, int32_t k, ht_error *err) {
    ht_device *d = h->device;
    const size_t n = (size_t)n_rows * (size_t)k;
    float *value = h->memory;
    char *scratch = (char *)h->memory + (n * ENTRY_BYTES + 63) / 64 * 64;
    const ht_top_search search = {x, n_rows, h->n, k, scratch, value, (int32_t *)(value + n)};
    ht_status status = d->top->run(d, &search, err);
    if (!status) status = ht_memory_fetch(d->memory, h->host, h->memory, n * ENTRY_BYTES, err);
    return status;
}

void ht_highest_logits_take(ht_highest_logits *h, int64_t n_rows, int32_t k) {
    const float *value = h->host;
    const int32_t *id = (const int32_t *)(const void *)(value + n_rows * k);
    h->found = (ht_logits_rows){value, id, n_rows, k};
    for (int64_t r = 0; r < n_rows; r++)
        if (id[r * k] < 0) h->found = (ht_logits_rows){0}; /* the sampler reads the whole row and reports the error */
}
