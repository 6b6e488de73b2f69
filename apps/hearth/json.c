#include "json.h"

#include "serve/escapes.h"
#include "terminal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the longest start of a text that is UTF-8 as jansson sees it: a character at a time. */
static size_t valid_start(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        unsigned char lead = (unsigned char)text[at];
        size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        ht_json *one = length <= n - at ? ht_json_stringn(text + at, length) : NULL;
        if (!one) break;
        ht_json_decref(one);
        at += length;
    }
    return at;
}

bool text_is_utf8(const char *text) { return valid_start(text, strlen(text)) == strlen(text); }

/* The text with U+FFFD for what is no UTF-8, and for NUL if asked to; its length in *used. */
static char *replace_bytes(const char *text, size_t n, bool replaces_nul, size_t *used) {
    static const char replacement[] = "\xEF\xBF\xBD";
    const char *end = text + n;
    char *clean = malloc(n * 3 + 1);
    *used = 0;
    while (clean && text < end) {
        const char *nul = replaces_nul ? memchr(text, '\0', (size_t)(end - text)) : NULL, *stop = nul ? nul : end;
        while (text < stop) {
            const size_t good = valid_start(text, (size_t)(stop - text));
            memcpy(clean + *used, text, good);
            *used += good;
            text += good;
            if (text == stop) break;
            memcpy(clean + *used, replacement, 3);
            *used += 3;
            text++;
        }
        if (!nul) break;
        memcpy(clean + *used, replacement, 3);
        *used += 3;
        text++;
    }
    if (clean) clean[*used] = '\0';
    return clean;
}

char *text_to_utf8(const char *text, size_t n) {
    size_t used;
    return replace_bytes(text, n, true, &used);
}

ht_json *json_text(const char *text, size_t n) {
    size_t used;
    ht_json *value = ht_json_stringn(n ? text : "", n);
    char *clean = value ? NULL : replace_bytes(text, n, false, &used);
    if (clean) value = ht_json_stringn(clean, used);
    free(clean);
    return value;
}

ht_json *json_path(const char *path) { return json_text(path, strlen(path)); }

ht_json *json_ids(const int32_t *ids, size_t n) {
    ht_json *array = ht_json_new_array();
    for (size_t i = 0; array && i < n; i++) {
        if (ht_json_array_append_new(array, ht_json_integer(ids[i])) == 0) continue;
        ht_json_decref(array);
        array = NULL;
    }
    return array;
}

/* ---- lines ----
 *
 * A number whose spelling is kept is a string to jansson, with a mark in front. */

#define MARK "\\u001Anumber " /* as jansson writes it; no text begins so */

/* Behind the string that begins at the quote. */
static const char *after_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\') at++;
    return at < end ? at + 1 : end;
}

/* Bytes of the number of JSON at the beginning of the text, or 0. */
static size_t number_at(const char *text, size_t n) {
    size_t at = n && text[0] == '-', digits = 0;
    const size_t first = at;
    while (at < n && isdigit((unsigned char)text[at])) at++;
    if (at == first || (text[first] == '0' && at > first + 1)) return 0;
    if (at < n && text[at] == '.') {
        for (at++; at < n && isdigit((unsigned char)text[at]); digits++) at++;
        if (!digits) return 0;
    }
    if (at == n || (text[at] != 'e' && text[at] != 'E')) return at;
    at++;
    if (at < n && (text[at] == '+' || text[at] == '-')) at++;
    for (digits = 0; at < n && isdigit((unsigned char)text[at]); digits++) at++;
    return digits ? at : 0;
}

/* Bytes that are enough for a text with a mark at every number. */
static size_t marked_bytes(const char *text, size_t n) {
    size_t numbers = 0;
    for (size_t i = 0; i < n; i++)
        numbers += isdigit((unsigned char)text[i]) && (i == 0 || !isdigit((unsigned char)text[i - 1]));
    return n + numbers * sizeof "\"\"" MARK + 1;
}

/* Copies an object, with marks at the numbers of its field "id"; returns the bytes written. */
static size_t mark_numbers(const char *text, size_t n, char *out) {
    static const char field[] = "\"id\"";
    const char *end = text + n, *next;
    size_t used = 0;
    int depth = 0;
    bool in_id = false;
    for (const char *at = text; at < end; at = next) {
        const size_t number = in_id ? number_at(at, (size_t)(end - at)) : 0;
        next = *at == '"' ? after_string(at, end) : at + (number ? number : 1);
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (depth == 1 && *at == ',') in_id = false;
        if (depth == 1 && (size_t)(next - at) == strlen(field) && !memcmp(at, field, strlen(field))) {
            const char *colon = next;
            while (colon < end && (*colon == ' ' || *colon == '\t')) colon++;
            in_id = colon < end && *colon == ':';
        }
        if (number) used += (size_t)sprintf(out + used, "\"" MARK);
        memcpy(out + used, at, (size_t)(next - at));
        used += (size_t)(next - at);
        if (number) out[used++] = '"';
    }
    return used;
}

ht_json *json_line_read(const char *line, size_t n, size_t flags, json_error_t *why) {
    serve_replaced replaced;
    char *owned;
    const char *clean = serve_escapes_replace(line, n, &owned, &replaced);
    char *marked = clean ? malloc(marked_bytes(clean, n)) : NULL;
    ht_json *value = NULL;
    *why = (json_error_t){.text = "out of memory"};
    if (marked && replaced.nul)
        snprintf(why->text, sizeof why->text, "a text has a NUL character");
    else if (marked)
        value = json_loadb(marked, mark_numbers(clean, n, marked), flags, why);
    if (value && !ht_json_is_object(value)) {
        ht_json_decref(value);
        value = NULL;
        snprintf(why->text, sizeof why->text, "expected {...}");
    }
    free(marked);
    free(owned);
    return value;
}

char *json_line_write(const ht_json *value) {
    static const char mark[] = "\"" MARK;
    char *text = value ? ht_json_dump(value, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9)) : NULL, *to = text;
    if (!text) return NULL;
    const char *end = text + strlen(text), *next;
    for (const char *at = text; at < end; at = next) {
        next = *at == '"' ? after_string(at, end) : at + 1;
        const char *number = at + strlen(mark);
        const bool kept = next - at > (ptrdiff_t)sizeof mark && !memcmp(at, mark, strlen(mark)) &&
                          number_at(number, (size_t)(next - number)) == (size_t)(next - 1 - number);
        const char *from = kept ? number : at;
        const size_t bytes = (size_t)(next - from) - kept;
        memmove(to, from, bytes);
        to += bytes;
    }
    *to = '\0';
    return text;
}

bool json_output(ht_json *value) {
    char *text = json_line_write(value);
    ht_json_decref(value);
    if (!text) {
        fprintf(stderr, "hearth: out of memory for the JSON result\n");
        return false;
    }
    output_write(text, strlen(text));
    output_write("\n", 1);
    free(text);
    return true;
}
