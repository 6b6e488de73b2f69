/* Errors of the server, with a status and a message like those of the library. Any thread. */
#ifndef HT_HTTP_ERROR_H
#define HT_HTTP_ERROR_H

#include <hearth/status.h>

/* Fills in *err, which may be NULL, and returns the status. */
ht_status http_fail(ht_error *err, ht_status status, const char *format, ...) HT_PRINTF(3, 4);
/* Memory ran out for `what`. */
ht_status http_fail_memory(ht_error *err, const char *what);
/* A system call failed with errno `error`: "NAME cannot be WHAT: reason". */
ht_status http_fail_system(ht_error *err, int error, const char *name, const char *what);

#endif
