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
    int32_t *change; /* as ht_changed_char has it */
    size_t n, capacity, change_capacity;
} code_points;

static void free_points(code_points *p) {
    free(p->c);
    free(p->change);
}

static bool decompose(const char *text, size_t n, utf8proc_option_t options, code_points *out) {
    enum { MOST = 32 }; /* code points; the longest decomposition has 18 */
    for (size_t i = 0, length; i < n; i += length) {
        utf8proc_int32_t c = (utf8proc_int32_t)ht_utf8_next(text + i, &length);
        if (!HT_GROW(out->c, out->capacity, out->n + MOST) ||
            !HT_GROW(out->change, out->change_capacity, out->n + MOST))
            return false;
        utf8proc_ssize_t made = utf8proc_decompose_char(c, out->c + out->n, MOST, options, NULL);
        if (made < 0 || made > MOST) return false;
        for (utf8proc_ssize_t k = 0; k < made; k++) out->change[out->n + (size_t)k] = k > 0;
        out->n += (size_t)made;
    }
    return true;
}

static int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

typedef struct point {
    utf8proc_int32_t c;
    int32_t change;
} point;

/* Canonical ordering: a stable counting sort of each run of marks by combining class. utf8proc_map swaps neighbours
 * instead, quadratic in the length of a run (a minute for a text of marks alone). */
static bool order_marks(code_points *p) {
    point *sorted = malloc((p->n + 1) * sizeof *sorted);
    if (!sorted) return false;
    for (size_t begin = 0, end; begin < p->n; begin = end) {
        for (end = begin; end < p->n && combining_class(p->c[end]);) end++;
        if (end - begin > 1) {
            size_t place[257] = {0}; /* next output position of each class */
            for (size_t i = begin; i < end; i++) place[combining_class(p->c[i]) + 1]++;
            for (int k = 1; k < 257; k++) place[k] += place[k - 1];
            for (size_t i = begin; i < end; i++)
                sorted[place[combining_class(p->c[i])]++] = (point){p->c[i], p->change[i]};
            for (size_t i = begin; i < end; i++) {
                p->c[i] = sorted[i - begin].c;
                p->change[i] = sorted[i - begin].change;
            }
        }
        if (end == begin) end++;
    }
    free(sorted);
    return true;
}

static bool compose_pair(utf8proc_int32_t a, utf8proc_int32_t b, utf8proc_int32_t *out) {
    utf8proc_int32_t pair[2] = {a, b};
    if (utf8proc_normalize_utf32(pair, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE) != 1) return false;
    *out = pair[0];
    return true;
}

/* Canonical composition (Unicode standard, 3.11) that keeps the changes, in place. */
static void compose(code_points *p) {
    size_t n = 0, starter = SIZE_MAX; /* characters kept; the index of the last starter */
    int last_class = -1;              /* of the marks after it; -1: there are none */
    for (size_t i = 0; i < p->n; i++) {
        const utf8proc_int32_t c = p->c[i];
        const int class = combining_class(c);
        if (starter != SIZE_MAX && class > last_class && compose_pair(p->c[starter], c, &p->c[starter])) {
            p->change[starter] += p->change[i] - 1;
            continue;
        }
        if (class == 0) starter = n;
        last_class = class == 0 ? -1 : class;
        p->c[n] = c;
        p->change[n++] = p->change[i];
    }
    p->n = n;
}

static ht_status order_run(ht_normal_form form, const char *text, size_t n, code_points *points, ht_error *err) {
    return decompose(text, n, form_options(form), points) && order_marks(points)
               ? HT_OK
               : ht_fail_memory(err, n, "Unicode normalisation");
}

static ht_status normalize_run(ht_normal_form form, const char *text, size_t n, ht_text *out, ht_error *err) {
    code_points points = {0};
    const utf8proc_option_t options = form_options(form);
    const ht_status st = order_run(form, text, n, &points, err);
    utf8proc_ssize_t made = (utf8proc_ssize_t)points.n;
    if (!st && (options & UTF8PROC_COMPOSE)) made = utf8proc_normalize_utf32(points.c, made, options);
    for (utf8proc_ssize_t i = 0; i < made && !st; i++) ht_text_append_utf8(out, (uint32_t)points.c[i]);
    free_points(&points);
    return !st && made < 0 ? ht_fail(err, HT_ERR_INTERNAL, "Unicode normalisation failed: %s", utf8proc_errmsg(made))
                           : st;
}

/* First code point that may change in the form or compose with its predecessor; all lower ones are inert. */
static uint32_t inert_below(ht_normal_form form) { return form == HT_NFC ? 0x300 : 0x80; }

static const ht_unicode_range *find_range(const ht_unicode_range *ranges, size_t n, uint32_t c) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c >= ranges[middle].end)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && c >= ranges[low].begin ? &ranges[low] : NULL;
}

static bool is_newer_mark(uint32_t c) { return find_range(ht_unicode_newer_marks, ht_unicode_n_newer_marks, c); }

uint8_t ht_unicode_dropped(uint32_t c) {
    if (c >= 0x20 && c < 0x7F) return 0;
    const ht_unicode_range *range = find_range(ht_unicode_drops, ht_unicode_n_drops, c);
    return range ? range->classes : 0;
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

void ht_changes_append(ht_changes *changes, uint32_t c, int32_t change) {
    changes->failed = changes->failed || !HT_GROW(changes->list, changes->capacity, changes->n + 1);
    if (!changes->failed) changes->list[changes->n++] = (ht_changed_char){c, change};
}

ht_status ht_unicode_normalize_changes(ht_normal_form form, const char *text, size_t n, ht_changes *out,
                                       ht_error *err) {
    code_points points = {0};
    for (size_t i = 0, end, length; i < n; i = end) {
        uint32_t c = ht_utf8_next(text + i, &length);
        end = i + length;
        if (is_newer_mark(c)) {
            ht_changes_append(out, c, 0);
            continue;
        }
        while (end < n && !is_newer_mark(ht_utf8_next(text + end, &length))) end += length;
        points.n = 0;
        const ht_status st = order_run(form, text + i, end - i, &points, err);
        if (st) {
            free_points(&points);
            return st;
        }
        if (form_options(form) & UTF8PROC_COMPOSE) compose(&points);
        for (size_t k = 0; k < points.n; k++) ht_changes_append(out, (uint32_t)points.c[k], points.change[k]);
    }
    free_points(&points);
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
