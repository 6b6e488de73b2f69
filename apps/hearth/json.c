#include "json.h"

#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the longest start of a text that is UTF-8 as jansson sees it: a character at a time. */
static size_t valid_start(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        unsigned char lead = (unsigned char)text[at];
        size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        json_t *one = length <= n - at ? json_stringn(text + at, length) : NULL;
        if (!one) break;
        json_decref(one);
        at += length;
    }
    return at;
}

bool text_is_utf8(const char *text) { return valid_start(text, strlen(text)) == strlen(text); }

json_t *json_text(const char *text, size_t n) {
    static const char replacement[] = "\xEF\xBF\xBD";
    json_t *value = json_stringn(n ? text : "", n);
    char *clean = value ? NULL : malloc(n * 3 + 1);
    size_t used = 0;
    while (clean && n) {
        size_t good = valid_start(text, n), bad = good < n;
        memcpy(clean + used, text, good);
        used += good;
        if (bad) memcpy(clean + used, replacement, 3);
        used += bad * 3;
        text += good + bad;
        n -= good + bad;
    }
    if (clean) value = json_stringn(clean, used);
    free(clean);
    return value;
}

json_t *json_path(const char *path) { return json_text(path, strlen(path)); }

json_t *json_ids(const int32_t *ids, size_t n) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++) {
        if (json_array_append_new(array, json_integer(ids[i])) == 0) continue;
        json_decref(array);
        array = NULL;
    }
    return array;
}

bool json_output(json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    if (!text) {
        fprintf(stderr, "hearth: out of memory for the JSON result\n");
        return false;
    }
    output_write(text, strlen(text));
    output_write("\n", 1);
    free(text);
    return true;
}
