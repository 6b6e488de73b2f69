/* JSON results, printed as one line on stdout. */
#ifndef HEARTH_APP_JSON_H
#define HEARTH_APP_JSON_H

#include "formats/json.h"

/* Replaces NULs and invalid UTF-8 by U+FFFD; the caller frees the copy. NULL: memory ran out. */
char *text_to_utf8(const char *text, size_t n);
/* The array, with an item appended; NULL, with the array released, when memory ran out. */
ht_json *json_appended(ht_json *array, ht_json *item);
/* The number, or null if it is not finite. */
ht_json *json_number(double x);
ht_json *json_ids(const int32_t *ids, size_t n);
ht_json *json_floats(const float *values, size_t n);

/* Merges `more` into `value` and releases `more`. If either is NULL or memory runs out, releases both: NULL. */
ht_json *json_merge(ht_json *value, ht_json *more);

/* Writes a file atomically. With `is_private` only the owner may read a new file. */
ht_status json_write(const char *path, const ht_json *value, unsigned flags, bool is_private, ht_error *err);

/* Prints the value and a newline and releases it. output_finish reports failures, including NULL: memory ran out. */
void json_output(ht_json *value);

#endif
