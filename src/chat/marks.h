/* Marks and white space in a text of n bytes. */
#ifndef HT_CHAT_MARKS_H
#define HT_CHAT_MARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool ht_is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static inline size_t ht_blanks_before(const char *text, size_t n) {
    while (n && ht_is_blank(text[n - 1])) n--;
    return n;
}

static inline size_t ht_blanks_after(const char *text, size_t n) {
    size_t at = 0;
    while (at < n && ht_is_blank(text[at])) at++;
    return at;
}

/* Index of the mark in n bytes, or n. */
static inline size_t ht_mark_find(const char *text, size_t n, size_t from, const char *mark) {
    const char *found = from < n ? memmem(text + from, n - from, mark, strlen(mark)) : NULL;
    return found ? (size_t)(found - text) : n;
}

/* Index of the longest suffix that begins the mark, or n. */
static inline size_t ht_mark_beginning(const char *text, size_t n, const char *mark) {
    size_t length = strlen(mark) - 1;
    if (length > n) length = n;
    for (; length; length--)
        if (memcmp(text + n - length, mark, length) == 0) return n - length;
    return n;
}

static inline bool ht_mark_is_at(const char *text, size_t n, const char *mark) {
    const size_t length = strlen(mark);
    return n >= length && memcmp(text, mark, length) == 0;
}

#endif
