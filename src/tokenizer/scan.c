/* Pre-tokenizer scanners: hand-written equivalents of common Split patterns, each returning the end of the match that
 * begins at text[at]. These patterns match at every position. */
#include "tokenizer/tokenizer.h"

#include <string.h>

#define L     HT_CLASS_LETTER
#define N     HT_CLASS_NUMBER
#define M     HT_CLASS_MARK
#define SPACE HT_CLASS_SPACE

static uint8_t class_at(const char *text, size_t at, size_t *length) {
    return ht_unicode_class(ht_utf8_next(text + at, length));
}

/* End of the run of characters with any of `classes`. */
static size_t run_of(const char *text, size_t n, size_t at, uint8_t classes) {
    size_t length;
    while (at < n && (class_at(text, at, &length) & classes)) at += length;
    return at;
}

/* End of the run of characters without any of `classes`. */
static size_t run_without(const char *text, size_t n, size_t at, uint8_t classes) {
    size_t length;
    while (at < n && !(class_at(text, at, &length) & classes)) at += length;
    return at;
}

/* \s+(?!\S)|\s+ : a run of spaces, without its last one if the run is longer than one and followed by text. */
static size_t scan_spaces(const char *text, size_t n, size_t at) {
    size_t end = at, last = at, length;
    while (end < n && (class_at(text, end, &length) & SPACE)) {
        last = end;
        end += length;
    }
    return end < n && last > at ? last : end;
}

/* 's 't 're 've 'm 'll 'd */
static size_t scan_contraction(const char *text, size_t n, size_t at) {
    if (n - at < 2) return at;
    char a = text[at + 1], b = n - at > 2 ? text[at + 2] : '\0';
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    return a == 's' || a == 't' || a == 'm' || a == 'd' ? at + 2 : at;
}

/* Contractions in any case; case-insensitively U+017F (long s) equals s. */
static size_t scan_contraction_any_case(const char *text, size_t n, size_t at) {
    if (n - at < 2) return at;
    if (n - at > 2 && memcmp(text + at + 1, "\xC5\xBF", 2) == 0) return at + 3;
    char lower[3] = {'\'', (char)(text[at + 1] | 0x20), n - at > 2 ? (char)(text[at + 2] | 0x20) : '\0'};
    return at + scan_contraction(lower, n - at > 2 ? 3 : 2, 0);
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t ht_scan_gpt2(const char *text, size_t n, size_t at) {
    if (text[at] == '\'') {
        size_t end = scan_contraction(text, n, at);
        if (end > at) return end;
    }
    size_t length, word = at + (text[at] == ' ');
    if (word < n) {
        uint8_t class = class_at(text, word, &length);
        if (class & L) return run_of(text, n, word + length, L);
        if (class & N) return run_of(text, n, word + length, N);
        if (!(class & SPACE)) return run_without(text, n, word + length, SPACE | L | N);
    }
    return scan_spaces(text, n, at);
}

/* \s*[\r\n]+ : up to the last line break within the run of spaces; `at` if there is none. */
static size_t scan_line_breaks(const char *text, size_t n, size_t at) {
    size_t end = at, length;
    for (size_t i = at; i < n && (class_at(text, i, &length) & SPACE); i += length)
        if (text[i] == '\r' || text[i] == '\n') end = i + 1;
    return end;
}

static size_t skip_line_breaks(const char *text, size_t n, size_t at) {
    while (at < n && (text[at] == '\r' || text[at] == '\n')) at++;
    return at;
}

/* Llama 3's pattern and its variants:
 *
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[word]+|\p{N}{1,digits}| ?[^\s[word]\p{N}]+[\r\n]*|\s*[\r\n]+|
 *   \s+(?!\S)|\s+
 *
 * where word is \p{L}, or \p{L}\p{M} */
static size_t scan_llama3(const char *text, size_t n, size_t at, int digits, uint8_t word) {
    if (text[at] == '\'') {
        size_t end = scan_contraction_any_case(text, n, at);
        if (end > at) return end;
    }
    size_t length, next;
    uint8_t class = class_at(text, at, &length);
    if (class & word) return run_of(text, n, at + length, word);
    if (class & N) {
        size_t end = at;
        for (int i = 0; i < digits && end < n && (class_at(text, end, &length) & N); i++) end += length;
        return end;
    }
    if (text[at] != '\r' && text[at] != '\n' && at + length < n && (class_at(text, at + length, &next) & word))
        return run_of(text, n, at + length + next, word);
    size_t other = at + (text[at] == ' ');
    if (other < n && !(class_at(text, other, &length) & (SPACE | N | word)))
        return skip_line_breaks(text, n, run_without(text, n, other + length, SPACE | N | word));
    size_t end = scan_line_breaks(text, n, at);
    return end > at ? end : scan_spaces(text, n, at);
}

static size_t scan_digits3(const char *text, size_t n, size_t at) { return scan_llama3(text, n, at, 3, L); }
static size_t scan_digits1(const char *text, size_t n, size_t at) { return scan_llama3(text, n, at, 1, L); }
static size_t scan_digits1_marks(const char *text, size_t n, size_t at) { return scan_llama3(text, n, at, 1, L | M); }

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define REST         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

ht_scan_fn *ht_scan_known(const char *pattern, size_t n) {
    static const struct {
        const char *pattern;
        ht_scan_fn *scan;
    } known[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", ht_scan_gpt2},
        {CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST, scan_digits3},
        {CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" REST, scan_digits1},
        {CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
                      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         scan_digits1_marks},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == n && memcmp(known[i].pattern, pattern, n) == 0) return known[i].scan;
    return NULL;
}
