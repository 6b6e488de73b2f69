/* Pre-tokenizer scanners: hand-written equivalents of common Split patterns, each returning the end of the match that
 * begins at text[at]. These patterns match at every position. */
#include "tokenizer/tokenizer.h"

#include <limits.h>
#include <string.h>
#include <utf8proc.h>

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

static size_t skip_bytes(const char *text, size_t n, size_t at, const char *bytes, int most) {
    while (most-- > 0 && at < n && text[at] && strchr(bytes, text[at])) at++;
    return at;
}

/* \p{N}{1,most}; `at` if there is none. */
static size_t scan_numbers(const char *text, size_t n, size_t at, int most) {
    size_t length;
    for (int i = 0; i < most && at < n && (class_at(text, at, &length) & N); i++) at += length;
    return at;
}

/*  ?[^\s[word]\p{N}]+[breaks]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t scan_rest(const char *text, size_t n, size_t at, uint8_t word, const char *breaks, int most) {
    size_t length, other = at + (text[at] == ' ');
    if (other < n && !(class_at(text, other, &length) & (SPACE | N | word)))
        return skip_bytes(text, n, run_without(text, n, other + length, SPACE | N | word), breaks, most);
    size_t end = scan_line_breaks(text, n, at);
    return end > at ? end : scan_spaces(text, n, at);
}

/* End of a word from its first letter on: [word]+, or with `phrases` (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ */
static size_t scan_word(const char *text, size_t n, size_t at, uint8_t word, bool phrases) {
    size_t length, end = run_of(text, n, at, phrases ? L | M : word);
    while (phrases && end + 1 < n && text[end] == ' ' && (class_at(text, end + 1, &length) & L))
        end = run_of(text, n, end + 1, L | M);
    return end;
}

/* A variant of Llama 3's pattern. */
typedef struct llama3 {
    int digits;         /* most digits of a number */
    uint8_t word;       /* classes of a word's characters */
    bool phrases;       /* of words with one space between */
    const char *breaks; /* what may follow other characters */
    int n_breaks;       /* how many of them */
} llama3;

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[word]+|\p{N}{1,digits}| ?[^\s[word]\p{N}]+[breaks]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
static size_t scan_llama3(const char *text, size_t n, size_t at, const llama3 *v) {
    if (text[at] == '\'') {
        size_t end = scan_contraction_any_case(text, n, at);
        if (end > at) return end;
    }
    size_t length, next;
    uint8_t class = class_at(text, at, &length);
    if (class & v->word) return scan_word(text, n, at, v->word, v->phrases);
    if (class & N) return scan_numbers(text, n, at, v->digits);
    if (text[at] != '\r' && text[at] != '\n' && at + length < n && (class_at(text, at + length, &next) & v->word))
        return scan_word(text, n, at + length, v->word, v->phrases);
    return scan_rest(text, n, at, v->word, v->breaks, v->n_breaks);
}

#define VARIANT(name, ...)                                                                                             \
    static size_t name(const char *text, size_t n, size_t at) {                                                        \
        return scan_llama3(text, n, at, &(llama3){__VA_ARGS__});                                                       \
    }
VARIANT(scan_digits3, 3, L, false, "\r\n", INT_MAX)
VARIANT(scan_digits1, 1, L, false, "\r\n", INT_MAX)
VARIANT(scan_digits, INT_MAX, L, false, "\r\n", INT_MAX)
VARIANT(scan_digits1_marks, 1, L | M, false, "\r\n", INT_MAX)
VARIANT(scan_seed, 1, L, false, "", 0)
VARIANT(scan_exaone, 1, L, true, "\r\n/", 1)

/* ---- words by their case ---- */

/* Unicode's script Han. */
static bool is_han(uint32_t c) {
    static const uint32_t ranges[][2] = {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
                                         {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
                                         {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
                                         {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
                                         {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
                                         {0x30000, 0x3134A}, {0x31350, 0x323AF}};
    size_t i = 0;
    while (i < sizeof ranges / sizeof *ranges && c > ranges[i][1]) i++;
    return i < sizeof ranges / sizeof *ranges && c >= ranges[i][0];
}

enum { UPPER = 1, LOWER = 2 }; /* both: [\p{Lm}\p{Lo}\p{M}] */

static int case_of(uint32_t c, bool no_han) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? UPPER : c >= 'a' && c <= 'z' ? LOWER : 0;
    const uint8_t class = ht_unicode_class(c);
    if (!(class & (L | M)) || (no_han && is_han(c))) return 0;
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT) return UPPER;
    return category == UTF8PROC_CATEGORY_LL ? LOWER : UPPER | LOWER;
}

static size_t run_of_case(const char *text, size_t n, size_t at, int wanted, bool no_han) {
    for (size_t length; at < n && (case_of(ht_utf8_next(text + at, &length), no_han) & wanted);) at += length;
    return at;
}

/* [upper]*[lower]+ ; `at` if it does not match. */
static size_t scan_lower_word(const char *text, size_t n, size_t at, bool no_han) {
    size_t end = at, last = at, length; /* last: end of the last character that is lower, too */
    for (int found; end < n && ((found = case_of(ht_utf8_next(text + end, &length), no_han)) & UPPER);) {
        end += length;
        if (found & LOWER) last = end;
    }
    const size_t lower = run_of_case(text, n, end, LOWER, no_han);
    return lower > end ? lower : last;
}

/* [upper]+[lower]* ; `at` if it does not match. */
static size_t scan_upper_word(const char *text, size_t n, size_t at, bool no_han) {
    const size_t end = run_of_case(text, n, at, UPPER, no_han);
    return end > at ? run_of_case(text, n, end, LOWER, no_han) : at;
}

/* [^\r\n\p{L}\p{N}]?[upper]*[lower]+|[^\r\n\p{L}\p{N}]?[upper]+[lower]* ; `at` if it does not match. */
static size_t scan_cased_word(const char *text, size_t n, size_t at, bool no_han) {
    size_t length, end;
    const bool may_lead = !(class_at(text, at, &length) & (L | N)) && text[at] != '\r' && text[at] != '\n';
    const size_t word = at + length;
    if (may_lead && (end = scan_lower_word(text, n, word, no_han)) > word) return end;
    if ((end = scan_lower_word(text, n, at, no_han)) > at) return end;
    if (may_lead && (end = scan_upper_word(text, n, word, no_han)) > word) return end;
    return scan_upper_word(text, n, at, no_han);
}

/* The pattern of GPT-4o and its variants: a cased word with contractions, numbers, the rest. */
static size_t scan_cased(const char *text, size_t n, size_t at, int digits, bool contractions, bool kimi) {
    size_t length, end;
    if (kimi && is_han(ht_utf8_next(text + at, &length))) { /* [\p{Han}]+ */
        while (at < n && is_han(ht_utf8_next(text + at, &length))) at += length;
        return at;
    }
    if ((end = scan_cased_word(text, n, at, kimi)) > at)
        return contractions && end < n && text[end] == '\'' ? scan_contraction_any_case(text, n, end) : end;
    end = scan_numbers(text, n, at, digits);
    return end > at ? end : scan_rest(text, n, at, L, kimi ? "\r\n" : "\r\n/", INT_MAX);
}

static size_t scan_gpt4o(const char *text, size_t n, size_t at) { return scan_cased(text, n, at, 3, true, false); }
static size_t scan_youtu(const char *text, size_t n, size_t at) { return scan_cased(text, n, at, 1, true, false); }
static size_t scan_tekken(const char *text, size_t n, size_t at) { return scan_cased(text, n, at, 1, false, false); }
static size_t scan_kimi(const char *text, size_t n, size_t at) { return scan_cased(text, n, at, 3, true, true); }

/* ---- digits in groups of three, from the right ---- */

static bool is_digit(const char *text, size_t n, size_t at, size_t *length) {
    if (at >= n) return false;
    const uint32_t c = ht_utf8_next(text + at, length);
    return c < 0x80 ? c >= '0' && c <= '9' : utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

static size_t skip_digits(const char *text, size_t n, size_t at, size_t most, size_t *count) {
    size_t length;
    for (*count = 0; *count < most && is_digit(text, n, at, &length); ++*count) at += length;
    return at;
}

/* Whether a digit ends before text[at]. */
static bool follows_digit(const char *text, size_t at) {
    size_t before = at, length;
    while (before && ((unsigned char)text[--before] & 0xC0) == 0x80) {}
    return before < at && is_digit(text, at, before, &length);
}

/* Oniguruma's \w. */
static bool is_word_at(const char *text, size_t n, size_t at) {
    if (at >= n) return false;
    size_t length;
    const uint32_t c = ht_utf8_next(text + at, &length);
    if ((ht_unicode_class(c) & (L | M)) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE)) return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: /* letters in circles and squares */
        return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
               (c >= 0x1F170 && c <= 0x1F189);
    }
}

/* The next place that cuts the text at the matches of one of two patterns; matching tries quadratic time on long runs.
 *
 *   (?=(\d{3})+(?!\d))          before each whole group
 *   \d{1,3}(?=(?:\d{3})*\b)     around each group, if no word character follows the digits (separate) */
static size_t scan_groups(const char *text, size_t n, size_t at, bool separate) {
    size_t length, count, end;
    size_t begin = at;
    if (follows_digit(text, at) && is_digit(text, n, at, &length)) { /* a whole group of a run cut before */
        begin = skip_digits(text, n, at, 3, &count);
        if (separate || is_digit(text, n, begin, &length)) return begin;
    }
    for (; begin < n; begin = end) {
        end = skip_digits(text, n, begin, n, &count);
        if (!count) {
            (void)ht_utf8_next(text + begin, &length);
            end = begin + length;
        } else if (separate && !is_word_at(text, n, end)) {
            return begin > at ? begin : skip_digits(text, n, begin, count % 3 ? count % 3 : 3, &count);
        } else if (!separate && count % 3 == 0 && begin > at) {
            return begin;
        } else if (!separate && count > 3) {
            return skip_digits(text, n, begin, count % 3 ? count % 3 : 3, &count);
        }
    }
    return n;
}

static size_t scan_whole_groups(const char *text, size_t n, size_t at) { return scan_groups(text, n, at, false); }
static size_t scan_separate_groups(const char *text, size_t n, size_t at) { return scan_groups(text, n, at, true); }

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES
#define REST_SLASH   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES
#define CASED(no, suffix)                                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" no "]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" no "]+" suffix     \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" no "]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" no "]*" suffix

ht_scan_fn *ht_scan_known(const char *pattern, size_t n, bool isolated) {
    static const struct {
        const char *pattern;
        ht_scan_fn *scan;
        bool has_gaps; /* the pattern does not match everywhere: for Isolated only, where gaps are like matches */
    } known[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", ht_scan_gpt2, false},
        {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST, scan_digits3, false},
        {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST, scan_digits1, false},
        {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES,
         scan_digits1_marks, false},
        {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+" REST, scan_digits, false},
        {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES, scan_seed, false},
        {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
                      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
         scan_exaone, false},
        {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
         "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
         scan_digits3, false},
        {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
         "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
         scan_digits1, false},
        {CASED("", CONTRACTIONS "?") "|\\p{N}{1,3}" REST_SLASH, scan_gpt4o, false},
        {CASED("", CONTRACTIONS "?") "|\\p{N}" REST_SLASH, scan_youtu, false},
        {CASED("", "") "|\\p{N}" REST_SLASH, scan_tekken, false},
        {"[\\p{Han}]+|" CASED("&&[^\\p{Han}]", CONTRACTIONS "?") "|\\p{N}{1,3}" REST, scan_kimi, false},
        {"(?=(\\d{3})+(?!\\d))", scan_whole_groups, true},
        {"\\d{1,3}(?=(?:\\d{3})*\\b)", scan_separate_groups, true},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == n && memcmp(known[i].pattern, pattern, n) == 0)
            return known[i].has_gaps && !isolated ? NULL : known[i].scan;
    return NULL;
}
