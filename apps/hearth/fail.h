/* Errors of the command's own, in the form of the library's: a status and a sentence. */
#ifndef HEARTH_APP_FAIL_H
#define HEARTH_APP_FAIL_H

#include <hearth/status.h>

/* Fills in *err and returns the status. */
ht_status fail_with(ht_error *err, ht_status status, const char *format, ...) HT_PRINTF(3, 4);
/* Memory ran out for `what`. */
ht_status fail_memory(ht_error *err, const char *what);
/* A call of the system failed, as errno says: "PATH cannot be WHAT: reason". */
ht_status fail_system(ht_error *err, const char *path, const char *what);

#endif
