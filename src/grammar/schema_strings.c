/* Sets of strings, as their JSON texts: characters, literals, lists as tries, patterns and lengths. */
#include "base/error.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema.h"

#include <stdlib.h>

/* Branches of a trie within each other. */
enum { TRIE_DEPTH_MOST = 5000 };

/* ---- characters ---- */

static const struct {
    char byte, letter;
} short_escapes[] = {{'\b', 'b'}, {'\t', 't'}, {'\n', 'n'}, {'\f', 'f'}, {'\r', 'r'}, {'"', '"'}, {'\\', '\\'}};

static char short_escape(uint32_t c) {
    for (size_t i = 0; i < sizeof short_escapes / sizeof *short_escapes; i++)
        if (c == (unsigned char)short_escapes[i].byte) return short_escapes[i].letter;
    return '\0';
}

static bool is_in(const ht_code_range *ranges, size_t n, uint32_t c) {
    for (size_t i = 0; i < n; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

/* Those of the ranges that have to be escaped, behind the backslash. */
static ht_re escaped(ht_regexes *re, const ht_code_range *ranges, size_t n) {
    ht_byte_set letters = {{0}}, digits[2] = {{{0}}, {{0}}};
    for (uint32_t c = 0; c <= '\\'; c++) {
        const char letter = short_escape(c), digit = "0123456789abcdef"[c & 15];
        if ((c >= 0x20 && !letter) || !is_in(ranges, n, c)) continue;
        if (letter)
            ht_byte_set_add(&letters, (unsigned char)letter, (unsigned char)letter);
        else
            ht_byte_set_add(&digits[c >> 4], (unsigned char)digit, (unsigned char)digit);
    }
    const ht_re low = ht_re_concat(re, ht_re_text(re, "0", 1), ht_re_bytes(re, &digits[0]));
    const ht_re high = ht_re_concat(re, ht_re_text(re, "1", 1), ht_re_bytes(re, &digits[1]));
    const ht_re code = ht_re_either(re, low, high);
    return ht_re_either(re, ht_re_bytes(re, &letters), ht_re_concat(re, ht_re_text(re, "u00", 3), code));
}

/* Code points that are written as they are, between those that have to be escaped. */
static const ht_code_range as_they_are[] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10FFFF}};

/* Whether none of them has to be escaped. */
static bool are_plain(const ht_code_range *ranges, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const ht_code_range r = ranges[i];
        if (r.first < 0x20 || (r.first <= '"' && r.last >= '"') || (r.first <= '\\' && r.last >= '\\')) return false;
    }
    return true;
}

ht_re ht_strings_characters(ht_regexes *re, const ht_code_range *ranges, size_t n) {
    if (are_plain(ranges, n)) return ht_re_code_points(re, ranges, n);
    ht_re all = ht_re_concat(re, ht_re_text(re, "\\", 1), escaped(re, ranges, n));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof as_they_are / sizeof *as_they_are; k++) {
            const uint32_t first = ranges[i].first > as_they_are[k].first ? ranges[i].first : as_they_are[k].first;
            const uint32_t last = ranges[i].last < as_they_are[k].last ? ranges[i].last : as_they_are[k].last;
            if (first <= last) all = ht_re_either(re, all, ht_re_code_points(re, &(ht_code_range){first, last}, 1));
        }
    return all;
}

static ht_re any_character(ht_regexes *re) {
    static const ht_code_range every = {0, 0x10FFFF};
    return ht_strings_characters(re, &every, 1);
}

static ht_re all_strings(ht_regexes *re) { return ht_re_repeat(re, any_character(re), 0, HT_RE_UNBOUNDED); }

/* ---- literals ---- */

/* Appends the JSON text of a string. */
static void append_text(ht_text *to, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const char letter = short_escape(c);
        if (letter)
            ht_text_append(to, (char[]){'\\', letter}, 2);
        else if (c < 0x20)
            ht_text_printf(to, "\\u%04x", c);
        else
            ht_text_append(to, &text[i], 1);
    }
}

ht_re ht_strings_text(ht_regexes *re, const char *text, size_t n) {
    ht_re r = HT_RE_EMPTY;
    while (n) {
        size_t begin = n;
        while (begin && !short_escape((unsigned char)text[begin - 1]) && (unsigned char)text[begin - 1] >= 0x20)
            begin--;
        r = ht_re_concat(re, ht_re_text(re, text + begin, n - begin), r);
        if (!begin) break;
        const uint32_t c = (unsigned char)text[begin - 1];
        r = ht_re_concat(re, ht_strings_characters(re, &(ht_code_range){c, c}, 1), r);
        n = begin - 1;
    }
    return r;
}

/* ---- lists ---- */

typedef struct span {
    const char *text;
    size_t n;
} span;

static int by_text(const void *a, const void *b) {
    const span *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* n sorted texts that share their first `at` bytes, as one expression of what follows these. */
static ht_re trie(ht_schema *s, const span *list, size_t n, size_t at) {
    const span *first = &list[0], *last = &list[n - 1];
    size_t end = at;
    while (end < first->n && end < last->n && first->text[end] == last->text[end]) end++;
    const ht_re prefix = ht_re_text(s->re, first->text + at, end - at);
    if (n == 1) return prefix;
    if (++s->depth > TRIE_DEPTH_MOST)
        return ht_schema_fail_limit(s, "a list of texts that begin with each other"), HT_RE_NONE;
    const uint32_t begin = s->n_scratch;
    if (first->n == end) ht_schema_push(s, HT_RE_EMPTY);
    for (size_t i = first->n == end; i < n && !s->status;) {
        size_t k = i + 1;
        while (k < n && list[k].text[end] == list[i].text[end]) k++;
        const ht_re branch = trie(s, list + i, k - i, end);
        ht_schema_push(s, branch);
        i = k;
    }
    const ht_re rest = s->status ? HT_RE_NONE : ht_re_alternatives(s->re, s->scratch + begin, s->n_scratch - begin);
    s->n_scratch = begin;
    s->depth--;
    return ht_re_concat(s->re, prefix, rest);
}

static ht_re list_re(ht_schema *s, const uint32_t *strings, uint32_t n) {
    if (!n) return HT_RE_NONE;
    if (n == 1) return ht_strings_text(s->re, s->tree.string[*strings].text, s->tree.string[*strings].n);
    ht_text all = {0};
    span *list = malloc(n * sizeof *list);
    size_t begin = 0;
    for (uint32_t i = 0; i < n && list; i++) {
        const ht_tree_string one = s->tree.string[strings[i]];
        append_text(&all, one.text, one.n);
        list[i].n = all.len - begin;
        begin = all.len;
    }
    ht_re r = HT_RE_NONE;
    if (!list || all.failed)
        ht_schema_fail_memory(s);
    else {
        begin = 0;
        for (uint32_t i = 0; i < n; begin += list[i++].n) list[i].text = all.data ? all.data + begin : "";
        qsort(list, n, sizeof *list, by_text);
        r = trie(s, list, n, 0);
    }
    free(list);
    ht_text_discard(&all);
    return r;
}

/* ---- sets ---- */

uint32_t ht_strings_add(ht_schema *s, ht_string_set set) {
    const uint32_t begin = s->n_scratch;
    ht_schema_push(s, (uint32_t)set.is_listed | (uint32_t)set.is_closed << 1);
    if (!set.is_listed) ht_schema_push(s, set.re);
    for (uint32_t i = 0; set.is_listed && i < set.n && !s->status; i++) ht_schema_push(s, set.list[i]);
    bool is_new;
    const uint32_t number = s->status
                                ? HT_INTERN_FAILED
                                : ht_intern_add(&s->string_sets, s->scratch + begin, s->n_scratch - begin, &is_new);
    s->n_scratch = begin;
    if (number == HT_INTERN_FAILED) return ht_schema_fail_memory(s), 0;
    if (!is_new) return number;
    if (!HT_SCHEMA_APPEND(s, s->strings, number)) return 0;
    s->strings[number] = set;
    return number;
}

ht_string_set ht_strings_of_re(ht_re re) { return (ht_string_set){.is_closed = true, .re = re}; }

static ht_string_set of_list(ht_schema *s, const uint32_t *list, uint32_t n) {
    uint32_t *copy = ht_schema_take(s, n, sizeof *copy);
    if (copy && n) memcpy(copy, list, n * sizeof *list);
    return (ht_string_set){.is_listed = true, .is_closed = true, .list = copy, .n = copy ? n : 0};
}

ht_string_set ht_strings_one(ht_schema *s, uint32_t string) { return of_list(s, &string, 1); }

ht_string_set ht_strings_listed(ht_schema *s, uint32_t *strings, uint32_t n) {
    return of_list(s, strings, (uint32_t)ht_sort_words(strings, n));
}

ht_re ht_strings_re(ht_schema *s, ht_string_set a) {
    if (a.is_listed) return list_re(s, a.list, a.n);
    return a.is_closed ? a.re : ht_re_both(s->re, all_strings(s->re), a.re);
}

static bool has(ht_schema *s, ht_string_set a, uint32_t string) {
    const ht_tree_string one = s->tree.string[string];
    const ht_re r = ht_re_both(s->re, ht_strings_text(s->re, one.text, one.n), a.re);
    return ht_schema_is_live(s, r);
}

ht_string_set ht_strings_both(ht_schema *s, ht_string_set a, ht_string_set b) {
    if (!a.is_listed && a.re == HT_RE_ALL) return b;
    if (!b.is_listed && b.re == HT_RE_ALL) return a;
    if (!a.is_listed && !b.is_listed)
        return (ht_string_set){.is_closed = a.is_closed || b.is_closed, .re = ht_re_both(s->re, a.re, b.re)};
    if (!a.is_listed) return ht_strings_both(s, b, a);
    const uint32_t begin = s->n_scratch;
    for (uint32_t i = 0, k = 0; i < a.n && !s->status; i++) {
        while (b.is_listed && k < b.n && b.list[k] < a.list[i]) k++;
        if (b.is_listed ? k < b.n && b.list[k] == a.list[i] : has(s, b, a.list[i])) ht_schema_push(s, a.list[i]);
    }
    const ht_string_set both = of_list(s, s->scratch + begin, s->n_scratch - begin);
    s->n_scratch = begin;
    return both;
}

ht_string_set ht_strings_either(ht_schema *s, ht_string_set a, ht_string_set b) {
    if (a.is_listed && !a.n) return b;
    if (b.is_listed && !b.n) return a;
    if (!a.is_listed && a.re == HT_RE_NONE) return b;
    if (!b.is_listed && b.re == HT_RE_NONE) return a;
    if (!a.is_listed || !b.is_listed) {
        const ht_re x = a.is_listed ? list_re(s, a.list, a.n) : a.re, y = b.is_listed ? list_re(s, b.list, b.n) : b.re;
        return (ht_string_set){.is_closed = a.is_closed && b.is_closed, .re = ht_re_either(s->re, x, y)};
    }
    const uint32_t begin = s->n_scratch;
    for (uint32_t i = 0, k = 0; (i < a.n || k < b.n) && !s->status;) {
        const bool left = k == b.n || (i < a.n && a.list[i] <= b.list[k]);
        const uint32_t one = left ? a.list[i] : b.list[k];
        ht_schema_push(s, one);
        while (i < a.n && a.list[i] == one) i++;
        while (k < b.n && b.list[k] == one) k++;
    }
    const ht_string_set either = of_list(s, s->scratch + begin, s->n_scratch - begin);
    s->n_scratch = begin;
    return either;
}

ht_string_set ht_strings_not(ht_schema *s, ht_string_set a) {
    const ht_re r = a.is_listed ? list_re(s, a.list, a.n) : a.re;
    if (r == HT_RE_ALL) return (ht_string_set){.is_closed = true, .re = HT_RE_NONE};
    return (ht_string_set){.re = ht_re_not(s->re, r)};
}

bool ht_strings_is_live(ht_schema *s, ht_string_set a) {
    if (a.is_listed) return a.n > 0;
    const ht_re r = ht_strings_re(s, a);
    return ht_schema_is_live(s, r);
}

/* ---- as they are written ---- */

/* Any JSON string between its quotes, with all escapes, halves of surrogate pairs only together. */
static ht_re every_spelling(ht_regexes *re) {
    static const char hex[] = "[0-9a-fA-F]";
    static const char pattern[] =
        "(?:[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/"
        "bfnrt]|u(?:[0-9abcefABCEF]H{3}|[dD][0-7]H{2}|[dD][89abAB]H{2}\\\\u[dD][c-fC-F]H{2})))*";
    ht_text text = {0};
    ht_re r = HT_RE_NONE;
    for (const char *c = pattern; *c; c++) {
        if (*c == 'H')
            ht_text_append_str(&text, hex);
        else
            ht_text_append(&text, c, 1);
    }
    if (!text.failed) ht_regex_parse(re, text.data, text.len, &(ht_regex_syntax){0}, &r, NULL);
    ht_text_discard(&text);
    return r;
}

ht_re ht_strings_written(ht_schema *s, ht_string_set a) {
    const bool all = !a.is_listed && a.re == HT_RE_ALL;
    const ht_re text = all ? every_spelling(s->re) : ht_strings_re(s, a), quote = ht_re_text(s->re, "\"", 1);
    if (all && text == HT_RE_NONE) ht_schema_fail_memory(s);
    return ht_re_concat(s->re, quote, ht_re_concat(s->re, text, quote));
}

/* ---- patterns and lengths ---- */

ht_string_set ht_strings_pattern(ht_schema *s, const ht_tree_value *where, uint32_t pattern) {
    const ht_tree_string text = s->tree.string[pattern];
    const ht_regex_syntax how = {.characters = ht_strings_characters, .searches = true};
    ht_error err = {0};
    ht_re r;
    const ht_status status = ht_regex_parse(s->re, text.text, text.n, &how, &r, &err);
    if (status) ht_schema_fail_at(s, where, status, "%s", err.message);
    return (ht_string_set){.is_closed = true, .re = r};
}

ht_string_set ht_strings_length(ht_schema *s, uint32_t least, uint32_t most) {
    if (least == 0 && most == HT_UNBOUNDED) return (ht_string_set){.re = HT_RE_ALL};
    return ht_strings_of_re(ht_re_repeat(s->re, any_character(s->re), least, most));
}
