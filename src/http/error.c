#include "http/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ht_status http_fail(ht_error *err, ht_status status, const char *format, ...) {
    if (!err) return status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return err->status = status;
}

ht_status http_fail_memory(ht_error *err, const char *what) {
    return http_fail(err, HT_ERR_MEMORY, "out of memory for %s", what);
}

ht_status http_fail_system(ht_error *err, int error, const char *name, const char *what) {
    return http_fail(err, HT_ERR_IO, "%.500s cannot be %s: %s", name, what, strerror(error));
}
