/* String builder: a growing byte string. Append calls after a failed allocation do nothing; the failure is seen once,
 * at the end. */
#ifndef HT_BASE_TEXT_H
#define HT_BASE_TEXT_H

#include <hearth/text.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ht_text {
    char *data; /* NUL-terminated once anything was appended */
    size_t len;
    size_t capacity;
    bool failed;
} ht_text;

void ht_text_append(ht_text *t, const void *bytes, size_t n);
void ht_text_append_str(ht_text *t, const char *s);
void ht_text_printf(ht_text *t, const char *fmt, ...) HT_PRINTF(2, 3);
/* Appends the UTF-8 form of a code point; surrogates and values past U+10FFFF become U+FFFD. */
void ht_text_append_utf8(ht_text *t, uint32_t code_point);
/* Grows the buffer so that `extra` more bytes fit; false when memory ran out. */
bool ht_text_reserve(ht_text *t, size_t extra);
void ht_text_clear(ht_text *t);
void ht_text_discard(ht_text *t);
/* Hands the string over to the caller, who frees it with free(); NULL when an append failed. */
char *ht_text_take(ht_text *t);

/* Decodes one code point of `s` (n > 0 bytes). Returns the bytes consumed (1 to 4); on an invalid or cut sequence
 * stores U+FFFD and returns the length of the maximal invalid prefix (at least 1), as the Unicode standard recommends. */
size_t ht_utf8_decode(const char *s, size_t n, uint32_t *code_point);
/* Length in bytes of the longest prefix of `s` that does not end inside a still completable sequence. */
size_t ht_utf8_complete_prefix(const char *s, size_t n);
/* Cuts an incomplete character from the end of a string that snprintf has cut. */
void ht_utf8_trim(char *s);
bool ht_utf8_valid(const char *s, size_t n);

#endif
