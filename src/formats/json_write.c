#include "formats/json_write.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- strings and numbers ---- */

static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

size_t ht_json_escape(const char *text, size_t n, bool ascii, size_t *plain, char escape[16]) {
    static const char bytes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t at = 0, length = 0;
    uint32_t c = 0;
    for (; at < n; at += length) {
        length = 1;
        if (is_plain((unsigned char)text[at])) continue;
        length = ht_utf8_decode(text + at, n - at, &c);
        const bool is_invalid = c == 0xFFFD && (length != 3 || memcmp(text + at, "\xEF\xBF\xBD", 3) != 0);
        if (c < 0x20 || c == '"' || c == '\\' || ascii || is_invalid) break;
    }
    *plain = at;
    escape[0] = '\0';
    if (at == n) return n;
    const char *found = c && c < 0x80 ? strchr(bytes, (int)c) : NULL;
    if (found)
        snprintf(escape, 16, "\\%c", letters[found - bytes]);
    else if (c == 0xFFFD && !ascii)
        strcpy(escape, "\xEF\xBF\xBD");
    else if (c < 0x10000)
        snprintf(escape, 16, "\\u%04x", (unsigned)c);
    else
        snprintf(escape, 16, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                 (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
    return at + length;
}

void ht_json_append_string(ht_text *out, const char *text, size_t n, unsigned flags) {
    ht_text_append(out, "\"", 1);
    for (size_t at = 0, plain; at < n;) {
        char escaped[16];
        const char *begin = text + at;
        at += ht_json_escape(begin, n - at, flags & HT_JSON_ASCII, &plain, escaped);
        ht_text_append(out, begin, plain);
        ht_text_append_str(out, escaped);
    }
    ht_text_append(out, "\"", 1);
}

/* Formats a number with at least `precision` significant digits, without trailing zeros, as Python does. */
static void spell(double x, int precision, char out[64]) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.*e", precision - 1, x);
    char *first = digits + (x < 0), *e = strchr(digits, 'e'), *last = e - 1;
    const int exponent = atoi(e + 1);
    while (last > first && (*last == '0' || *last == '.')) last--;
    const int decimals = last > first ? (int)(last - first) - 1 : 0;
    if (exponent >= -4 && exponent < 16) {
        snprintf(out, 64, "%.*f", decimals > exponent ? decimals - exponent : 1, x);
        return;
    }
    last[1] = '\0';
    snprintf(out, 64, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

void ht_json_format_real(double x, char out[64]) {
    /* Fifteen digits survive in every normal number: without the zeros at their end they are the fewest. */
    int precision = fabs(x) < DBL_MIN ? 1 : DBL_DIG;
    do spell(x, precision, out);
    while (strtod(out, NULL) != x && ++precision <= DBL_DECIMAL_DIG);
}

/* ---- values ---- */

typedef struct writer {
    ht_text *out;
    unsigned flags;
} writer;

static void new_line(const writer *w, int depth) {
    static const char spaces[] = "                                ";
    const unsigned indent = w->flags & 0x1F;
    if (!indent) return;
    ht_text_append(w->out, "\n", 1);
    for (int i = 0; i < depth; i++) ht_text_append(w->out, spaces, indent);
}

/* Writes the separator and the line break before an item. */
static void separate(const writer *w, size_t i, int depth) {
    if (i) ht_text_append_str(w->out, w->flags & (0x1F | HT_JSON_COMPACT) ? "," : ", ");
    new_line(w, depth);
}

static void put_value(const writer *w, const ht_json *v, int depth);

static int by_name(const void *a, const void *b) {
    const ht_json_member *x = a, *y = b;
    const size_t n = x->n_name < y->n_name ? x->n_name : y->n_name;
    const int order = memcmp(x->name, y->name, n);
    return order ? order : (x->n_name > y->n_name) - (x->n_name < y->n_name);
}

static void put_object(const writer *w, const ht_json *object, int depth) {
    size_t n;
    const ht_json_member *members = ht_json_members(object, &n);
    ht_json_member *sorted = NULL;
    if (n > 1 && w->flags & HT_JSON_SORT_KEYS) {
        if (!(sorted = malloc(n * sizeof *sorted))) {
            w->out->failed = true;
            return;
        }
        memcpy(sorted, members, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, by_name);
        members = sorted;
    }
    ht_text_append(w->out, "{", 1);
    for (size_t i = 0; i < n; i++) {
        separate(w, i, depth + 1);
        ht_json_append_string(w->out, members[i].name, members[i].n_name, w->flags);
        ht_text_append_str(w->out, w->flags & HT_JSON_COMPACT ? ":" : ": ");
        put_value(w, members[i].value, depth + 1);
    }
    if (n) new_line(w, depth);
    ht_text_append(w->out, "}", 1);
    free(sorted);
}

static void put_array(const writer *w, const ht_json *array, int depth) {
    const size_t n = ht_json_array_size(array);
    ht_text_append(w->out, "[", 1);
    for (size_t i = 0; i < n; i++) {
        separate(w, i, depth + 1);
        put_value(w, ht_json_array_get(array, i), depth + 1);
    }
    if (n) new_line(w, depth);
    ht_text_append(w->out, "]", 1);
}

static void put_number(const writer *w, const ht_json *v) {
    const int precision = (int)(w->flags >> 8 & 0x1F);
    const char *spelling = ht_json_spelling(v);
    char text[64];
    if (spelling)
        snprintf(text, sizeof text, "%s", "");
    else if (ht_json_is_integer(v))
        snprintf(text, sizeof text, "%" PRId64, ht_json_integer_value(v));
    else if (precision)
        spell(ht_json_real_value(v), precision, text);
    else
        ht_json_format_real(ht_json_real_value(v), text);
    ht_text_append_str(w->out, spelling ? spelling : text);
}

static void put_value(const writer *w, const ht_json *v, int depth) {
    switch (ht_json_typeof(v)) {
    case HT_JSON_OBJECT: put_object(w, v, depth); break;
    case HT_JSON_ARRAY: put_array(w, v, depth); break;
    case HT_JSON_STRING:
        ht_json_append_string(w->out, ht_json_string_value(v), ht_json_string_length(v), w->flags);
        break;
    case HT_JSON_INTEGER:
    case HT_JSON_REAL:
    case HT_JSON_NOT_FINITE: put_number(w, v); break;
    case HT_JSON_TRUE: ht_text_append_str(w->out, "true"); break;
    case HT_JSON_FALSE: ht_text_append_str(w->out, "false"); break;
    case HT_JSON_NULL: ht_text_append_str(w->out, "null"); break;
    }
}

void ht_json_append(ht_text *out, const ht_json *value, unsigned flags) {
    const writer w = {out, flags};
    put_value(&w, value, 0);
}

char *ht_json_dump(const ht_json *value, unsigned flags) {
    ht_text out = {0};
    if (!value) return NULL;
    ht_json_append(&out, value, flags);
    return ht_text_take(&out);
}

int ht_json_dumpf(const ht_json *value, FILE *file, unsigned flags) {
    ht_text out = {0};
    if (!value) return -1;
    ht_json_append(&out, value, flags);
    const bool good = !out.failed && fwrite(out.data, 1, out.len, file) == out.len;
    ht_text_discard(&out);
    return good ? 0 : -1;
}
