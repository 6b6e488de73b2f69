#include "serve/fields.h"

#include "formats/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

ht_json *serve_json_parse(const char *text, size_t n, size_t values_max, ht_json_replaced *replaced, serve_failure *f) {
    const ht_json_options options = {.name = "the body", .values_max = values_max, .replaced = replaced};
    ht_json *value;
    ht_error err = {0};
    const ht_status status = ht_json_load(text, n, &options, &value, &err);
    if (status == HT_ERR_MEMORY)
        serve_fail_memory(f);
    else if (status)
        serve_fail(f, 400, NULL, "%s", err.message);
    return value;
}

/* ---- members ---- */

const ht_json *serve_member(const ht_json *object, const char *name) {
    const ht_json *value = ht_json_object_get(object, name);
    return ht_json_is_null(value) ? NULL : value;
}

int64_t serve_integer(const ht_json *object, const char *name, int64_t otherwise) {
    int64_t value = otherwise;
    (void)ht_json_whole(ht_json_object_get(object, name), &value);
    return value;
}

double serve_number(const ht_json *object, const char *name, double otherwise) {
    const ht_json *value = ht_json_object_get(object, name);
    return ht_json_is_number(value) ? ht_json_number_value(value) : otherwise;
}

bool serve_flag(const ht_json *object, const char *name, bool otherwise) {
    const ht_json *value = ht_json_object_get(object, name);
    return ht_json_is_boolean(value) ? ht_json_is_true(value) : otherwise;
}

const char *serve_text(const ht_json *object, const char *name) {
    return ht_json_string_value(ht_json_object_get(object, name));
}

const char *serve_filled_text(const ht_json *object, const char *name) {
    const char *text = serve_text(object, name);
    return text && *text ? text : NULL;
}

int serve_word(const ht_json *object, const char *name, const char *const *words, int otherwise) {
    const char *text = serve_text(object, name);
    for (int i = 0; text && words[i]; i++)
        if (strcmp(text, words[i]) == 0) return i;
    return otherwise;
}
