#include "formats/json.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHOWN_BYTES = 60 }; /* bytes of a string quoted in a message */

ht_status ht_json_parse(const char *text, size_t size, const char *name, ht_json **out, ht_error *err) {
    return ht_json_load(text, size, &(ht_json_options){.name = name, .as_python = true}, out, err);
}

ht_status ht_json_parse_strict(const char *text, size_t size, const char *name, size_t values_max, ht_json **out,
                               ht_error *err) {
    return ht_json_load(text, size, &(ht_json_options){.name = name, .values_max = values_max}, out, err);
}

ht_status ht_json_read_as(const char *path, size_t limit, const ht_json_options *options, ht_json **out,
                          ht_error *err) {
    *out = NULL;
    char *text;
    size_t size;
    ht_status st = ht_file_read_all(path, limit, &text, &size, err);
    if (st) return st;
    ht_json_options named = *options;
    named.name = path;
    st = ht_json_load(text, size, &named, out, err);
    free(text);
    return st;
}

ht_status ht_json_read(const char *path, size_t limit, ht_json **out, ht_error *err) {
    return ht_json_read_as(path, limit, &(ht_json_options){.as_python = true}, out, err);
}

const char *ht_json_describe(const ht_json *value, char *buffer, size_t size) {
    switch (ht_json_typeof(value)) {
    case HT_JSON_OBJECT: snprintf(buffer, size, "an object"); break;
    case HT_JSON_ARRAY: snprintf(buffer, size, "an array of %zu", ht_json_array_size(value)); break;
    case HT_JSON_STRING: {
        size_t n = ht_json_string_length(value);
        const char *s = ht_json_string_value(value);
        size_t shown = ht_utf8_complete_prefix(s, ht_min_size(n, SHOWN_BYTES));
        snprintf(buffer, size, "the string \"%.*s%s\"", (int)shown, s, shown < n ? "..." : "");
        for (char *p = buffer; *p; p++)
            if ((unsigned char)*p < 0x20 || (unsigned char)*p == 0x7F) *p = ' ';
        break;
    }
    case HT_JSON_INTEGER: snprintf(buffer, size, "%" PRId64, ht_json_integer_value(value)); break;
    case HT_JSON_REAL: snprintf(buffer, size, "%g", ht_json_real_value(value)); break;
    case HT_JSON_TRUE: snprintf(buffer, size, "true"); break;
    case HT_JSON_FALSE: snprintf(buffer, size, "false"); break;
    case HT_JSON_NULL: snprintf(buffer, size, "null"); break;
    case HT_JSON_NOT_FINITE: snprintf(buffer, size, "%s", ht_json_spelling(value)); break;
    }
    return buffer;
}

ht_status ht_json_fail(ht_json_reader *r, ht_status status, const char *fmt, ...) {
    if (r->status) return r->status;
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return r->status = ht_fail(r->err, status, "%s: %s", r->file, message);
}

void ht_json_missing(ht_json_reader *r, const char *key, const char *expected) {
    ht_json_fail(r, HT_ERR_FORMAT, "`%s` is missing, expected %s", key, expected);
}

bool ht_json_whole(const ht_json *value, int64_t *out) {
    if (ht_json_is_integer(value)) {
        *out = ht_json_integer_value(value);
        return true;
    }
    double real = ht_json_is_real(value) ? ht_json_real_value(value) : 0.5;
    if (!(fabs(real) <= 9007199254740992.0) || real != floor(real)) return false;
    *out = (int64_t)real;
    return true;
}

bool ht_json_modulo(const ht_json *value, uint64_t *out) {
    const char *text = ht_json_spelling(value);
    int64_t whole;
    if (ht_json_whole(value, &whole)) {
        *out = (uint64_t)whole;
        return true;
    }
    const bool negative = text && *text == '-';
    if (!text) return false;
    *out = 0;
    for (text += negative; *text >= '0' && *text <= '9'; text++) *out = 10 * *out + (uint64_t)(*text - '0');
    if (*text) { /* with an exponent: a multiple of a power of 2 */
        const double rest = fmod(fabs(ht_json_real_value(value)), 0x1p64);
        if (rest != floor(rest)) return false;
        *out = (uint64_t)rest;
    }
    if (negative) *out = 0 - *out;
    return true;
}

/* The field if it has the type. NULL when it is absent or null; NULL with an error for another type. */
static const ht_json *typed(ht_json_reader *r, const ht_json *object, const char *key,
                            bool (*has_type)(const ht_json *), const char *expected) {
    char found[128];
    const ht_json *value = ht_json_object_get(object, key);
    if (!value || ht_json_is_null(value)) return NULL;
    if (has_type(value)) return value;
    ht_json_fail(r, HT_ERR_FORMAT, "`%s` is %s, expected %s", key, ht_json_describe(value, found, sizeof found),
                 expected);
    return NULL;
}

static bool is_whole(const ht_json *value) {
    int64_t whole;
    return ht_json_whole(value, &whole);
}

bool ht_json_i64(ht_json_reader *r, const ht_json *object, const char *key, int64_t *out) {
    const ht_json *value = typed(r, object, key, is_whole, "an integer");
    return value && ht_json_whole(value, out);
}

bool ht_json_f64(ht_json_reader *r, const ht_json *object, const char *key, double *out) {
    const ht_json *value = typed(r, object, key, ht_json_is_number, "a number");
    if (value) *out = ht_json_number_value(value);
    return value;
}

bool ht_json_bool(ht_json_reader *r, const ht_json *object, const char *key, bool *out) {
    const ht_json *value = typed(r, object, key, ht_json_is_boolean, "true or false");
    if (value) *out = ht_json_is_true(value);
    return value;
}

bool ht_json_str(ht_json_reader *r, const ht_json *object, const char *key, const char **out) {
    const ht_json *value = typed(r, object, key, ht_json_is_string, "a string");
    if (value) *out = ht_json_string_value(value);
    return value;
}

const ht_json *ht_json_object(ht_json_reader *r, const ht_json *object, const char *key) {
    return typed(r, object, key, ht_json_is_object, "an object");
}

const ht_json *ht_json_array(ht_json_reader *r, const ht_json *object, const char *key) {
    return typed(r, object, key, ht_json_is_array, "an array");
}
