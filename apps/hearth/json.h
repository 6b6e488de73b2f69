/* JSON results: jansson's values, printed as one line on stdout. */
#ifndef HEARTH_APP_JSON_H
#define HEARTH_APP_JSON_H

#include "formats/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a text is UTF-8. */
bool text_is_utf8(const char *text);
/* The text with U+FFFD for each NUL and each byte that is no UTF-8; the caller frees it. NULL: memory ran out. */
char *text_to_utf8(const char *text, size_t n);
/* Text as a JSON string; NULL when memory ran out. Bytes that are no UTF-8 become U+FFFD. */
ht_json *json_text(const char *text, size_t n);
/* The same for the name of a file, which may be any bytes. */
ht_json *json_path(const char *path);
ht_json *json_ids(const int32_t *ids, size_t n);

/* An object from a line of JSONL; NULL with the reason in *why, also for another value. Halves of surrogate pairs become U+FFFD. Numbers in
 * its field "id" keep their spelling, as json_line_write writes it. */
ht_json *json_line_read(const char *line, size_t n, size_t flags, json_error_t *why);
/* The value on one line; the caller frees it. NULL: memory ran out, or the value is NULL. */
char *json_line_write(const ht_json *value);

/* Prints the value and a newline and gives the value back; false, with a message on stderr, when memory ran out (a NULL
 * value included). Failures of writing are output_finish's. */
bool json_output(ht_json *value);

#endif
