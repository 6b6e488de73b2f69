#include "tokenizer/unicode.h"

#include "base/error.h"

#include <stdlib.h>
#include <utf8proc.h>

uint8_t ht_unicode_class_far(uint32_t c) {
    for (size_t i = 0; i < ht_unicode_n_far && c >= ht_unicode_far[i].begin; i++)
        if (c < ht_unicode_far[i].end) return ht_unicode_far[i].classes;
    return 0;
}

/* The alphabet: printable bytes of Latin-1 stand for themselves, the 68 others take U+0100 onwards in order. */
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
    switch (form) {
    case HT_NFC: return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case HT_NFD: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case HT_NFKC: return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case HT_NFKD: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    }
    return UTF8PROC_STABLE;
}

static ht_status normalize_run(ht_normal_form form, const char *text, size_t n, ht_text *out, ht_error *err) {
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t size =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &result, form_options(form));
    if (size < 0) {
        free(result);
        if (size == UTF8PROC_ERROR_NOMEM) return ht_fail_memory(err, n, "Unicode normalisation");
        return ht_fail(err, HT_ERR_INTERNAL, "Unicode normalisation failed: %s", utf8proc_errmsg(size));
    }
    ht_text_append(out, result, (size_t)size);
    free(result);
    return HT_OK;
}

/* No code point below these takes part in the form: it neither changes nor composes with what precedes it. */
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

/* Only the stretches around characters that can change go through utf8proc: from the last inert character before them
 * (a base that a mark may compose with) to the next inert one. A newer mark is inert and no base either. */
ht_status ht_unicode_normalize(ht_normal_form form, const char *text, size_t n, ht_text *out, ht_error *err) {
    uint32_t limit = inert_below(form);
    size_t done = 0, base = 0; /* base: where a stretch that begins now would begin */
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
        if (c == 0x130) /* the one character whose lower case is two */
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
