/* JSON results, printed as one line on stdout. */
#ifndef HEARTH_APP_JSON_H
#define HEARTH_APP_JSON_H

#include "formats/json.h"

/* The text with U+FFFD for each NUL and for what is not UTF-8; the caller frees it. NULL: memory ran out. */
char *text_to_utf8(const char *text, size_t n);
/* The array, with an item appended; NULL, with the array released, when memory ran out. */
ht_json *json_appended(ht_json *array, ht_json *item);
/* The number, or null if it is not finite. */
ht_json *json_number(double x);
ht_json *json_ids(const int32_t *ids, size_t n);
ht_json *json_floats(const float *values, size_t n);

/* The first object with the members of the second, which is released; NULL, with both released, when either is NULL or memory ran out. */
ht_json *json_merge(ht_json *value, ht_json *more);

/* Writes a file that appears whole or not at all. A new one is its owner's alone with `is_private`. */
ht_status json_write(const char *path, const ht_json *value, unsigned flags, bool is_private, ht_error *err);

/* Prints the value and a newline and releases the value. Failures are output_finish's, as is a NULL value: memory ran out. */
void json_output(ht_json *value);

#endif
