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

/* ---- members ---- */

const json_t *serve_member(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

int64_t serve_integer(const json_t *object, const char *name, int64_t otherwise) {
    int64_t value = otherwise;
    (void)ht_json_whole(json_object_get(object, name), &value);
    return value;
}

double serve_number(const json_t *object, const char *name, double otherwise) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

bool serve_flag(const json_t *object, const char *name, bool otherwise) {
    const json_t *value = json_object_get(object, name);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

const char *serve_text(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

const char *serve_filled_text(const json_t *object, const char *name) {
    const char *text = serve_text(object, name);
    return text && *text ? text : NULL;
}

int serve_word(const json_t *object, const char *name, const char *const *words, int otherwise) {
    const char *text = serve_text(object, name);
    for (int i = 0; text && words[i]; i++)
        if (strcmp(text, words[i]) == 0) return i;
    return otherwise;
}
