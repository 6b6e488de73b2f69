#include "chat/message_header.h"

#include "base/checked.h"
#include "chat/marks.h"

#include <string.h>

/* ---- ends ---- */

bool ht_message_is_end(const ht_message_format *m, const char *token) {
    for (int i = 0; i < HT_HEADERS_MOST && m->ends[i]; i++)
        if (strcmp(token, m->ends[i]) == 0) return true;
    return strcmp(token, m->begin) == 0 || strcmp(token, m->fields[0]) == 0;
}

ht_message_end ht_message_end_find(const ht_message_format *m, const char *text, size_t n, size_t from) {
    ht_message_end first = {.at = n};
    for (int i = 0; i < HT_HEADERS_MOST && m->ends[i]; i++) {
        const size_t at = ht_mark_find(text, n, from, m->ends[i]);
        if (at < first.at) first = (ht_message_end){at, strlen(m->ends[i])};
    }
    const size_t next = ht_min_size(ht_mark_find(text, n, from, m->begin), ht_mark_find(text, n, from, m->fields[0]));
    return next < first.at ? (ht_message_end){.at = next} : first;
}

size_t ht_message_end_beginning(const ht_message_format *m, const char *text, size_t n) {
    size_t at = ht_min_size(ht_mark_beginning(text, n, m->begin), ht_mark_beginning(text, n, m->fields[0]));
    for (int i = 0; i < HT_HEADERS_MOST && m->ends[i]; i++)
        at = ht_min_size(at, ht_mark_beginning(text, n, m->ends[i]));
    return at;
}

/* ---- headers ---- */

enum { HEADER_MOST = 512 }; /* bytes of a header */

/* Skips the text if it comes now; `cut`: it has begun, and all bytes are read. */
static bool skip_text(const char *text, size_t n, size_t *at, const char *expected, bool *cut) {
    const size_t length = strlen(expected), left = n - *at;
    if (left >= length && memcmp(text + *at, expected, length) == 0) {
        *at += length;
        *cut = false;
        return true;
    }
    *cut = *cut || (left < length && memcmp(text + *at, expected, left) == 0);
    return false;
}

static size_t word_length(const char *text, size_t n) {
    size_t length = 0;
    while (length < n && !ht_is_blank(text[length]) && text[length] != '<') length++;
    return length;
}

/* Skips the next field with its word, or a further word. */
static bool skip_field(const ht_message_format *m, const char *text, size_t n, size_t *at, ht_message_header *h,
                       bool *cut) {
    for (int i = 0; i < HT_HEADERS_MOST && m->fields[i]; i++) {
        if (!skip_text(text, n, at, m->fields[i], cut)) continue;
        const size_t length = word_length(text + *at, n - *at);
        if (strcmp(m->fields[i], m->recipient) == 0) {
            h->recipient = text + *at;
            h->n_recipient = length;
        }
        h->has_field = true;
        *at += length;
        return true;
    }
    const size_t length = h->has_field && !*cut ? word_length(text + *at, n - *at) : 0;
    *at += length;
    return length > 0;
}

ht_header_match ht_message_header_match(const ht_message_format *m, const char *text, size_t n, ht_message_header *h) {
    bool cut = false;
    size_t at = ht_blanks_after(text, n);
    *h = (ht_message_header){0};
    const bool has_begun = skip_text(text, n, &at, m->begin, &cut);
    at += ht_blanks_after(text + at, n - at);
    if (skip_text(text, n, &at, m->role, &cut) && has_begun) h->n_role = at;
    for (;;) {
        at += ht_blanks_after(text + at, n - at);
        if (at == n) break;
        if (skip_text(text, n, &at, m->body, &cut)) {
            if (at > HEADER_MOST) return HT_HEADER_NONE;
            h->n = at;
            h->is_reasoning = memmem(text, at, m->reasoning, strlen(m->reasoning));
            return HT_HEADER_WHOLE;
        }
        if (!skip_field(m, text, n, &at, h, &cut)) return cut && n <= HEADER_MOST ? HT_HEADER_BEGUN : HT_HEADER_NONE;
    }
    return n <= HEADER_MOST ? HT_HEADER_BEGUN : HT_HEADER_NONE;
}
