#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include "base/error.h"
#include "base/text.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ht_regex {
    pcre2_code *code;
};

struct ht_regex_work {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

#define MAX_PATTERN 16384
#define STACK_BYTES (256u << 20) /* most that one match may use: repeated groups need some for each character */
#define WORD_SET    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD        WORD_SET "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}" /* Oniguruma's \w and \b take these, its [\w] does not */
#define BOUNDARY    "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"

static ht_status refuse(const char *what, ht_error *err) {
    return ht_fail(err, HT_ERR_UNSUPPORTED, "the regular expression uses %s, which is not supported", what);
}

/* Whether a property is a script. PCRE2 would match the script's extensions, too. */
static bool is_script(const char *name, size_t n) {
    char pattern[48];
    int code;
    PCRE2_SIZE at;
    if (n < 3 || n > 32) return false; /* shorter: a general category */
    const int length = snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)n, name);
    pcre2_code *found = pcre2_compile((PCRE2_SPTR)pattern, (size_t)length, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(found);
    return found;
}

/* Translates \p{name}, \P{name} and \p{^name} at p. */
static size_t translate_property(const char *p, size_t n, ht_text *out) {
    const char *end = n > 3 && p[2] == '{' ? memchr(p, '}', n) : NULL;
    const size_t begin = end && p[3] == '^' ? 4 : 3, used = end ? (size_t)(end - p) + 1 : 2;
    if (!end || !is_script(p + begin, used - 1 - begin)) {
        ht_text_append(out, p, used);
        return used;
    }
    ht_text_append(out, p, begin);
    ht_text_append_str(out, "sc:");
    ht_text_append(out, p + begin, used - begin);
    return used;
}

/* Translates the escape at p[0] == '\\'; returns the bytes consumed, 0 when unsupported. */
static size_t translate_escape(const char *p, size_t n, bool in_class, ht_text *out, ht_error *err) {
    if (n < 2) return refuse("a backslash at the end", err), 0;
    switch (p[1]) {
    case 's': ht_text_append_str(out, "\\p{White_Space}"); return 2; /* PCRE2's \s also matches U+180E */
    case 'S': ht_text_append_str(out, "\\P{White_Space}"); return 2;
    case 'w': ht_text_append_str(out, in_class ? WORD_SET : "[" WORD "]"); return 2;
    case 'W':
        if (in_class) return refuse("\\W inside a class", err), 0;
        ht_text_append_str(out, "[^" WORD "]");
        return 2;
    case 'b':
        if (in_class) break;
        ht_text_append_str(out, BOUNDARY);
        return 2;
    case 'p':
    case 'P': return translate_property(p, n, out);
    default: break;
    }
    if (strchr("bBhHRXKGykgzZA", p[1]) || (p[1] >= '1' && p[1] <= '9')) {
        char what[4] = {'\\', p[1], '\0'};
        return refuse(what, err), 0;
    }
    if ((unsigned char)p[1] >= 0x80) {
        ht_text_append(out, p + 1, 1); /* escaped non-ASCII character: literal */
        return 2;
    }
    ht_text_append(out, p, 2);
    return 2;
}

/* Groups with the same meaning in PCRE2 and Oniguruma; others are errors. */
static bool is_known_group(const char *p, size_t n) {
    static const char *const known[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?i)"};
    if (n == 0 || (p[0] != '?' && p[0] != '*')) return true;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= strlen(known[i]) && memcmp(p, known[i], strlen(known[i])) == 0) return true;
    return false;
}

/* Whether the class at p[0] == '[' is an intersection, [x&&[y]]. */
static bool is_intersection(const char *p, size_t n) {
    for (size_t i = 1; i + 1 < n && p[i] != ']'; i += p[i] == '\\' ? 2 : 1)
        if (p[i] == '&' && p[i + 1] == '&') return true;
    return false;
}

static ht_status translate(const char *pattern, size_t n, ht_text *out, ht_error *err) {
    bool in_class = false, first = false;      /* first: a ] here is literal */
    enum { NONE, LEFT, RIGHT } operand = NONE; /* of an intersection, which becomes (?:(?=[x])[y]) */
    for (size_t i = 0; i < n;) {
        char c = pattern[i];
        if (c == '\0') return refuse("a NUL byte", err);
        if (c == '\\') {
            size_t used = translate_escape(pattern + i, n - i, in_class, out, err);
            if (!used) return HT_ERR_UNSUPPORTED;
            i += used;
            first = false;
            continue;
        }
        if (in_class) {
            if (c == '&' && i + 1 < n && pattern[i + 1] == '&') {
                if (operand != LEFT || first || i + 2 >= n || pattern[i + 2] != '[')
                    return refuse("&& that is not of the form [x&&[y]]", err);
                ht_text_append_str(out, "])[");
                operand = RIGHT;
                first = true;
                i += 3;
                continue;
            }
            if (c == '[' && i + 1 < n && pattern[i + 1] == ':') return refuse("a [:name:] class", err);
            if (c == '[') return refuse("a class inside a class", err);
            if (c == ']' && first) return refuse("a class that begins with ]", err);
            if (c == ']' && operand == RIGHT) {
                if (i + 1 >= n || pattern[i + 1] != ']') return refuse("&& that is not of the form [x&&[y]]", err);
                ht_text_append_str(out, "])");
                operand = NONE;
                in_class = false;
                i += 2;
                continue;
            }
            if (c == ']') in_class = false;
            first = first && c == '^';
        } else if (c == '[') {
            in_class = first = true;
            if (is_intersection(pattern + i, n - i)) {
                if (pattern[i + 1] == '^') return refuse("&& in a class that begins with ^", err);
                ht_text_append_str(out, "(?:(?=");
                operand = LEFT;
            }
        } else if (c == '(' && !is_known_group(pattern + i + 1, n - i - 1)) {
            return refuse("a group that is neither plain nor (?: (?= (?! (?<= (?<! (?> (?i: or (?i)", err);
        }
        ht_text_append(out, &c, 1);
        i++;
    }
    return out->failed ? ht_fail_memory(err, n, "regular expression") : HT_OK;
}

static ht_status compile(const ht_text *source, ht_regex *re, ht_error *err) {
    int code;
    PCRE2_SIZE at;
    /* Oniguruma: ^ and $ match at every line; only \n ends a line. */
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return ht_fail_memory(err, source->len, "regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(context, 4 * MAX_PATTERN);
    pcre2_set_parens_nest_limit(context, 32);
    re->code = pcre2_compile((PCRE2_SPTR)source->data, source->len,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK,
                             &code, &at, context);
    pcre2_compile_context_free(context);
    if (!re->code) {
        char message[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        return ht_fail(err, HT_ERR_UNSUPPORTED, "the regular expression cannot be compiled: %s", message);
    }
    (void)pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* optional: the interpreter is the fallback */
    return HT_OK;
}

ht_status ht_regex_new(const char *pattern, size_t n, ht_regex **out, ht_error *err) {
    *out = NULL;
    if (n > MAX_PATTERN)
        return ht_fail(err, HT_ERR_LIMIT, "a regular expression of %zu bytes; at most %d are accepted", n, MAX_PATTERN);
    if (!ht_utf8_valid(pattern, n)) return ht_fail(err, HT_ERR_FORMAT, "a regular expression is not valid UTF-8");
    ht_regex *re = calloc(1, sizeof *re);
    if (!re) return ht_fail_memory(err, sizeof *re, "regular expression");
    ht_text source = {0};
    ht_text_append(&source, "", 0);
    ht_status st = translate(pattern, n, &source, err);
    if (!st) st = compile(&source, re, err);
    ht_text_discard(&source);
    if (st) {
        ht_regex_free(re);
        return st;
    }
    *out = re;
    return HT_OK;
}

void ht_regex_free(ht_regex *re) {
    if (!re) return;
    pcre2_code_free(re->code);
    free(re);
}

ht_regex_work *ht_regex_work_new(void) {
    ht_regex_work *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->data = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(32 * 1024, STACK_BYTES, NULL);
    if (!w->data || !w->context || !w->stack) {
        ht_regex_work_free(w);
        return NULL;
    }
    pcre2_jit_stack_assign(w->context, NULL, w->stack);
    pcre2_set_heap_limit(w->context, STACK_BYTES / 1024);
    return w;
}

void ht_regex_work_free(ht_regex_work *w) {
    if (!w) return;
    pcre2_match_data_free(w->data);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    free(w);
}

ht_status ht_regex_find(const ht_regex *re, ht_regex_work *w, const char *text, size_t n, size_t from,
                        ht_regex_match *match, ht_error *err) {
    /* Backtracking of one match is linear in all known patterns. */
    pcre2_set_match_limit(w->context, n < 100000000 ? 1000000 + 16 * (uint32_t)n : UINT32_MAX);
    int rc = pcre2_match(re->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, w->data, w->context);
    *match = (ht_regex_match){0};
    if (rc == PCRE2_ERROR_NOMATCH) return HT_OK;
    if (rc < 0) {
        char message[160];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
        return ht_fail(err, HT_ERR_LIMIT, "matching the pre-tokenizer's regular expression failed: %s", message);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(w->data);
    /* Guards against \K, which can put the start after the end. */
    *match = (ht_regex_match){range[0] <= range[1], range[0], range[1]};
    return HT_OK;
}
