/* Memory check: a model's memory against what the machine has available. */
#ifndef HT_MODELS_MEMORY_CHECK_H
#define HT_MODELS_MEMORY_CHECK_H

#include "checkpoint/kv_size.h"

#include <stddef.h>

/* Available bytes: the kernel's MemAvailable, or less under a control group limit. False when unknown. */
bool ht_memory_check_free(size_t *bytes);
/* ht_memory_check_free below a given root directory instead of "/", for tests. */
bool ht_memory_check_free_under(const char *root, size_t *bytes);

/* Available and used memory of a device. */
bool ht_memory_check_free_on(ht_device *d, size_t *bytes);
size_t ht_memory_check_used_on(ht_device *d);
/* Default size of the KV cache: half of the available memory, or 1 GiB if that is unknown. */
size_t ht_memory_check_kv_bytes(ht_device *d);

typedef struct ht_memory_check_wanted {
    const char *name;  /* model name, for the message */
    const char *where; /* device name, for the message; NULL: the machine's memory */
    size_t weight_bytes;
    size_t arena_bytes; /* of the largest step; 0: not counted */
    const ht_layer_kv *kv;
    int32_t n_cache_layers;
    ht_dtype kv_dtype;
    ht_kv_page_bytes_fn *page_bytes; /* of the device */
    int64_t positions;               /* KV cache size to check; 0: weights only */
    int64_t context;                 /* maximum positions of a session */
    int32_t step_rows;               /* of a prefill step; the rings of sliding layers must hold them */
} ht_memory_check_wanted;

/* HT_ERR_LIMIT if available memory does not suffice; the message gives both numbers and an option that would fit. */
ht_status ht_memory_check(const ht_memory_check_wanted *wanted, size_t free_bytes, ht_error *err);

/* HT_ERR_MEMORY if a step of `bytes` for a text of n tokens does not fit; `where` as above. */
ht_status ht_memory_check_step(const char *where, int64_t n_tokens, size_t bytes, size_t free_bytes, ht_error *err);

/* Formats bytes as "1.2 GB"; returns `out`. */
const char *ht_memory_check_text(size_t bytes, char out[32]);

#endif
