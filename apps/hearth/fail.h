/* Errors of the command line, in addition to the library's. */
#ifndef HEARTH_APP_FAIL_H
#define HEARTH_APP_FAIL_H

#include "base/error.h"

/* Memory ran out for `what`. */
ht_status fail_memory(ht_error *err, const char *what);
/* A system call failed, as errno says: "PATH cannot be WHAT: reason". */
ht_status fail_system(ht_error *err, const char *path, const char *what);

#endif
