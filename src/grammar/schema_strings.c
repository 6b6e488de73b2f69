/* Sets of strings, as their JSON texts: characters, literals, lists as tries, patterns, lengths, formats. */
#include "formats/json_write.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

/* Nesting of trie branches at most. */
enum { TRIE_DEPTH_MOST = 5000 };

/* ---- characters ---- */

/* Bytes that have a short escape, and its letter. */
static const char short_bytes[] = "\b\t\n\f\r\"\\", short_letters[] = "btnfr\"\\";

static bool is_in(const ht_code_range *ranges, size_t n, uint32_t c) {
    for (size_t i = 0; i < n; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

/* Those of the ranges that must be escaped, after the backslash. */
static ht_re escaped(ht_regexes *re, const ht_code_range *ranges, size_t n) {
    ht_byte_set letters = {{0}}, digits[2] = {{{0}}, {{0}}};
    for (uint32_t c = 0; c <= '\\'; c++) {
        const char *at = c ? strchr(short_bytes, (int)c) : NULL;
        const char letter = at ? short_letters[at - short_bytes] : '\0', digit = "0123456789abcdef"[c & 15];
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

/* Any character in a string. */
static ht_re characters(ht_regexes *re, const ht_code_range *ranges, size_t n) {
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
    return characters(re, &every, 1);
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
    ht_text all = {0};
    span *list = malloc((n + (size_t)!n) * sizeof *list);
    size_t begin = 0;
    for (uint32_t i = 0; i < n && list; i++) {
        const ht_tree_string one = s->tree.string[strings[i]];
        ht_json_append_string(&all, one.text, one.n, 0);
        list[i].n = all.len - begin - 2; /* without quotes */
        begin = all.len;
    }
    ht_re r = HT_RE_NONE;
    if (!list || all.failed)
        ht_schema_fail_memory(s);
    else if (n) {
        begin = 0;
        for (uint32_t i = 0; i < n; begin += list[i++].n + 2) list[i].text = all.data + begin + 1;
        qsort(list, n, sizeof *list, by_text);
        r = trie(s, list, n, 0);
    }
    free(list);
    ht_text_discard(&all);
    return r;
}

ht_re ht_strings_text(ht_schema *s, uint32_t string) { return list_re(s, &string, 1); }

/* ---- sets ---- */

uint32_t ht_strings_add(ht_schema *s, ht_string_set set) {
    const uint32_t begin = s->n_scratch;
    ht_schema_push(s, (uint32_t)set.is_listed | (uint32_t)set.is_closed << 1);
    if (!set.is_listed) ht_schema_push(s, set.re);
    if (set.is_listed) ht_schema_push_all(s, set.list, set.n);
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
    if (a.is_closed) return a.re;
    return ht_re_both(s->re, ht_re_repeat(s->re, any_character(s->re), 0, HT_RE_UNBOUNDED), a.re);
}

static bool has(ht_schema *s, ht_string_set a, uint32_t string) {
    return ht_schema_is_live(s, ht_re_both(s->re, ht_strings_text(s, string), a.re));
}

ht_string_set ht_strings_both(ht_schema *s, ht_string_set a, ht_string_set b) {
    if (!a.is_listed && a.re == HT_RE_ALL) return b;
    if (!b.is_listed && b.re == HT_RE_ALL) return a;
    if (!a.is_listed && !b.is_listed)
        return (ht_string_set){.is_closed = a.is_closed || b.is_closed, .re = ht_re_both(s->re, a.re, b.re)};
    if (!a.is_listed) return ht_strings_both(s, b, a);
    const uint32_t begin = s->n_scratch;
    for (uint32_t i = 0; i < a.n && !s->status; i++)
        if (b.is_listed ? ht_sorted_has(b.list, b.n, a.list[i]) : has(s, b, a.list[i])) ht_schema_push(s, a.list[i]);
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
    ht_schema_push_all(s, a.list, a.n);
    ht_schema_push_all(s, b.list, b.n);
    const ht_string_set either = ht_strings_listed(s, s->scratch + begin, s->n_scratch - begin);
    s->n_scratch = begin;
    return either;
}

ht_string_set ht_strings_not(ht_schema *s, ht_string_set a) {
    const ht_re r = a.is_listed ? list_re(s, a.list, a.n) : a.re;
    if (r == HT_RE_ALL) return (ht_string_set){.is_closed = true, .re = HT_RE_NONE};
    return (ht_string_set){.re = ht_re_not(s->re, r)};
}

bool ht_strings_is_live(ht_schema *s, ht_string_set a) {
    return a.is_listed ? a.n > 0 : ht_schema_is_live(s, ht_strings_re(s, a));
}

#define HEX "[0-9a-fA-F]"

/* Any JSON string between its quotes, with all escapes, halves of surrogate pairs only together. */
static ht_re every_spelling(ht_regexes *re) {
    static const char pattern[] = "(?:[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/"
                                  "bfnrt]|u(?:[0-9abcefABCEF]" HEX "{3}|[dD][0-7]" HEX "{2}|[dD][89abAB]" HEX
                                  "{2}\\\\u[dD][c-fC-F]" HEX "{2})))*";
    ht_re r = HT_RE_NONE;
    ht_regex_parse(re, pattern, sizeof pattern - 1, &(ht_regex_syntax){0}, &r, NULL);
    return r;
}

ht_re ht_strings_written(ht_schema *s, ht_string_set a) {
    const bool all = !a.is_listed && a.re == HT_RE_ALL;
    const ht_re text = all ? every_spelling(s->re) : ht_strings_re(s, a), quote = ht_re_text(s->re, "\"", 1);
    if (all && text == HT_RE_NONE) ht_schema_fail_memory(s);
    return ht_re_concat(s->re, quote, ht_re_concat(s->re, text, quote));
}

ht_string_set ht_strings_pattern(ht_schema *s, const ht_tree_value *where, uint32_t pattern) {
    const ht_tree_string text = s->tree.string[pattern];
    const ht_regex_syntax how = {.characters = characters, .searches = true};
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

/* ---- formats ---- */

/* Regular expressions of the whole text for the formats that JSON Schema names, but for those that no automaton can check. */

/* Dates and times: RFC 3339. */

#define HOUR   "(?:[01]\\d|2[0-3])"
#define MINUTE "[0-5]\\d"
#define PART   "(?:\\.\\d+)?"
#define DATE                                                                                                           \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"                    \
    "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME_WITHOUT_LEAP HOUR ":" MINUTE ":" MINUTE PART "(?:[Zz]|[+-]" HOUR ":" MINUTE ")"
#define DAYS              "\\d+D"
#define MONTHS            "\\d+M(?:\\d+D)?"
#define YEARS             "\\d+Y(?:" MONTHS ")?"
#define SECONDS           "\\d+S"
#define MINUTES           "\\d+M(?:" SECONDS ")?"
#define HOURS             "\\d+H(?:" MINUTES ")?"
#define CLOCK             "T(?:" SECONDS "|" MINUTES "|" HOURS ")"
#define DURATION          "P(?:\\d+W|(?:" DAYS "|" MONTHS "|" YEARS ")(?:" CLOCK ")?|" CLOCK ")"

/* Names of hosts: RFC 1123, RFC 4291. */

#define LABEL     "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST      "(?=.{1,253}$)" LABEL "(?:\\." LABEL ")*"
#define OCTET     "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4      OCTET "(?:\\." OCTET "){3}"
#define H16       "[0-9A-Fa-f]{1,4}"
#define H16C      "(?:" H16 ":)"
#define LAST_32   "(?:" H16 ":" H16 "|" IPV4 ")"
#define BEFORE(n) "(?:" H16C "{0," n "}" H16 ")?::"
#define IPV6                                                                                                           \
    "(?:" H16C "{6}" LAST_32 "|::" H16C "{5}" LAST_32 "|(?:" H16 ")?::" H16C "{4}" LAST_32 "|" BEFORE("1") H16C        \
        "{3}" LAST_32 "|" BEFORE("2") H16C "{2}" LAST_32 "|" BEFORE("3") H16C LAST_32 "|" BEFORE("4") LAST_32          \
        "|" BEFORE("5") H16 "|" BEFORE("6") ")"

/* Mail: RFC 5321, RFC 6531. Addresses: RFC 3986, RFC 3987. */

#define BEYOND_ASCII                                                                                                   \
    "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"                \
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}"        \
    "\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}"        \
    "\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}"
#define PRIVATE "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"

#define MAIL(more, label)                                                                                              \
    "(?:[A-Za-z0-9!#$%&'*+/=?^_`{|}~" more "-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~" more "-]+)*|"                       \
    "\"(?:[ !#-\\[\\]-~" more "]|\\\\[ -~])*\")@(?:" label "(?:\\." label ")*|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])"
#define LABEL_BEYOND "[A-Za-z0-9" BEYOND_ASCII "](?:[A-Za-z0-9" BEYOND_ASCII "-]{0,61}[A-Za-z0-9" BEYOND_ASCII "])?"

/* `u`: unreserved characters beyond ASCII; `p`: further characters of queries. */
#define ESCAPED         "%[0-9A-Fa-f]{2}"
#define NAMED(u)        "(?:[A-Za-z0-9._~!$&'()*+,;=" u "-]|" ESCAPED ")"
#define SEGMENT_PART(u) "(?:[A-Za-z0-9._~!$&'()*+,;=:@" u "-]|" ESCAPED ")"
#define AUTHORITY(u)                                                                                                   \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" u "-]|" ESCAPED ")*@)?(?:\\[(?:" IPV6                                            \
    "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" NAMED(u) "*)(?::\\d*)?"
#define SEGMENTS(u) "(?:/" SEGMENT_PART(u) "*)*"
#define ABSOLUTE(u) "/(?:" SEGMENT_PART(u) "+" SEGMENTS(u) ")?"
#define TAIL(u, p)                                                                                                     \
    "(?:\\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?" u p "-]|" ESCAPED ")*)?(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?" u              \
    "-]|" ESCAPED ")*)?"
#define HIERARCHY(u)  "(?://" AUTHORITY(u) SEGMENTS(u) "|" ABSOLUTE(u) "|" SEGMENT_PART(u) "+" SEGMENTS(u) "|)"
#define SCHEME        "[A-Za-z][A-Za-z0-9+.-]*:"
#define ADDRESS(u, p) SCHEME HIERARCHY(u) TAIL(u, p)
#define RELATIVE(u, p)                                                                                                 \
    "(?://" AUTHORITY(u) SEGMENTS(u) "|" ABSOLUTE(u) "|(?:[A-Za-z0-9._~!$&'()*+,;=@" u "-]|" ESCAPED                   \
                                                     ")+" SEGMENTS(u) "|)" TAIL(u, p)

/* Templates: RFC 6570. Pointers: RFC 6901. */

#define VARIABLE "(?:[A-Za-z0-9_]|" ESCAPED ")(?:\\.?(?:[A-Za-z0-9_]|" ESCAPED "))*(?::[1-9]\\d{0,3}|\\*)?"
#define TEMPLATE                                                                                                       \
    "(?:[^\\x00- \"'%<>\\\\^`{|}\\x7f-\\x9f]|" ESCAPED "|\\{[+#./;?&=,!@|]?" VARIABLE "(?:," VARIABLE ")*\\})*"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
    const char *name, *pattern; /* NULL: more than a pattern */
} formats[] = {
    {"date", DATE},
    {"time", NULL},
    {"date-time", NULL},
    {"duration", DURATION},
    {"email", MAIL("", LABEL)},
    {"idn-email", MAIL("\\u{80}-\\u{10FFFF}", LABEL_BEYOND)},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
    {"uri", ADDRESS("", "")},
    {"uri-reference", "(?:" ADDRESS("", "") "|" RELATIVE("", "") ")"},
    {"iri", ADDRESS(BEYOND_ASCII, PRIVATE)},
    {"iri-reference", "(?:" ADDRESS(BEYOND_ASCII, PRIVATE) "|" RELATIVE(BEYOND_ASCII, PRIVATE) ")"},
    {"uri-template", TEMPLATE},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" POINTER ")"},
};

/* Formats that no automaton can check. */
static const char *const unchecked[] = {"regex", "idn-hostname"};

/* Leap seconds are at 23:59:60 UTC. Zones at +h:00 then show hour (23 + h) mod 24 and minute 59, at +h:m hour h and
 * minute m - 1, at -h:m hour 23 - h and minute 59 - m. Lookahead pairs hours and minutes. */
static void append_leap(ht_text *t) {
    ht_text_append_str(t, "23:59:60" PART "[Zz]|(?:");
    for (unsigned h = 0; h < 24; h++)
        ht_text_printf(t, "%s%02u:59:60" PART "\\+%02u:00", h ? "|" : "", (23 + h) % 24, h);
    ht_text_append_str(t, ")|(?=(?:");
    for (unsigned h = 0; h < 24; h++) ht_text_printf(t, "%s%02u:\\d\\d:60" PART "\\+%02u:", h ? "|" : "", h, h);
    ht_text_append_str(t, "))(?:");
    for (unsigned m = 1; m < 60; m++)
        ht_text_printf(t, "%s\\d\\d:%02u:60" PART "\\+\\d\\d:%02u", m > 1 ? "|" : "", m - 1, m);
    ht_text_append_str(t, ")|(?=(?:");
    for (unsigned h = 0; h < 24; h++) ht_text_printf(t, "%s%02u:\\d\\d:60" PART "-%02u:", h ? "|" : "", 23 - h, h);
    ht_text_append_str(t, "))(?:");
    for (unsigned m = 0; m < 60; m++)
        ht_text_printf(t, "%s\\d\\d:%02u:60" PART "-\\d\\d:%02u", m ? "|" : "", 59 - m, m);
    ht_text_append_str(t, ")");
}

static void append_time(ht_text *t, const char *before) {
    ht_text_printf(t, "%s(?:" TIME_WITHOUT_LEAP "|", before);
    append_leap(t);
    ht_text_append_str(t, ")");
}

bool ht_strings_format(ht_schema *s, const ht_tree_value *where, ht_string_set *out) {
    const char *name = s->tree.string[where->string].text;
    *out = (ht_string_set){.re = HT_RE_ALL};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *pattern = formats[i].pattern;
        if (strcmp(name, formats[i].name) != 0) continue;
        const ht_regex_syntax how = {.characters = characters};
        ht_text made = {0};
        ht_re r = HT_RE_NONE;
        if (!pattern) append_time(&made, strcmp(name, "time") ? DATE "[Tt]" : "");
        if (!pattern) pattern = made.data;
        if (made.failed)
            ht_schema_fail_memory(s);
        else if (!s->status)
            s->status = ht_regex_parse(s->re, pattern, strlen(pattern), &how, &r, s->err);
        *out = ht_strings_of_re(r);
        ht_text_discard(&made);
        return true;
    }
    for (size_t i = 0; i < sizeof unchecked / sizeof *unchecked; i++)
        if (!strcmp(name, unchecked[i]))
            ht_schema_fail_at(s, where, HT_ERR_UNSUPPORTED, "the format `%s` cannot be checked while a text is written",
                              name);
    return false;
}
