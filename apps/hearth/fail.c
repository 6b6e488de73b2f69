#include "fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ht_status fail_with(ht_error *err, ht_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return err->status = status;
}

ht_status fail_memory(ht_error *err, const char *what) {
    return fail_with(err, HT_ERR_MEMORY, "out of memory for %s", what);
}

ht_status fail_system(ht_error *err, const char *path, const char *what) {
    return fail_with(err, HT_ERR_IO, "%.500s cannot be %s: %s", path, what, strerror(errno));
}
