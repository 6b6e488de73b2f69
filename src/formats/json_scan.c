#include "formats/json_scan.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"

#include <stdarg.h>
#include <stdio.h>

enum { VALUE, OPENED, AFTER }; /* expected next: a value, a container's first item or end, what follows a value */
enum { FOUND_BYTES = 24 };     /* of a word quoted in a message */

/* ---- errors ---- */

/* Sets the event's position to the byte at `at`, on the current line. */
static void mark(ht_json_scanner *s, size_t at) {
    s->line = s->row;
    s->column = (uint32_t)(at - s->line_begin - s->continuation + 1);
}

ht_json_event ht_json_scan_fail(ht_json_scanner *s, ht_status status, const char *fmt, ...) {
    if (s->status) return HT_SCAN_FAILED;
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    ht_utf8_trim(message);
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = ' ';
    const char *name = s->options.name;
    s->status = ht_fail(s->err, status, "%s%sline %u, column %u: %s", name ? name : "", name ? ": " : "", s->line,
                        s->column, message);
    return HT_SCAN_FAILED;
}

ht_json_event ht_json_scan_fail_repeated(ht_json_scanner *s) {
    return ht_json_scan_fail(s, HT_ERR_FORMAT, "expected each member once, found `%.*s` again",
                             (int)ht_utf8_complete_prefix(s->bytes, ht_min_size(s->n_bytes, 64)), s->bytes);
}

ht_json_event ht_json_scan_fail_memory(ht_json_scanner *s) {
    if (!s->status) s->status = ht_fail_memory(s->err, s->n, s->options.name ? s->options.name : "JSON");
    return HT_SCAN_FAILED;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '+' || c == '.';
}

/* Bytes of the character at `at`; 0: invalid UTF-8. */
static size_t character_at(const ht_json_scanner *s, size_t at) {
    uint32_t code;
    const size_t n = ht_utf8_decode(s->text + at, s->n - at, &code);
    return code == 0xFFFD && (n != 3 || memcmp(s->text + at, "\xEF\xBF\xBD", 3) != 0) ? 0 : n;
}

/* Fails at a byte of the current line: "expected a comma, found `x`". */
static ht_json_event expected(ht_json_scanner *s, size_t at, const char *what) {
    char found[FOUND_BYTES + 16] = "the end of the text";
    size_t n = 0;
    mark(s, at);
    if (at < s->n) {
        const unsigned char c = (unsigned char)s->text[at];
        while (n < FOUND_BYTES && at + n < s->n && is_word(s->text[at + n])) n++;
        if (!n) n = character_at(s, at);
        if (c == '\n' || c == '\r')
            snprintf(found, sizeof found, "a line break");
        else if (c < 0x20 || c == 0x7F || !n)
            snprintf(found, sizeof found, "the byte 0x%02X", c);
        else
            snprintf(found, sizeof found, "`%.*s`", (int)n, s->text + at);
    }
    return ht_json_scan_fail(s, HT_ERR_FORMAT, "expected %s, found %s", what, found);
}

/* ---- tokens ---- */

static void skip_space(ht_json_scanner *s) {
    const char *text = s->text;
    size_t at = s->at;
    for (; at < s->n; at++) {
        const char c = text[at];
        if (c == '\n') {
            s->row++;
            s->line_begin = at + 1;
            s->continuation = 0;
        } else if (c != ' ' && c != '\t' && c != '\r')
            break;
    }
    s->at = at;
}

static char peek(const ht_json_scanner *s) { return s->at < s->n ? s->text[s->at] : '\0'; }

/* Reads the four digits after `\u`; false with an error when they are missing. */
static bool hex(ht_json_scanner *s, uint32_t *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        const char c = peek(s);
        const bool is_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (!is_letter && (c < '0' || c > '9')) return expected(s, s->at, "four hexadecimal digits after `\\u`"), false;
        *unit = *unit << 4 | (uint32_t)(is_letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    return true;
}

/* Appends the character of the escape at a backslash. */
static bool escape(ht_json_scanner *s) {
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char c = s->at + 1 < s->n ? s->text[s->at + 1] : '\0';
    const char *letter = c ? strchr(letters, c) : NULL;
    uint32_t unit, low = 0;
    if (c != 'u' && !letter) return expected(s, s->at + 1, "an escape such as `\\n` after the backslash"), false;
    s->at += 2;
    if (letter) {
        ht_text_append(&s->unescaped, bytes + (letter - letters), 1);
        return true;
    }
    if (!hex(s, &unit)) return false;
    if (unit >= 0xD800 && unit < 0xDC00 && s->n - s->at >= 2 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u') {
        const size_t second = s->at;
        s->at += 2;
        if (!hex(s, &low)) return false;
        if (low >= 0xDC00 && low < 0xE000)
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        else
            s->at = second;
    }
    const bool is_nul = !unit && !s->options.keeps_nul;
    if (s->options.replaced) {
        s->options.replaced->nul |= is_nul;
        s->options.replaced->surrogate |= unit >= 0xD800 && unit < 0xE000;
    }
    ht_text_append_utf8(&s->unescaped, is_nul ? 0xFFFD : unit);
    return true;
}

/* Skips the unescaped characters of a string; false with an error for invalid UTF-8. */
static bool plain_characters(ht_json_scanner *s) {
    const char *text = s->text;
    size_t at = s->at;
    for (; at < s->n; at++) {
        const unsigned char c = (unsigned char)text[at];
        if (c < 0x20 || c == '"' || c == '\\') break;
        if (c < 0x80) continue;
        const size_t n = character_at(s, at);
        if (!n) return expected(s, at, "UTF-8"), false;
        s->continuation += n - 1;
        at += n - 1;
    }
    s->at = at;
    return true;
}

/* The string at a quote: `bytes` in the text itself, or, with escapes, in `unescaped`. */
static bool string(ht_json_scanner *s) {
    size_t begin = ++s->at;
    bool has_escapes = false;
    for (;;) {
        if (!plain_characters(s)) return false;
        const char c = peek(s);
        if (c != '"' && c != '\\')
            return expected(s, s->at, s->at < s->n ? "control characters as escapes" : "`\"` at the end of the string"),
                   false;
        if (c == '\\' && !has_escapes) ht_text_clear(&s->unescaped);
        has_escapes = has_escapes || c == '\\';
        s->bytes = s->text + begin;
        s->n_bytes = s->at - begin;
        if (has_escapes) ht_text_append(&s->unescaped, s->bytes, s->n_bytes);
        if (c == '"') break;
        if (!escape(s)) return false;
        begin = s->at;
    }
    s->at++;
    if (!has_escapes) return true;
    if (s->unescaped.failed) return ht_json_scan_fail_memory(s), false;
    s->bytes = s->unescaped.data;
    s->n_bytes = s->unescaped.len;
    return true;
}

static bool digits(ht_json_scanner *s) {
    const size_t begin = s->at;
    while (peek(s) >= '0' && peek(s) <= '9') s->at++;
    return s->at > begin || (expected(s, s->at, "a digit"), false);
}

static ht_json_event number(ht_json_scanner *s) {
    const size_t begin = s->at;
    s->at += peek(s) == '-';
    if (peek(s) == '0')
        s->at++;
    else if (!digits(s))
        return HT_SCAN_FAILED;
    if (peek(s) == '.') {
        s->at++;
        if (!digits(s)) return HT_SCAN_FAILED;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        if (!digits(s)) return HT_SCAN_FAILED;
    }
    s->bytes = s->text + begin;
    s->n_bytes = s->at - begin;
    return HT_SCAN_NUMBER;
}

/* true, false, null, and Python's numbers that are not finite. */
static ht_json_event word(ht_json_scanner *s) {
    static const struct {
        const char *word;
        ht_json_event event;
    } words[] = {{"true", HT_SCAN_TRUE},  {"false", HT_SCAN_FALSE},     {"null", HT_SCAN_NULL},
                 {"NaN", HT_SCAN_NUMBER}, {"Infinity", HT_SCAN_NUMBER}, {"-Infinity", HT_SCAN_NUMBER}};
    size_t n = 0;
    while (s->at + n < s->n && is_word(s->text[s->at + n])) n++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (n != strlen(words[i].word) || memcmp(s->text + s->at, words[i].word, n) != 0) continue;
        if (words[i].event == HT_SCAN_NUMBER && !s->options.as_python) break;
        s->bytes = s->text + s->at;
        s->n_bytes = n;
        s->at += n;
        return words[i].event;
    }
    return expected(s, s->at, "a value");
}

/* ---- structure ---- */

static bool in_object(const ht_json_scanner *s) {
    const unsigned top = (unsigned)s->depth - 1;
    return s->is_object[top / 64] >> top % 64 & 1;
}

static ht_json_event open_container(ht_json_scanner *s, bool is_object) {
    const unsigned top = (unsigned)s->depth;
    if (s->depth >= s->options.depth_max)
        return ht_json_scan_fail(s, HT_ERR_LIMIT, "nested deeper than %d levels", s->options.depth_max);
    s->is_object[top / 64] = (s->is_object[top / 64] & ~(1ull << top % 64)) | (uint64_t)is_object << top % 64;
    s->depth++;
    s->at++;
    s->state = OPENED;
    return is_object ? HT_SCAN_OBJECT : HT_SCAN_ARRAY;
}

static ht_json_event value(ht_json_scanner *s) {
    const char c = peek(s);
    mark(s, s->at);
    if (!s->depth && !s->options.any_value && c != '{') return expected(s, s->at, "an object (`{`)");
    if (c == '{' || c == '[') return open_container(s, c == '{');
    s->state = AFTER;
    if (c == '"') return string(s) ? HT_SCAN_STRING : HT_SCAN_FAILED;
    const bool is_number = (c >= '0' && c <= '9') || (c == '-' && (s->at + 1 == s->n || s->text[s->at + 1] != 'I'));
    return is_number ? number(s) : word(s);
}

static ht_json_event key(ht_json_scanner *s) {
    mark(s, s->at);
    if (peek(s) != '"') return expected(s, s->at, "the name of a member in quotes");
    if (!string(s)) return HT_SCAN_FAILED;
    skip_space(s);
    if (peek(s) != ':') return expected(s, s->at, "a colon after the name of a member");
    s->at++;
    s->state = VALUE;
    return HT_SCAN_KEY;
}

static ht_json_event close_container(ht_json_scanner *s) {
    mark(s, s->at);
    s->at++;
    s->depth--;
    s->state = AFTER;
    return HT_SCAN_CLOSE;
}

ht_json_event ht_json_scan_next(ht_json_scanner *s) {
    if (s->status) return HT_SCAN_FAILED;
    skip_space(s);
    if (s->state == VALUE) return value(s);
    if (!s->depth) return s->at == s->n ? HT_SCAN_END : expected(s, s->at, "nothing after the value");
    const bool is_object = in_object(s);
    if (s->at < s->n && s->text[s->at] == (is_object ? '}' : ']')) return close_container(s);
    if (s->state == AFTER) {
        if (peek(s) != ',') return expected(s, s->at, is_object ? "a comma or `}`" : "a comma or `]`");
        mark(s, s->at);
        if (++s->n_commas >= s->options.values_max)
            return ht_json_scan_fail(s, HT_ERR_LIMIT, "more than %zu values", s->options.values_max);
        s->at++;
        skip_space(s);
    }
    return is_object ? key(s) : value(s);
}

void ht_json_scan_begin(ht_json_scanner *s, const char *text, size_t n, const ht_json_options *options, ht_error *err) {
    *s = (ht_json_scanner){.options = *options, .err = err, .text = text, .n = n, .column = 1};
    ht_json_options *o = &s->options;
    s->line = s->row = o->first_line ? o->first_line : 1;
    if (!o->depth_max) o->depth_max = HT_JSON_DEPTH;
    if (o->depth_max > HT_JSON_DEPTH_MAX) o->depth_max = HT_JSON_DEPTH_MAX;
    if (!o->values_max || o->values_max > HT_JSON_VALUES_MAX) o->values_max = HT_JSON_VALUES_MAX;
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) s->at = s->line_begin = 3;
    if (ht_is_lfs_pointer(text, n))
        s->status = ht_fail(err, HT_ERR_FORMAT, "%s%s%s", o->name ? o->name : "", o->name ? ": " : "", HT_LFS_POINTER);
}

ht_json_event ht_json_scan_skip(ht_json_scanner *s, ht_json_event event) {
    if (event != HT_SCAN_OBJECT && event != HT_SCAN_ARRAY) return event;
    for (const int outside = s->depth - 1; event > HT_SCAN_END && s->depth > outside;) event = ht_json_scan_next(s);
    return event;
}

ht_status ht_json_scan_end(ht_json_scanner *s) {
    ht_text_discard(&s->unescaped);
    return s->status;
}
