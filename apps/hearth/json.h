/* JSON results, printed as one line on stdout. */
#ifndef HEARTH_APP_JSON_H
#define HEARTH_APP_JSON_H

#include "formats/json.h"

/* The text with U+FFFD for each NUL and for what is not UTF-8; the caller frees it. NULL: memory ran out. */
char *text_to_utf8(const char *text, size_t n);
ht_json *json_ids(const int32_t *ids, size_t n);

/* Prints the value and a newline and releases the value; false, with a message on stderr, when memory ran out (a NULL
 * value included). Failures of writing are output_finish's. */
bool json_output(ht_json *value);

#endif
