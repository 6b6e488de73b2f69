#include "base/error.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
    case HT_ERR_INDEX: return "index";
    case HT_ERR_BUSY: return "busy";
    }
    return "unknown";
}

/* Stores a message. A message that is too long loses its middle: its beginning names the subject, such as a path, and
 * its end the failure. */
static void set_message(ht_error *err, const char *text, size_t n) {
    static const char gap[] = "...";
    size_t capacity = sizeof err->message - 1;
    if (n <= capacity) {
        memcpy(err->message, text, n + 1);
        return;
    }
    size_t head = ht_utf8_complete_prefix(text, capacity / 3), tail = capacity - capacity / 3 - strlen(gap);
    while (((unsigned char)text[n - tail] & 0xC0) == 0x80) tail--; /* not inside a character */
    memcpy(err->message, text, head);
    memcpy(err->message + head, gap, strlen(gap));
    memcpy(err->message + head + strlen(gap), text + n - tail, tail + 1);
}

static void format_message(ht_error *err, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(err->message, sizeof err->message, fmt, args);
    if (n >= (int)sizeof err->message) {
        char *whole = malloc((size_t)n + 1);
        if (whole) {
            vsnprintf(whole, (size_t)n + 1, fmt, again);
            set_message(err, whole, (size_t)n);
        } else
            ht_utf8_trim(err->message);
        free(whole);
    }
    va_end(again);
}

ht_status ht_fail(ht_error *err, ht_status status, const char *fmt, ...) {
    if (err) {
        va_list args;
        err->status = status;
        va_start(args, fmt);
        format_message(err, fmt, args);
        va_end(args);
    }
    return status;
}

ht_status ht_fail_in(ht_error *err, ht_status status, const char *fmt, ...) {
    if (!err) return status;
    ht_error inner = *err;
    va_list args;
    va_start(args, fmt);
    format_message(err, fmt, args);
    va_end(args);
    char both[2 * sizeof err->message + 2];
    int n = snprintf(both, sizeof both, "%s: %s", err->message, inner.message);
    set_message(err, both, (size_t)n);
    if (err->status == HT_OK) err->status = status;
    return err->status;
}

ht_status ht_fail_memory(ht_error *err, size_t bytes, const char *what) {
    return ht_fail(err, HT_ERR_MEMORY, "out of memory: %zu bytes for %s could not be allocated", bytes, what);
}
