/* Memory check: the memory that a model may take on this machine, and the memory that it wants. */
#ifndef HT_MODELS_MEMORY_CHECK_H
#define HT_MODELS_MEMORY_CHECK_H

#include "models/model.h"

#include <stddef.h>

/* Bytes that can be allocated without pushing others out: what the kernel calls available, or less when a control group
 * limits the process. False when the system does not say. */
bool ht_memory_check_free(size_t *bytes);
/* The same read from a given root instead of "/", for tests. */
bool ht_memory_check_free_under(const char *root, size_t *bytes);

typedef struct ht_memory_check_wanted {
    const char *name; /* of the model, for the message */
    size_t weight_bytes;
    const ht_kv_shape *kv;
    int32_t n_kv_layers;
    ht_dtype kv_dtype;
    int64_t positions; /* 0: weights alone */
    int64_t context;   /* positions a session may use */
} ht_memory_check_wanted;

/* HT_ERR_LIMIT with the numbers, and the option that would fit, when more is wanted than is free. */
ht_status ht_memory_check(const ht_memory_check_wanted *wanted, size_t free_bytes, ht_error *err);

/* "1.2 GB" into a buffer of 32. */
const char *ht_memory_check_text(size_t bytes, char out[32]);

#endif
