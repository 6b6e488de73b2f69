#include "tokenizer/unicode.h"

#include "base/error.h"
#include "base/grow.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

uint8_t ht_unicode_classes[HT_UNICODE_TABLE_END];

static void fill_classes(void) {
    uint8_t *at = ht_unicode_classes;
    for (size_t i = 0; i < ht_unicode_n_runs; i++) {
        memset(at, ht_unicode_runs[i][1], ht_unicode_runs[i][0]);
        at += ht_unicode_runs[i][0];
    }
}

void ht_unicode_prepare(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_classes);
}

uint8_t ht_unicode_class_far(uint32_t c) {
    for (size_t i = 0; i < ht_unicode_n_far && c >= ht_unicode_far[i].begin; i++)
        if (c < ht_unicode_far[i].end) return ht_unicode_far[i].classes;
    return 0;
}

/* GPT-2 byte alphabet: printable Latin-1 bytes map to themselves, the other 68 to U+0100 onwards in order. */
static bool is_own_char(uint32_t c) { return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD); }

uint32_t ht_char_of_byte(unsigned char byte) {
    if (is_own_char(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x100u + 33 + (byte - 0x7Fu);
    return 0x100u + 67; /* 0xAD, the soft hyphen */
}

int ht_byte_of_char(uint32_t c) {
    if (is_own_char(c)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    uint32_t i = c - 0x100;
    if (i < 33) return (int)i;
    return i < 67 ? (int)(i - 33 + 0x7F) : 0xAD;
}

static utf8proc_option_t form_options(ht_normal_form form) {
    const bool composes = form == HT_NFC || form == HT_NFKC, is_compatible = form == HT_NFKC || form == HT_NFKD;
    return UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (is_compatible ? UTF8PROC_COMPAT : 0);
}

typedef struct code_points {
    utf8proc_int32_t *c;
    size_t n, capacity;
} code_points;

static bool decompose(const char *text, size_t n, utf8proc_option_t options, code_points *out) {
    enum { MOST = 32 }; /* code points; the longest decomposition has 18 */
    for (size_t i = 0, length; i < n; i += length) {
        utf8proc_int32_t c = (utf8proc_int32_t)ht_utf8_next(text + i, &length);
        if (!HT_GROW(out->c, out->capacity, out->n + MOST)) return false;
        utf8proc_ssize_t made = utf8proc_decompose_char(c, out->c + out->n, MOST, options, NULL);
        if (made < 0 || made > MOST) return false;
        out->n += (size_t)made;
    }
    return true;
}

static int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/* Canonical ordering: a stable counting sort of each run of marks by combining class. utf8proc_map swaps neighbours
 * instead, quadratic in the length of a run (a minute for a text of marks alone). */
static bool order_marks(code_points *p) {
    utf8proc_int32_t *sorted = malloc((p->n + 1) * sizeof *sorted);
    if (!sorted) return false;
    for (size_t begin = 0, end; begin < p->n; begin = end) {
        for (end = begin; end < p->n && combining_class(p->c[end]);) end++;
        if (end - begin > 1) {
            size_t place[257] = {0}; /* next output position of each class */
            for (size_t i = begin; i < end; i++) place[combining_class(p->c[i]) + 1]++;
            for (int k = 1; k < 257; k++) place[k] += place[k - 1];
            for (size_t i = begin; i < end; i++) sorted[place[combining_class(p->c[i])]++] = p->c[i];
            memcpy(p->c + begin, sorted, (end - begin) * sizeof *sorted);
        }
        if (end == begin) end++;
    }
    free(sorted);
    return true;
}

static ht_status normalize_run(ht_normal_form form, const char *text, size_t n, ht_text *out, ht_error *err) {
    code_points points = {0};
    utf8proc_option_t options = form_options(form);
    if (!decompose(text, n, options, &points) || !order_marks(&points)) {
        free(points.c);
        return ht_fail_memory(err, n, "Unicode normalisation");
    }
    utf8proc_ssize_t made = (utf8proc_ssize_t)points.n;
    if (options & UTF8PROC_COMPOSE) made = utf8proc_normalize_utf32(points.c, made, options);
    for (utf8proc_ssize_t i = 0; i < made; i++) ht_text_append_utf8(out, (uint32_t)points.c[i]);
    free(points.c);
    return made < 0 ? ht_fail(err, HT_ERR_INTERNAL, "Unicode normalisation failed: %s", utf8proc_errmsg(made)) : HT_OK;
}

/* First code point that may change in the form or compose with its predecessor; all lower ones are inert. */
static uint32_t inert_below(ht_normal_form form) { return form == HT_NFC ? 0x300 : 0x80; }

static bool is_newer_mark(uint32_t c) {
    size_t low = 0, high = ht_unicode_n_newer_marks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c >= ht_unicode_newer_marks[middle].end)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ht_unicode_n_newer_marks && c >= ht_unicode_newer_marks[low].begin;
}

/* Normalises only the spans around characters that may change: from the inert character before (a base to compose with)
 * to the next inert one. Newer marks are inert, but no base. */
ht_status ht_unicode_normalize(ht_normal_form form, const char *text, size_t n, ht_text *out, ht_error *err) {
    uint32_t limit = inert_below(form);
    size_t done = 0, base = 0; /* base: start of the span if one began here */
    for (size_t i = 0, length; i < n;) {
        uint32_t c = ht_utf8_next(text + i, &length);
        if (c < limit || is_newer_mark(c)) {
            base = c < limit ? i : i + length;
            i += length;
            continue;
        }
        size_t end = i;
        while (end < n) {
            c = ht_utf8_next(text + end, &length);
            if (c < limit || is_newer_mark(c)) break;
            end += length;
        }
        ht_text_append(out, text + done, base - done);
        ht_status st = normalize_run(form, text + base, end - base, out, err);
        if (st) return st;
        done = base = i = end;
    }
    ht_text_append(out, text + done, n - done);
    return out->failed ? ht_fail_memory(err, n, "Unicode normalisation") : HT_OK;
}

void ht_unicode_lowercase(const char *text, size_t n, ht_text *out) {
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t c = ht_utf8_next(text + i, &length);
        if (c == 0x130) /* U+0130: the only character with a two-character lower case */
            ht_text_append_str(out, "i\xCC\x87");
        else
            ht_text_append_utf8(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
    }
}

void ht_unicode_repair(const char *text, size_t n, ht_text *out) {
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t used = ht_utf8_decode(text + i, n - i, &c);
        ht_text_append_utf8(out, c);
        i += used;
    }
}
