/* Error records: all failure messages are formatted here, into `ht_error`. */
#ifndef HT_BASE_ERROR_H
#define HT_BASE_ERROR_H

#include <hearth/status.h>

#include <stddef.h>

/* Records `status` and the message in `err` (which may be NULL) and returns `status`, so that callers write
 * `return ht_fail(err, HT_ERR_FORMAT, "...")`. */
ht_status ht_fail(ht_error *err, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* Puts `prefix: ` before the message already in `err`, to say where a nested failure happened. Returns err's status,
 * or `status` when err is NULL. */
ht_status ht_fail_in(ht_error *err, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* The common case of a failed allocation of `bytes` bytes for `what`. */
ht_status ht_fail_memory(ht_error *err, size_t bytes, const char *what);

#endif
