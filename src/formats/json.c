#include "formats/json.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 60 }; /* bytes of a string quoted in a message */

/* Line and column of byte `at`, from 1. */
static void locate(const char *text, size_t at, size_t *line, size_t *column) {
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at; i++) {
        ++*column;
        if (text[i] == '\n') {
            ++*line;
            *column = 1;
        }
    }
}

/* Depth and size limits, checked before jansson runs: it recurses once per level, in parsing and freeing, and allocates
 * up to 40 bytes per byte of text. */
static ht_status check_limits(const char *text, size_t size, const char *name, size_t values_max, ht_error *err) {
    size_t depth = 0, n_values = 1;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"')
            in_string = true;
        else if ((c == '{' || c == '[') && ++depth > HT_JSON_DEPTH_MAX) {
            size_t line, column;
            locate(text, i, &line, &column);
            return ht_fail(err, HT_ERR_LIMIT, "%s: line %zu, column %zu: nested deeper than %d levels", name, line,
                           column, HT_JSON_DEPTH_MAX);
        } else if ((c == '}' || c == ']') && depth)
            depth--;
        else if (c == ',')
            n_values++;
    }
    if (n_values > values_max)
        return ht_fail(err, HT_ERR_LIMIT, "%s: has %zu values, at most %zu are accepted", name, n_values, values_max);
    return HT_OK;
}

static ht_status fail_parse(const json_error_t *e, size_t size, const char *name, ht_error *err) {
    /* jansson reports most failed allocations without an error text. */
    if (json_error_code(e) == json_error_out_of_memory || !e->text[0]) return ht_fail_memory(err, size, name);
    if (json_error_code(e) == json_error_null_character || json_error_code(e) == json_error_null_byte_in_key)
        return ht_fail(err, HT_ERR_FORMAT, "%s: line %d, column %d: a text has a NUL character, which is not read here",
                       name, e->line, e->column);
    /* jansson quotes the text near the error; unprintable bytes are replaced. */
    char text[JSON_ERROR_TEXT_LENGTH];
    snprintf(text, sizeof text, "%s", e->text);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p == 0x7F) *p = ' ';
    ht_utf8_trim(text);
    return ht_fail(err, HT_ERR_FORMAT, "%s: line %d, column %d: not valid JSON: %s", name, e->line, e->column,
                   ht_utf8_valid(text, strlen(text)) ? text : "invalid text");
}

/* Python's non-finite numbers, which JSON and jansson lack: replaced by strings with a marker byte in front, which the
 * readers accept neither as strings nor as numbers. */
static const char *const not_finite[] = {"NaN", "Infinity", "-Infinity"};
enum { NOT_FINITE = 0x1A };

static bool is_not_finite(const json_t *value) {
    return json_is_string(value) && json_string_value(value)[0] == NOT_FINITE;
}

/* Length of a non-finite number at the start of `text`, or 0. */
static size_t not_finite_at(const char *text, size_t size) {
    for (size_t i = 0; i < sizeof not_finite / sizeof *not_finite; i++) {
        size_t n = strlen(not_finite[i]);
        if (size >= n && !memcmp(text, not_finite[i], n)) return n;
    }
    return 0;
}

/* Appends `text` with its non-finite numbers quoted; appends nothing when there are none. */
static void spell_not_finite(const char *text, size_t size, ht_text *out) {
    size_t from = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        size_t n = 0;
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string && text[i] == '\\')
            i++;
        else if (!in_string && (text[i] == 'N' || text[i] == 'I' || text[i] == '-'))
            n = not_finite_at(text + i, size - i);
        if (!n) continue;
        ht_text_append(out, text + from, i - from);
        ht_text_printf(out, "\"\\u%04x%.*s\"", NOT_FINITE, (int)n, text + i);
        from = i + n;
        i = from - 1;
    }
    if (from) ht_text_append(out, text + from, size - from);
}

char *ht_json_text_of(const json_t *root) {
    char *text = ht_json_write(root, JSON_INDENT(2)), mark[] = "\"\\u001A";
    if (!text) return NULL;
    char *to = text;
    for (const char *from = text; *from;) {
        const char *number = from + sizeof mark - 1;
        size_t n = strncmp(from, mark, sizeof mark - 1) ? 0 : not_finite_at(number, strlen(number));
        if (n && number[n] == '"') {
            memmove(to, number, n);
            to += n;
            from = number + n + 1;
        } else
            *to++ = *from++;
    }
    *to = '\0';
    return text;
}

/* Length of the integer at the start of `text`, or 0 when what stands there is none, or has 64 bits. */
static size_t large_integer_at(const char *text, size_t size) {
    enum { FEWEST_DIGITS = 19 };
    size_t n = size && text[0] == '-';
    const size_t sign = n;
    while (n < size && text[n] >= '0' && text[n] <= '9') n++;
    if (n - sign < FEWEST_DIGITS || (n < size && (text[n] == '.' || text[n] == 'e' || text[n] == 'E'))) return 0;
    if (n - sign > FEWEST_DIGITS) return n;
    char digits[FEWEST_DIGITS + 2];
    memcpy(digits, text, n);
    digits[n] = '\0';
    errno = 0;
    (void)strtoll(digits, NULL, 10);
    return errno == ERANGE ? n : 0;
}

/* Appends `text` with an exponent behind each integer of more than 64 bits, which makes a real of it; nothing when there are none. */
static void spell_large(const char *text, size_t size, ht_text *out) {
    size_t from = 0;
    bool in_string = false, in_number = false;
    for (size_t i = 0; i < size; i++) {
        const char c = text[i];
        const bool was_in_number = in_number;
        in_number = !in_string && c && strchr("+-.0123456789eE", c);
        if (c == '"')
            in_string = !in_string;
        else if (in_string && c == '\\')
            i++;
        const size_t n = in_number && !was_in_number ? large_integer_at(text + i, size - i) : 0;
        if (!n) continue;
        ht_text_append(out, text + from, i + n - from);
        ht_text_append_str(out, "e0");
        from = i + n;
        i = from - 1;
    }
    if (from) ht_text_append(out, text + from, size - from);
}

static json_t *load(const char *text, size_t size, size_t flags, json_error_t *e) {
    json_t *root = json_loadb(text, size, flags, e);
    if (root || json_error_code(e) != json_error_numeric_overflow) return root;
    ht_text spelled = {0};
    spell_large(text, size, &spelled);
    if (spelled.failed)
        e->text[0] = '\0'; /* as jansson says it of memory */
    else if (spelled.len)
        root = json_loadb(spelled.data, spelled.len, flags, e);
    ht_text_discard(&spelled);
    return root;
}

static ht_status parse(const char *text, size_t size, size_t flags, size_t values_max, const char *name, json_t **out,
                       ht_error *err) {
    *out = NULL;
    if (ht_is_lfs_pointer(text, size)) return ht_fail(err, HT_ERR_FORMAT, "%s: %s", name, HT_LFS_POINTER);
    ht_status st = check_limits(text, size, name, ht_min_size(values_max, HT_JSON_VALUES_MAX), err);
    if (st) return st;
    json_error_t e;
    json_t *root = load(text, size, flags, &e);
    if (!root && !(flags & JSON_REJECT_DUPLICATES)) {
        ht_text spelled = {0};
        spell_not_finite(text, size, &spelled);
        if (spelled.len && !spelled.failed) root = load(spelled.data, spelled.len, flags, &e);
        ht_text_discard(&spelled);
    }
    if (!root) return fail_parse(&e, size, name, err);
    if (!json_is_object(root)) {
        json_decref(root);
        return ht_fail(err, HT_ERR_FORMAT, "%s: is a JSON array, expected an object", name);
    }
    *out = root;
    return HT_OK;
}

ht_status ht_json_parse(const char *text, size_t size, const char *name, json_t **out, ht_error *err) {
    return parse(text, size, 0, HT_JSON_VALUES_MAX, name, out, err);
}

ht_status ht_json_parse_strict(const char *text, size_t size, const char *name, size_t values_max, json_t **out,
                               ht_error *err) {
    return parse(text, size, JSON_REJECT_DUPLICATES, values_max, name, out, err);
}

ht_status ht_json_read(const char *path, size_t limit, json_t **out, ht_error *err) {
    *out = NULL;
    char *text;
    size_t size;
    ht_status st = ht_file_read_all(path, limit, &text, &size, err);
    if (st) return st;
    st = ht_json_parse(text, size, path, out, err);
    free(text);
    return st;
}

const char *ht_json_describe(const json_t *value, char *buffer, size_t size) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: snprintf(buffer, size, "an object"); break;
    case JSON_ARRAY: snprintf(buffer, size, "an array of %zu", json_array_size(value)); break;
    case JSON_STRING: {
        size_t n = json_string_length(value);
        const char *s = json_string_value(value);
        if (is_not_finite(value)) {
            snprintf(buffer, size, "%s", s + 1);
            break;
        }
        size_t shown = ht_utf8_complete_prefix(s, ht_min_size(n, SHOWN_BYTES));
        snprintf(buffer, size, "the string \"%.*s%s\"", (int)shown, s, shown < n ? "..." : "");
        for (char *p = buffer; *p; p++)
            if ((unsigned char)*p < 0x20 || (unsigned char)*p == 0x7F) *p = ' ';
        break;
    }
    case JSON_INTEGER: snprintf(buffer, size, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: snprintf(buffer, size, "%g", json_real_value(value)); break;
    case JSON_TRUE: snprintf(buffer, size, "true"); break;
    case JSON_FALSE: snprintf(buffer, size, "false"); break;
    case JSON_NULL: snprintf(buffer, size, "null"); break;
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

bool ht_json_whole(const json_t *value, int64_t *out) {
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    double real = json_is_real(value) ? json_real_value(value) : 0.5;
    if (!(fabs(real) <= 9007199254740992.0) || real != floor(real)) return false;
    *out = (int64_t)real;
    return true;
}

/* NULL when the member is absent or null. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = object ? json_object_get(object, key) : NULL;
    return value && !json_is_null(value) ? value : NULL;
}

static void wrong_kind(ht_json_reader *r, const char *key, const json_t *value, const char *expected) {
    char found[128];
    ht_json_fail(r, HT_ERR_FORMAT, "`%s` is %s, expected %s", key, ht_json_describe(value, found, sizeof found),
                 expected);
}

bool ht_json_i64(ht_json_reader *r, const json_t *object, const char *key, int64_t *out) {
    const json_t *value = member(object, key);
    if (!value) return false;
    if (ht_json_whole(value, out)) return true;
    wrong_kind(r, key, value, "an integer");
    return false;
}

bool ht_json_f64(ht_json_reader *r, const json_t *object, const char *key, double *out) {
    const json_t *value = member(object, key);
    if (!value) return false;
    if (!json_is_number(value)) {
        wrong_kind(r, key, value, "a number");
        return false;
    }
    *out = json_number_value(value);
    return true;
}

bool ht_json_bool(ht_json_reader *r, const json_t *object, const char *key, bool *out) {
    const json_t *value = member(object, key);
    if (!value) return false;
    if (!json_is_boolean(value)) {
        wrong_kind(r, key, value, "true or false");
        return false;
    }
    *out = json_is_true(value);
    return true;
}

bool ht_json_str(ht_json_reader *r, const json_t *object, const char *key, const char **out) {
    const json_t *value = member(object, key);
    if (!value) return false;
    if (!json_is_string(value) || is_not_finite(value)) {
        wrong_kind(r, key, value, "a string");
        return false;
    }
    *out = json_string_value(value);
    return true;
}

const json_t *ht_json_object(ht_json_reader *r, const json_t *object, const char *key) {
    const json_t *value = member(object, key);
    if (value && !json_is_object(value)) wrong_kind(r, key, value, "an object");
    return json_is_object(value) ? value : NULL;
}

const json_t *ht_json_array(ht_json_reader *r, const json_t *object, const char *key) {
    const json_t *value = member(object, key);
    if (value && !json_is_array(value)) wrong_kind(r, key, value, "an array");
    return json_is_array(value) ? value : NULL;
}

char *ht_json_write(const json_t *value, size_t flags) {
    const size_t n = json_dumpb(value, NULL, 0, flags);
    char *text = n ? malloc(n + 1) : NULL;
    if (!text) return NULL;
    if (json_dumpb(value, text, n, flags) != n) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}
