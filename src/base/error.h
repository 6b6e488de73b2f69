/* Error records: formats failure messages into `ht_error`. */
#ifndef HT_BASE_ERROR_H
#define HT_BASE_ERROR_H

#include <hearth/status.h>

#include <stddef.h>

/* Stores `status` and the message in `err`, which may be NULL. Returns `status`, for `return ht_fail(err, ...)`. */
ht_status ht_fail(ht_error *err, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* Prepends "prefix: " to the message in `err`, to say where a nested failure happened. Returns err->status, or `status`
 * when err is NULL or has no status. */
ht_status ht_fail_in(ht_error *err, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* ht_fail with HT_ERR_MEMORY: `bytes` bytes for `what` could not be allocated. */
ht_status ht_fail_memory(ht_error *err, size_t bytes, const char *what);

#endif
