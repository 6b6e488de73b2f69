#include "serve/fields.h"

#include "formats/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

json_t *serve_json_parse(const char *text, size_t n, size_t values_max, serve_failure *f) {
    json_t *value;
    ht_error err = {0};
    const ht_status status = ht_json_parse_strict(text, n, "the body", values_max, &value, &err);
    if (status == HT_ERR_MEMORY)
        serve_fail_memory(f);
    else if (status)
        serve_fail(f, 400, NULL, "%s", err.message);
    return value;
}

static bool has_real(const json_t *value) {
    bool found = json_is_real(value);
    const char *name;
    json_t *one;
    size_t i;
    json_array_foreach((json_t *)value, i, one) found = found || has_real(one);
    json_object_foreach((json_t *)value, name, one) found = found || has_real(one);
    return found;
}

char *serve_json_dump(const json_t *value) {
    enum { FEWEST = 15, MOST = 17 };
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    if (!has_real(value)) return json_dumps(value, flags);
    for (size_t digits = FEWEST; digits < MOST; digits++) {
        char *text = json_dumps(value, flags | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        const bool same = !text || json_equal(value, back);
        json_decref(back);
        if (same) return text;
        free(text);
    }
    return json_dumps(value, flags);
}

const json_t *serve_member(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* ---- classes ---- */

static const serve_field *find(const serve_field *const *tables, const char *name) {
    for (; *tables; tables++)
        for (const serve_field *field = *tables; field->name; field++)
            if (strcmp(field->name, name) == 0) return field;
    return NULL;
}

/* Whether a value asks for nothing. */
static bool is_void(const json_t *value) {
    return json_is_null(value) || json_is_false(value) || (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value)) || (json_is_string(value) && !json_string_length(value));
}

bool serve_fields_check(const json_t *body, const serve_field *const *tables, bool strict, serve_unknown_fn *unknown,
                        void *user, serve_failure *f) {
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)body, name, value) {
        const serve_field *field = find(tables, name);
        if (field && (field->class != SERVE_LACKED || is_void(value))) continue;
        if (field) return serve_fail(f, 400, name, "\"%s\" asks for something that this server does not have", name);
        if (strict) return serve_fail(f, 400, name, "\"%s\" is not known", name);
        unknown(name, user);
    }
    return true;
}

/* ---- members ---- */

bool serve_read_integer(const json_t *object, const char *name, int64_t low, int64_t high, int64_t *out,
                        serve_failure *f) {
    const json_t *value = serve_member(object, name);
    if (!value) return true;
    const double real = json_number_value(value);
    /* 256.0 is a whole number, too. */
    const bool whole = json_is_integer(value) || (json_is_real(value) && real == floor(real) && fabs(real) < 9e15);
    const int64_t got = json_is_integer(value) ? json_integer_value(value) : whole ? (int64_t)real : 0;
    if (!whole || got < low || got > high)
        return serve_fail(f, 400, name, "\"%s\" is to be a whole number from %lld to %lld", name, (long long)low,
                          (long long)high);
    *out = got;
    return true;
}

bool serve_read_number(const json_t *object, const char *name, double low, double high, double *out, serve_failure *f) {
    const json_t *value = serve_member(object, name);
    if (!value) return true;
    const double got = json_number_value(value);
    if (!json_is_number(value) || !(got >= low && got <= high))
        return serve_fail(f, 400, name, "\"%s\" is to be a number from %g to %g", name, low, high);
    *out = got;
    return true;
}

bool serve_read_flag(const json_t *object, const char *name, bool *out, serve_failure *f) {
    const json_t *value = serve_member(object, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return serve_fail(f, 400, name, "\"%s\" is to be true or false", name);
    *out = json_is_true(value);
    return true;
}

bool serve_read_text(const json_t *object, const char *name, const char **out, serve_failure *f) {
    const json_t *value = serve_member(object, name);
    if (!value) return true;
    if (!json_is_string(value)) return serve_fail(f, 400, name, "\"%s\" is to be a text", name);
    *out = json_string_value(value);
    return true;
}

bool serve_read_object(const json_t *object, const char *name, const json_t **out, serve_failure *f) {
    const json_t *value = serve_member(object, name);
    if (!value) return true;
    if (!json_is_object(value)) return serve_fail(f, 400, name, "\"%s\" is to be an object", name);
    *out = value;
    return true;
}

bool serve_read_array(const json_t *object, const char *name, const json_t **out, serve_failure *f) {
    const json_t *value = serve_member(object, name);
    if (!value) return true;
    if (!json_is_array(value)) return serve_fail(f, 400, name, "\"%s\" is to be a list", name);
    *out = value;
    return true;
}

bool serve_read_word(const json_t *object, const char *name, const char *const *words, int n, int *out,
                     serve_failure *f) {
    const json_t *value = serve_member(object, name);
    if (!value) return true;
    const char *got = json_string_value(value);
    char expected[256] = "";
    for (int i = 0; i < n; i++) {
        if (got && strcmp(got, words[i]) == 0) {
            *out = i;
            return true;
        }
        const size_t at = strlen(expected);
        snprintf(expected + at, sizeof expected - at, "%s\"%s\"", i ? ", " : "", words[i]);
    }
    return serve_fail(f, 400, name, "\"%s\" is to be one of %s", name, expected);
}
