/* The writer of JSON: strings, numbers and values as text. Strings become valid JSON whatever their bytes are: what is not UTF-8 becomes
 * U+FFFD. Numbers that have been read are written as they were spelled, others by the fewest digits that give them back, as Python's
 * repr does. */
#ifndef HT_FORMATS_JSON_WRITE_H
#define HT_FORMATS_JSON_WRITE_H

#include "base/text.h"
#include "formats/json_value.h"

#include <stdio.h>

/* Flags; none: one line with ", " and ": ". */
#define HT_JSON_INDENT(n)         ((unsigned)(n))      /* lines, indented by n < 32 spaces for each level */
#define HT_JSON_COMPACT           0x20u                /* no spaces */
#define HT_JSON_ASCII             0x40u                /* other characters as escapes */
#define HT_JSON_SORT_KEYS         0x80u                /* members by the bytes of their names */
#define HT_JSON_REAL_PRECISION(n) ((unsigned)(n) << 8) /* of reals that were computed: n < 32 significant digits */

/* The value as text, which the caller frees. NULL: memory ran out, or the value is NULL. */
char *ht_json_dump(const ht_json *value, unsigned flags);
/* Writes the value to a file; 0, or -1 when memory ran out, the value is NULL or the file refused the bytes. */
int ht_json_dumpf(const ht_json *value, FILE *file, unsigned flags);
/* Appends the value. */
void ht_json_append(ht_text *out, const ht_json *value, unsigned flags);
/* Appends n bytes as a string in quotes. */
void ht_json_append_string(ht_text *out, const char *text, size_t n, unsigned flags);

/* The pieces of a string, for writers of other values: counts the bytes at the beginning that stand for themselves in *plain and gives what
 * follows them as `escape`, "" at the end. Returns the bytes that both stand for. */
size_t ht_json_escape(const char *text, size_t n, bool ascii, size_t *plain, char escape[16]);
/* A finite number by the fewest digits that give it back: "0.1", "1e-05", "5.0". */
void ht_json_format_real(double x, char out[64]);

#endif
