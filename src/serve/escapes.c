/* Escapes of NUL and of halves of characters, replaced in one pass. What a tool has read from a file may hold NUL, a result that was cut in
 * UTF-16 ends with half a character, and an agent's history has either for good: it is no reason to refuse the history. */
#include "serve/escapes.h"

#include "http/text.h"

#include <stdlib.h>
#include <string.h>

enum { ESCAPE = 6 }; /* bytes of \uXXXX */

/* The UTF-16 unit of an escape at the beginning of the bytes; -1: there is none. */
static int unit_of(const char *at, const char *end) {
    int unit = 0;
    if (end - at < ESCAPE || at[0] != '\\' || at[1] != 'u') return -1;
    for (int i = 2; i < ESCAPE; i++) {
        const int digit = http_hex(at[i]);
        if (digit < 0) return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static bool is_high(int unit) { return unit >= 0xD800 && unit < 0xDC00; }
static bool is_low(int unit) { return unit >= 0xDC00 && unit < 0xE000; }

/* Bytes of the escape at a backslash: both halves of a character are one. *replace: no text holds it. */
static ptrdiff_t escape_bytes(const char *at, const char *end, bool *replace, serve_replaced *replaced) {
    const int unit = unit_of(at, end);
    *replace = false;
    if (unit < 0) return end - at < 2 ? end - at : 2; /* a backslash that is escaped begins no escape */
    if (is_high(unit) && is_low(unit_of(at + ESCAPE, end))) return 2 * (ptrdiff_t)ESCAPE;
    if (unit == 0) *replace = replaced->nul = true;
    if (is_high(unit) || is_low(unit)) *replace = replaced->surrogate = true;
    return ESCAPE;
}

const char *serve_escapes_replace(const char *json, size_t n, char **owned, serve_replaced *replaced) {
    static const char replacement[] = "\\uFFFD";
    const char *at = n ? memchr(json, '\\', n) : NULL, *end = json + n;
    *owned = NULL;
    *replaced = (serve_replaced){0};
    while (at) {
        bool replace;
        const ptrdiff_t bytes = escape_bytes(at, end, &replace, replaced);
        if (replace && !*owned) {
            if (!(*owned = malloc(n))) return NULL;
            memcpy(*owned, json, n);
        }
        if (replace) memcpy(*owned + (at - json), replacement, ESCAPE);
        at += bytes;
        at = at < end ? memchr(at, '\\', (size_t)(end - at)) : NULL;
    }
    return *owned ? *owned : json;
}
