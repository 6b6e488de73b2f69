/* JSON writer: strings, numbers and values as text. Invalid UTF-8 in strings becomes U+FFFD. Numbers keep the
 * spelling they were read with; other numbers get the fewest digits that read back exactly, as in Python's repr. */
#ifndef HT_FORMATS_JSON_WRITE_H
#define HT_FORMATS_JSON_WRITE_H

#include "base/text.h"
#include "formats/json_value.h"

#include <stdio.h>

/* Flags; none: one line with ", " and ": ". */
#define HT_JSON_INDENT(n)         ((unsigned)(n))      /* lines, indented by n < 32 spaces for each level */
#define HT_JSON_COMPACT           0x20u                /* no spaces */
#define HT_JSON_ASCII             0x40u                /* other characters as escapes */
#define HT_JSON_SORT_KEYS         0x80u                /* fields in byte order of their names */
#define HT_JSON_REAL_PRECISION(n) ((unsigned)(n) << 8) /* of reals that were computed: n < 32 significant digits */

/* The value as text, which the caller frees. NULL: memory ran out, or the value is NULL. */
char *ht_json_dump(const ht_json *value, unsigned flags);
/* Writes the value to a file; 0, or -1 when memory ran out, the value is NULL or a write failed. */
int ht_json_dumpf(const ht_json *value, FILE *file, unsigned flags);
/* Appends the value. */
void ht_json_append(ht_text *out, const ht_json *value, unsigned flags);
/* Appends n bytes as a string in quotes. */
void ht_json_append_string(ht_text *out, const char *text, size_t n, unsigned flags);

/* Escapes a string piecewise, for other writers: *plain is the number of leading bytes to copy, `escape` the text
 * after them, "" at the end. Returns the number of bytes consumed. */
size_t ht_json_escape(const char *text, size_t n, bool ascii, size_t *plain, char escape[16]);
/* A finite number with the fewest digits that read back exactly: "0.1", "1e-05", "5.0". */
void ht_json_format_real(double x, char out[64]);

#endif
