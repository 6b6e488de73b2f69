/* Characters of HTTP: classes of bytes, percent-decoding, UTF-8. */
#ifndef HT_HTTP_TEXT_H
#define HT_HTTP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool http_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool http_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline char http_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* A byte of a token (RFC 9110, 5.6.2): a method, a field's name. */
static inline bool http_is_token(char c) {
    return http_is_digit(c) || http_is_letter(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}
/* A byte of a field's value: visible, a space, a tab, or above ASCII. */
static inline bool http_is_value(char c) {
    const unsigned char u = (unsigned char)c;
    return u == '\t' || (u >= 0x20 && u != 0x7F);
}
/* A byte that a path of a URI may have as it is (RFC 3986, 3.3), '/' and '%' included. */
static inline bool http_is_path(char c) {
    return http_is_digit(c) || http_is_letter(c) || (c != '\0' && strchr("/%-._~!$&'()*+,;=:@", c) != NULL);
}

/* Value of a hexadecimal digit; -1: it is none. */
int http_hex(char c);

/* Whether two strings are equal when the case of ASCII letters is ignored, in any locale. */
bool http_same_word(const char *a, const char *b);
/* Whether a comma-separated list, such as the value of Connection, contains a word. */
bool http_list_has(const char *list, const char *word);

/* Decodes n bytes of `from` into `to`, which may be the same buffer, and ends it with NUL. False: an escape is not
 * two hexadecimal digits, or the result has a control character or is not UTF-8. */
bool http_percent_decode(const char *from, size_t n, bool plus_is_space, char *to);
bool http_utf8_valid(const char *s, size_t n);

#endif
