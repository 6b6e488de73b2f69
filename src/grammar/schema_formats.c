/* Formats of strings as regular expressions, each of the whole text: those that JSON Schema names, but for the ones that no
 * automaton can check. */
#include "base/error.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema.h"

/* ---- dates and times: RFC 3339 ---- */

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

/* ---- names of hosts: RFC 1123, RFC 4291 ---- */

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

/* ---- mail: RFC 5321, RFC 6531; addresses: RFC 3986, RFC 3987 ---- */

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

/* `u`: what is unreserved beside ASCII, `p`: what queries have besides. */
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

/* ---- templates: RFC 6570; pointers: RFC 6901 ---- */

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

/* Formats that say more than an automaton can see. */
static const char *const unchecked[] = {"regex", "idn-hostname"};

/* Leap seconds are at 23:59:60 of UTC: what the clock shows then in each zone. Ahead of UTC by h:00 it shows hour (23 + h) mod
 * 24 and minute 59, ahead by h:m hour h and minute m - 1, behind by h:m hour 23 - h and minute 59 - m. Hours and minutes are
 * paired each for themselves, by look-ahead. */
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

static ht_string_set parse(ht_schema *s, const char *pattern, size_t n) {
    ht_re r = HT_RE_NONE;
    const ht_regex_syntax how = {.characters = ht_strings_characters};
    const ht_status status = ht_regex_parse(s->re, pattern, n, &how, &r, s->err);
    if (status && !s->status) s->status = status;
    return ht_strings_of_re(r);
}

bool ht_strings_format(ht_schema *s, const ht_tree_value *where, ht_string_set *out) {
    const char *name = s->tree.string[where->string].text;
    *out = (ht_string_set){.re = HT_RE_ALL};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *pattern = formats[i].pattern;
        if (strcmp(name, formats[i].name) != 0) continue;
        ht_text made = {0};
        if (!pattern) append_time(&made, strcmp(name, "time") ? DATE "[Tt]" : "");
        if (made.failed)
            ht_schema_fail_memory(s);
        else
            *out = pattern ? parse(s, pattern, strlen(pattern)) : parse(s, made.data, made.len);
        ht_text_discard(&made);
        return true;
    }
    for (size_t i = 0; i < sizeof unchecked / sizeof *unchecked; i++)
        if (!strcmp(name, unchecked[i]))
            ht_schema_fail_at(s, where, HT_ERR_UNSUPPORTED, "the format `%s` cannot be checked while a text is written",
                              name);
    return false;
}
