#include "http/text.h"

#include <string.h>

int http_hex(char c) {
    if (http_is_digit(c)) return c - '0';
    const char l = http_lower(c);
    return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

bool http_same_word(const char *a, const char *b) {
    for (; *a && http_lower(*a) == http_lower(*b); a++) b++;
    return *a == '\0' && *b == '\0';
}

bool http_list_has(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list;; at++) {
        at += strspn(at, " \t,");
        if (*at == '\0') return false;
        const char *end = at + strcspn(at, ",");
        size_t length = (size_t)(end - at), same = 0;
        while (length && (at[length - 1] == ' ' || at[length - 1] == '\t')) length--;
        while (same < length && same < n && http_lower(at[same]) == http_lower(word[same])) same++;
        if (length == n && same == n) return true;
        if (*end == '\0') return false;
        at = end;
    }
}

/* Length of the character at s, of n > 0 bytes; 0: none is well formed there (Unicode, table 3-7). */
static size_t character(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return 1;
    const size_t length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    unsigned char low = 0x80, high = 0xBF;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < length) return 0;
    if (s[0] == 0xE0) low = 0xA0;
    if (s[0] == 0xED) high = 0x9F;
    if (s[0] == 0xF0) low = 0x90;
    if (s[0] == 0xF4) high = 0x8F;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return length;
}

bool http_utf8_valid(const char *s, size_t n) {
    for (size_t i = 0, length; i < n; i += length)
        if (!(length = character((const unsigned char *)s + i, n - i))) return false;
    return true;
}

bool http_percent_decode(const char *from, size_t n, bool plus_is_space, char *to) {
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '+' && plus_is_space) c = ' ';
        if (c == '%') {
            if (n - i < 3) return false;
            const int high = http_hex(from[i + 1]), low = http_hex(from[i + 2]);
            if (high < 0 || low < 0) return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if ((unsigned char)c < 0x20 || c == 0x7F) return false;
        to[out++] = c;
    }
    to[out] = '\0';
    return http_utf8_valid(to, out);
}
