#include "base/error.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ht_status_name(ht_status status) {
    switch (status) {
    case HT_OK: return "ok";
    case HT_ERR_ARGUMENT: return "argument";
    case HT_ERR_MEMORY: return "memory";
    case HT_ERR_IO: return "io";
    case HT_ERR_FORMAT: return "format";
    case HT_ERR_UNSUPPORTED: return "unsupported";
    case HT_ERR_LIMIT: return "limit";
    case HT_ERR_CANCELLED: return "cancelled";
    case HT_ERR_INTERNAL: return "internal";
    }
    return "unknown";
}

/* A message that was cut must not end inside a character. */
static void end_message(ht_error *err, int wanted) {
    if (wanted >= 0 && (size_t)wanted < sizeof err->message) return;
    err->message[sizeof err->message - 1] = '\0';
    ht_utf8_trim(err->message);
}

ht_status ht_fail(ht_error *err, ht_status status, const char *fmt, ...) {
    if (err) {
        va_list args;
        err->status = status;
        va_start(args, fmt);
        end_message(err, vsnprintf(err->message, sizeof err->message, fmt, args));
        va_end(args);
    }
    return status;
}

ht_status ht_fail_in(ht_error *err, ht_status status, const char *fmt, ...) {
    if (!err) return status;
    ht_error inner = *err;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    size_t room = sizeof err->message;
    if (n >= 0 && (size_t)n < room)
        n += snprintf(err->message + n, room - (size_t)n, ": %.*s", (int)(room - 1), inner.message);
    end_message(err, n);
    if (err->status == HT_OK) err->status = status;
    return err->status;
}

ht_status ht_fail_memory(ht_error *err, size_t bytes, const char *what) {
    return ht_fail(err, HT_ERR_MEMORY, "out of memory: %zu bytes for %s could not be allocated", bytes, what);
}
