#include "fail.h"

#include <errno.h>
#include <string.h>

ht_status fail_memory(ht_error *err, const char *what) {
    return ht_fail(err, HT_ERR_MEMORY, "out of memory for %s", what);
}

ht_status fail_system(ht_error *err, const char *path, const char *what) {
    return ht_fail(err, HT_ERR_IO, "%s cannot be %s: %s", path, what, strerror(errno));
}
