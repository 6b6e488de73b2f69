/* String builder and UTF-8. Errors are sticky: after a failed allocation appends do nothing, so that the caller checks
 * once, at the end. */
#ifndef HT_BASE_TEXT_H
#define HT_BASE_TEXT_H

#include <hearth/text.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool ht_ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

typedef struct ht_text {
    char *data; /* NUL-terminated; NULL before the first append */
    size_t len;
    size_t capacity;
    bool failed;
} ht_text;

/* Bytes [end of the run before, end) of a text that came from the inputs, or did not. */
typedef struct ht_text_run {
    size_t end;
    bool input;
} ht_text_run;

/* A text in runs, both of which free() frees. */
typedef struct ht_written {
    char *text; /* NULL after a failure */
    size_t n;
    ht_text_run *runs; /* NULL: no byte came from the inputs */
    size_t n_runs;
} ht_written;

void ht_text_append(ht_text *t, const void *bytes, size_t n);
void ht_text_append_str(ht_text *t, const char *s);
void ht_text_printf(ht_text *t, const char *fmt, ...) HT_PRINTF(2, 3);
/* Appends the UTF-8 form of a code point; surrogates and values past U+10FFFF become U+FFFD. */
void ht_text_append_utf8(ht_text *t, uint32_t code_point);
/* Makes capacity for `extra` more bytes; false when memory ran out. */
bool ht_text_reserve(ht_text *t, size_t extra);
void ht_text_clear(ht_text *t);
void ht_text_discard(ht_text *t);
/* Transfers the string to the caller, to be freed with free(). NULL when an append failed. */
char *ht_text_take(ht_text *t);

/* Decodes one code point of `s`, n > 0 bytes, and returns its length, 1 to 4 bytes. An invalid or truncated sequence
 * decodes to U+FFFD with the length of its maximal subpart (Unicode standard, 3.9). */
size_t ht_utf8_decode(const char *s, size_t n, uint32_t *code_point);
/* Length in bytes of the longest prefix of `s` that does not end within an incomplete character. */
size_t ht_utf8_complete_prefix(const char *s, size_t n);
/* Removes an incomplete character from the end of a string that snprintf truncated. */
void ht_utf8_trim(char *s);
bool ht_utf8_valid(const char *s, size_t n);

#endif
