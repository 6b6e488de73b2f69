#include "tokenizer/charsmap.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MOST_GRAPHEME = 5 }; /* bytes of a grapheme that is replaced as a whole */

static uint32_t unit_at(const ht_charsmap *m, size_t i) {
    const unsigned char *p = m->units + i * 4;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Fields of a unit. */
static bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
static uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
static uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }

ht_status ht_charsmap_read(const void *bytes, size_t n, ht_charsmap *out, ht_error *err) {
    *out = (ht_charsmap){.n = n};
    if (n < 4) return ht_fail(err, HT_ERR_FORMAT, "precompiled_charsmap: %zu bytes are too few", n);
    out->bytes = malloc(n + 1);
    if (!out->bytes) return ht_fail_memory(err, n, "precompiled_charsmap");
    memcpy(out->bytes, bytes, n);
    out->bytes[n] = '\0'; /* ends the last replacement */
    out->units = (const unsigned char *)out->bytes;
    const size_t size = unit_at(out, 0);
    if (size % 4 || size > n - 4)
        return ht_fail(err, HT_ERR_FORMAT, "precompiled_charsmap: a trie of %zu bytes in a map of %zu", size, n);
    out->units += 4;
    out->n_units = size / 4;
    out->texts = out->bytes + 4 + size;
    out->n_texts = n - 4 - size;
    return ht_utf8_valid(out->texts, out->n_texts)
               ? HT_OK
               : ht_fail(err, HT_ERR_FORMAT, "precompiled_charsmap: the replacements are not valid UTF-8");
}

void ht_charsmap_free(ht_charsmap *m) {
    free(m->bytes);
    *m = (ht_charsmap){0};
}

/* The replacement of the shortest prefix of a text in the map; NULL: there is none. */
static const char *find(const ht_charsmap *m, const char *text, size_t n) {
    if (!m->n_units) return NULL;
    size_t at = offset_of(unit_at(m, 0));
    for (size_t i = 0; i < n && text[i]; i++) {
        at ^= (unsigned char)text[i];
        if (at >= m->n_units) return NULL;
        const uint32_t unit = unit_at(m, at);
        if (label_of(unit) != (unsigned char)text[i]) return NULL;
        at ^= offset_of(unit);
        if (!has_leaf(unit)) continue;
        if (at >= m->n_units) return NULL;
        const uint32_t begin = value_of(unit_at(m, at));
        if (begin > m->n_texts) return NULL;
        /* A damaged map may point into a character. */
        return ((unsigned char)m->texts[begin] & 0xC0) == 0x80 ? NULL : m->texts + begin;
    }
    return NULL;
}

static size_t count_characters(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Replaces n bytes. Without characters for it, the character before stands for them, too. */
static void replace(const char *by, const char *text, size_t n, ht_changes *out) {
    const size_t n_by = strlen(by), before = count_characters(text, n), after = count_characters(by, n_by);
    for (size_t i = 0, k = 0, length; i < n_by; i += length, k++)
        ht_changes_append(out, ht_utf8_next(by + i, &length), k >= before);
    if (after < before && out->n && !out->failed) out->list[out->n - 1].change -= (int32_t)(before - after);
}

static void apply_to_characters(const ht_charsmap *m, const char *text, size_t n, ht_changes *out) {
    for (size_t i = 0, length; i < n; i += length) {
        const uint32_t c = ht_utf8_next(text + i, &length);
        const char *by = find(m, text + i, length);
        if (by)
            replace(by, text + i, length, out);
        else
            ht_changes_append(out, c, 0);
    }
}

/* End of the grapheme that begins at text[at]. */
static size_t grapheme_end(const char *text, size_t n, size_t at) {
    size_t length;
    utf8proc_int32_t state = 0, c = (utf8proc_int32_t)ht_utf8_next(text + at, &length);
    for (at += length; at < n; at += length) {
        const utf8proc_int32_t next = (utf8proc_int32_t)ht_utf8_next(text + at, &length);
        const bool are_plain = c >= 0x20 && c < 0x7F && next >= 0x20 && next < 0x7F;
        if (are_plain || utf8proc_grapheme_break_stateful(c, next, &state)) break;
        c = next;
    }
    return at;
}

void ht_charsmap_apply(const ht_charsmap *m, const char *text, size_t n, ht_changes *out) {
    for (size_t at = 0, end; at < n && !out->failed; at = end) {
        end = grapheme_end(text, n, at);
        const char *by = end - at <= MOST_GRAPHEME ? find(m, text + at, end - at) : NULL;
        if (by)
            replace(by, text + at, end - at, out);
        else
            apply_to_characters(m, text + at, end - at, out);
    }
}
