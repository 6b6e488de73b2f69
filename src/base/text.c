#include "base/text.h"

#include "base/checked.h"
#include "base/grow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ht_text_reserve(ht_text *t, size_t extra) {
    size_t need;
    t->failed = t->failed || !ht_add_size(t->len, extra, &need) || !ht_add_size(need, 1, &need) ||
                !HT_GROW(t->data, t->capacity, need);
    return !t->failed;
}

void ht_text_append(ht_text *t, const void *bytes, size_t n) {
    if (!ht_text_reserve(t, n)) return;
    if (n) memcpy(t->data + t->len, bytes, n);
    t->len += n;
    t->data[t->len] = '\0';
}

void ht_text_append_str(ht_text *t, const char *s) { ht_text_append(t, s, strlen(s)); }

void ht_text_printf(ht_text *t, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        t->failed = true;
    else if (ht_text_reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
}

void ht_text_append_utf8(ht_text *t, uint32_t c) {
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    /* The lead byte of a sequence of n bytes has its n high bits set; each byte after it holds six bits. */
    char b[4];
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) b[i] = (char)(0x80 | (c & 0x3F));
    b[0] = (char)(n == 1 ? c : (0xF00u >> n & 0xFF) | c);
    ht_text_append(t, b, n);
}

void ht_text_clear(ht_text *t) {
    t->len = 0;
    if (t->data) t->data[0] = '\0';
}

void ht_text_discard(ht_text *t) {
    free(t->data);
    *t = (ht_text){0};
}

void ht_text_free(char *text) { free(text); }

char *ht_text_take(ht_text *t) {
    if (!t->data) ht_text_append(t, "", 0);
    char *data = t->data;
    if (t->failed) {
        free(data);
        data = NULL;
    }
    *t = (ht_text){0};
    return data;
}

/* Length of a UTF-8 sequence, and the range of its second byte, by its lead byte (Unicode standard, table 3-7; the
 * ranges exclude overlong forms and surrogates). 0: not a lead byte. */
static size_t sequence_shape(unsigned char lead, unsigned char *low, unsigned char *high) {
    *low = 0x80;
    *high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (lead == 0xE0) *low = 0xA0;
        if (lead == 0xED) *high = 0x9F;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (lead == 0xF0) *low = 0x90;
        if (lead == 0xF4) *high = 0x8F;
        return 4;
    }
    return 0;
}

/* Matches one sequence: *have counts its valid bytes. Returns its full length, 0 when s[0] is not a lead byte. */
static size_t match_sequence(const unsigned char *s, size_t n, size_t *have) {
    unsigned char low, high;
    size_t want = sequence_shape(s[0], &low, &high);
    *have = 1;
    if (!want) return 0;
    while (*have < want && *have < n && s[*have] >= low && s[*have] <= high) {
        ++*have;
        low = 0x80;
        high = 0xBF;
    }
    return want;
}

size_t ht_utf8_decode(const char *text, size_t n, uint32_t *code_point) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *code_point = s[0];
        return 1;
    }
    size_t have, want = match_sequence(s, n, &have);
    *code_point = 0xFFFD;
    if (have != want) return have;
    uint32_t c = s[0] & (0x7Fu >> want);
    for (size_t i = 1; i < want; i++) c = (c << 6) | (s[i] & 0x3Fu);
    *code_point = c;
    return want;
}

size_t ht_utf8_complete_prefix(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = u[n - back];
        if (c < 0x80) return n;
        if (c >= 0xC0) {
            size_t have, want = match_sequence(u + n - back, back, &have);
            return want > back && have == back ? n - back : n;
        }
    }
    return n;
}

void ht_utf8_trim(char *s) { s[ht_utf8_complete_prefix(s, strlen(s))] = '\0'; }

bool ht_utf8_valid(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        if ((unsigned char)s[i] < 0x80) {
            i++;
            continue;
        }
        size_t have, want = match_sequence((const unsigned char *)s + i, n - i, &have);
        if (have != want) return false;
        i += want;
    }
    return true;
}
