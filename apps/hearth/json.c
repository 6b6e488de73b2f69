#include "json.h"

#include "terminal.h"

#include <stdio.h>
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

ht_json *json_ids(const int32_t *ids, size_t n) {
    ht_json *array = ht_json_new_array();
    for (size_t i = 0; array && i < n; i++) {
        if (ht_json_array_append_new(array, ht_json_integer(ids[i])) == 0) continue;
        ht_json_decref(array);
        array = NULL;
    }
    return array;
}

bool json_output(ht_json *value) {
    char *text = ht_json_dump(value, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9));
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
