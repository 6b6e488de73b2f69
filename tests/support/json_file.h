/* A JSON file of the repository. */
#ifndef TESTS_SUPPORT_JSON_FILE_H
#define TESTS_SUPPORT_JSON_FILE_H

#include "formats/json.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

/* Any value, with NUL in strings; the test fails where there is none. */
static inline ht_json *json_file(const char *path) {
    const ht_json_options options = {.keeps_nul = true, .any_value = true};
    ht_json *value;
    ht_error err = {0};
    if (ht_json_read_as(path, 1 << 28, &options, &value, &err)) fail_msg("%s", err.message);
    return value;
}

/* The token ids of a list; the caller frees them. */
static inline int32_t *json_ids(const ht_json *list) {
    int32_t *ids = malloc(ht_json_array_size(list) * sizeof *ids + 1);
    assert_non_null(ids);
    for (size_t i = 0; i < ht_json_array_size(list); i++)
        ids[i] = (int32_t)ht_json_integer_value(ht_json_array_get(list, i));
    return ids;
}

/* A JSON text written with ' for ", valid until the fourth call after this one. */
static inline const char *json_quoted(const char *text) {
    static char quoted[4][2048];
    static unsigned turn;
    char *out = quoted[turn++ % 4];
    assert_true(snprintf(out, sizeof quoted[0], "%s", text) < (int)sizeof quoted[0]);
    for (char *at = out; (at = strchr(at, '\''));) *at = '"';
    return out;
}

#endif
