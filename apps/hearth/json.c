#include "json.h"

#include "base/file.h"
#include "fail.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>

char *text_to_utf8(const char *text, size_t n) {
    ht_text clean = {0};
    uint32_t code;
    ht_text_append_str(&clean, "");
    for (size_t at = 0; at < n;) {
        at += ht_utf8_decode(text + at, n - at, &code);
        ht_text_append_utf8(&clean, code ? code : 0xFFFD);
    }
    return ht_text_take(&clean);
}

ht_json *json_appended(ht_json *array, ht_json *item) {
    if (ht_json_array_append_new(array, item) == 0) return array;
    ht_json_decref(array);
    return NULL;
}

ht_json *json_number(double x) { return isfinite(x) ? ht_json_real(x) : ht_json_null(); }

ht_json *json_ids(const int32_t *ids, size_t n) {
    ht_json *array = ht_json_new_array();
    for (size_t i = 0; array && i < n; i++) array = json_appended(array, ht_json_integer(ids[i]));
    return array;
}

ht_json *json_floats(const float *values, size_t n) {
    ht_json *array = ht_json_new_array();
    for (size_t i = 0; array && i < n; i++) array = json_appended(array, json_number((double)values[i]));
    return array;
}

ht_json *json_merge(ht_json *value, ht_json *more) {
    if (value && more && ht_json_object_update(value, more) == 0) {
        ht_json_decref(more);
        return value;
    }
    ht_json_decref(value);
    ht_json_decref(more);
    return NULL;
}

ht_status json_write(const char *path, const ht_json *value, unsigned flags, bool is_private, ht_error *err) {
    char *text = ht_json_dump(value, flags);
    ht_writer *w = NULL;
    ht_status st = !text        ? fail_memory(err, path)
                   : is_private ? ht_writer_open_private(path, &w, err)
                                : ht_writer_open(path, &w, err);
    if (!st) st = ht_writer_put(w, text, strlen(text), err);
    if (!st) st = ht_writer_put(w, "\n", 1, err);
    free(text);
    if (!st) return ht_writer_commit(w, err);
    ht_writer_discard(w);
    return st;
}

void json_output(ht_json *value) {
    char *text = ht_json_dump(value, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9));
    ht_json_decref(value);
    if (!text) {
        output_lacks("out of memory for the JSON result");
        return;
    }
    output_write(text, strlen(text));
    output_write("\n", 1);
    free(text);
}
