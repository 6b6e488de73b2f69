#include "json.h"

#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *json_text(const char *text, size_t n) {
    json_t *value = json_stringn(n ? text : "", n);
    return value ? value : json_string("(not UTF-8)");
}

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
