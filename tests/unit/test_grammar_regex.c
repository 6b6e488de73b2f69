/* Regular expressions of grammars: derivatives beside a matcher that tries everything, UTF-8, the syntax of patterns, and whether
 * an expression has a text. */
#include "base/text.h"
#include "grammar/regex_syntax.h"
#include "support/short_texts.h"
#include "support/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint32_t seed;

static uint32_t draw(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static bool derives(ht_regexes *s, ht_re r, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) r = ht_re_derivative(s, r, s->class_of[(unsigned char)text[i]]);
    return ht_re_is_nullable(s, r);
}

/* ---- beside sets of texts ---- */

enum { TREES = 40 };

UNIT_TEST(random_expressions) {
    const uint64_t every = ((uint64_t)1 << SHORT_TEXTS) - 1;
    for (int round = 0; round < test_cases(200, 20000); round++) {
        seed = (uint32_t)round;
        ht_regexes *s = ht_regexes_new();
        assert_non_null(s);
        ht_re re[TREES];
        uint64_t set[TREES];
        const ht_byte_set a_and_b = {{0, 0, 0, 6, 0, 0, 0, 0}};
        re[0] = ht_re_text(s, "a", 1);
        re[1] = ht_re_text(s, "b", 1);
        re[2] = ht_re_text(s, "ab", 2);
        re[3] = ht_re_bytes(s, &a_and_b);
        re[4] = HT_RE_EMPTY;
        re[5] = HT_RE_NONE;
        for (int i = 0; i < 6; i++) set[i] = 0;
        set[0] = (uint64_t)1 << short_text_number("a", 1);
        set[1] = (uint64_t)1 << short_text_number("b", 1);
        set[2] = (uint64_t)1 << short_text_number("ab", 2);
        set[3] = set[0] | set[1];
        set[4] = 1;
        for (int i = 6; i < TREES; i++) {
            const uint32_t x = draw((uint32_t)i), y = draw((uint32_t)i), min = draw(3), more = draw(4);
            const uint32_t max = more == 3 ? HT_RE_UNBOUNDED : min + more;
            switch (draw(7)) {
            case 0: re[i] = ht_re_concat(s, re[x], re[y]), set[i] = short_texts_joined(set[x], set[y]); break;
            case 1: re[i] = ht_re_either(s, re[x], re[y]), set[i] = set[x] | set[y]; break;
            case 2: re[i] = ht_re_both(s, re[x], re[y]), set[i] = set[x] & set[y]; break;
            case 3: re[i] = ht_re_not(s, re[x]), set[i] = every & ~set[x]; break;
            case 4: re[i] = ht_re_without_empty(s, re[x]), set[i] = set[x] & ~(uint64_t)1; break;
            default: re[i] = ht_re_repeat(s, re[x], min, max), set[i] = short_texts_repeated(set[x], min, max);
            }
        }
        assert_int_equal(ht_regexes_status(s, NULL), HT_OK);
        ht_regexes_freeze(s);
        for (int i = 0; i < TREES; i++) {
            if (set[i]) assert_true(ht_re_is_live(s, re[i]));
            for (int t = 0; t < SHORT_TEXTS; t++) {
                char text[SHORT_TEXT_LONGEST + 1];
                const size_t n = short_text(t, text);
                if (derives(s, re[i], text, n) != (set[i] >> t & 1))
                    fail_msg("round %d, expression %d: wrong for \"%s\"", round, i, text);
            }
            /* Prefixes of texts are live, and what is live has a text. */
            if (!set[i] && ht_re_is_live(s, re[i])) {
                bool found = false;
                ht_re at = re[i];
                for (int step = 0; step < 200 && !found; step++) {
                    found = ht_re_is_nullable(s, at);
                    ht_re next = HT_RE_NONE;
                    const int first = (int)draw(3);
                    for (int c = 0; c < s->n_classes && next == HT_RE_NONE; c++)
                        next = ht_re_derivative(s, at, (c + first) % s->n_classes);
                    assert_true(found || next != HT_RE_NONE);
                    at = next;
                }
            }
        }
        /* Forgetting everything but what was made changes nothing. */
        ht_regexes_reset(s);
        for (int t = 0; t < SHORT_TEXTS; t++) {
            char text[SHORT_TEXT_LONGEST + 1];
            const size_t n = short_text(t, text);
            assert_int_equal(derives(s, re[TREES - 1], text, n), set[TREES - 1] >> t & 1);
        }
        ht_regexes_free(s);
    }
}

/* ---- UTF-8 ---- */

UNIT_TEST(code_points) {
    static const uint32_t edges[] = {0,       1,       0x7E,    0x7F,    0x80,    0x81,     0xBF,     0xC0,    0x7FF,
                                     0x800,   0x801,   0xFFF,   0x1000,  0xD7FF,  0xD800,   0xDFFF,   0xE000,  0xFFFF,
                                     0x10000, 0x10001, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFE, 0x10FFFF};
    enum { N = sizeof edges / sizeof *edges };
    for (int i = 0; i < N; i++)
        for (int k = i; k < N; k++) {
            ht_regexes *s = ht_regexes_new();
            const ht_re r = ht_re_code_points(s, &(ht_code_range){edges[i], edges[k]}, 1);
            ht_regexes_freeze(s);
            for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 || (c > 0xD000 && c < 0x11000) ? 1 : 61) {
                char bytes[4];
                size_t n = 0;
                if (c >= 0xD800 && c < 0xE000) { /* as UTF-8 would write them if they were characters */
                    bytes[n++] = (char)(0xE0 | c >> 12);
                    bytes[n++] = (char)(0x80 | (c >> 6 & 63));
                    bytes[n++] = (char)(0x80 | (c & 63));
                } else {
                    ht_text t = {0};
                    ht_text_append_utf8(&t, c);
                    memcpy(bytes, t.data, n = t.len);
                    ht_text_discard(&t);
                }
                const bool inside = c >= edges[i] && c <= edges[k] && !(c >= 0xD800 && c < 0xE000);
                if (derives(s, r, bytes, n) != inside) fail_msg("U+%04X in [%X, %X]", c, edges[i], edges[k]);
                if (TEST_SLOW && c > 0x900) c += 100;
            }
            assert_false(derives(s, r, "\xC0\x80", 2)); /* not the shortest form */
            assert_false(derives(s, r, "\xF4\x90\x80\x80", 4));
            ht_regexes_free(s);
            if (TEST_SLOW) k += 3;
        }
}

/* ---- patterns ---- */

typedef struct pattern_case {
    const char *pattern;
    bool searches;
    const char *yes[5], *no[5];
} pattern_case;

static const pattern_case cases[] = {
    {"abc", false, {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"abc", true, {"abc", "xabc", "abcd", "ababc"}, {"", "ab", "acb"}},
    {"^abc$", true, {"abc"}, {"", "abcd", "xabc"}},
    {"^a|b$", true, {"a", "ax", "b", "xb"}, {"", "xa", "bx"}},
    {"a*b+c?", false, {"b", "aabb", "abc"}, {"", "a", "bcc"}},
    {"a{2}", false, {"aa"}, {"a", "aaa"}},
    {"a{2,}", false, {"aa", "aaaaa"}, {"a"}},
    {"a{1,3}?", false, {"a", "aaa"}, {"", "aaaa"}},
    {"x{a", false, {"x{a"}, {"xa"}},
    {"(?:ab|cd)+", false, {"ab", "abcd", "cdcd"}, {"", "abc"}},
    {"(?<name>a)b", false, {"ab"}, {"a"}},
    {"[a-c-]+", false, {"a-b", "c"}, {"d", ""}},
    {"[^a-c]", false, {"d", "\xC3\xBC", "\n"}, {"a", "dd"}},
    {"[\\d_]+\\s\\W", false, {"1_2 -"}, {"a -", "1 a"}},
    {"[\\]\\\\]", false, {"]", "\\"}, {"["}},
    {".", false, {"a", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}, {"\n", "\r", "\xE2\x80\xA8", ""}},
    {"\\u00fc\\u{1F600}\\x41\\cJ", false, {"\xC3\xBC\xF0\x9F\x98\x80\x41\n"}, {"u"}},
    {"\\uD83D\\uDE00", false, {"\xF0\x9F\x98\x80"}, {""}},
    {"\\p{Lu}\\p{L}*\\P{L}", false, {"A1", "\xC3\x84\xC3\xA4 "}, {"a1", "AA"}},
    {"\\p{Letter}\\p{gc=Nd}\\p{General_Category=Decimal_Number}", false, {"a12"}, {"1aa"}},
    {"@[\\p{Lu}]", false, {"@A"}, {"@", "A"}}, /* A follows @ */
    {"(?=.*\\d)(?=.*[a-z]).{3,}", false, {"a1x", "xx1"}, {"abc", "123", "a1"}},
    {"^(?!foo)", true, {"", "bar", "xfoo"}, {"foo", "foobar"}},
    {"^(?!.*(?:a|b)$)[a-c]*$", true, {"", "c", "ac"}, {"a", "cb"}},
    {"(?!ab)a.|x", false, {"ac", "x"}, {"ab"}},
    {"^$", true, {""}, {"a", "\n"}},
    {"^\\S(|(.|\\n)*\\S)$", true, {"a", "a b", "a\nb"}, {"", " a", "a "}},
    {"a(?=b)b", false, {"ab"}, {"a", "ac"}},
    {"$^", true, {""}, {"a"}},
    {"()", false, {""}, {"a"}},
    {"a||b", false, {"a", "", "b"}, {"ab"}},
};

UNIT_TEST(patterns) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pattern_case *c = &cases[i];
        ht_regexes *s = ht_regexes_new();
        ht_error err = {0};
        ht_re r;
        const ht_regex_syntax how = {.searches = c->searches};
        if (ht_regex_parse(s, c->pattern, strlen(c->pattern), &how, &r, &err))
            fail_msg("%s: %s", c->pattern, err.message);
        ht_regexes_freeze(s);
        for (int k = 0; k < 5 && c->yes[k]; k++)
            if (!derives(s, r, c->yes[k], strlen(c->yes[k])))
                fail_msg("%s does not match \"%s\"", c->pattern, c->yes[k]);
        for (int k = 0; k < 5 && c->no[k]; k++)
            if (derives(s, r, c->no[k], strlen(c->no[k]))) fail_msg("%s matches \"%s\"", c->pattern, c->no[k]);
        ht_regexes_free(s);
    }
}

static void refuses(const char *pattern, ht_status status, const char *word) {
    ht_regexes *s = ht_regexes_new();
    ht_error err = {0};
    ht_re r;
    const size_t n = strlen(pattern);
    char *exact = malloc(n + !n); /* without a NUL, so that sanitizers see its end */
    memcpy(exact, pattern, n);
    const ht_status got = ht_regex_parse(s, exact, n, &(ht_regex_syntax){0}, &r, &err);
    free(exact);
    if (got != status) fail_msg("%.40s: status %d (%s)", pattern, got, err.message);
    if (!strstr(err.message, word)) fail_msg("\"%s\" does not say \"%s\"", err.message, word);
    ht_regexes_free(s);
}

UNIT_TEST(refused_patterns) {
    refuses("(", HT_ERR_FORMAT, "`(` without `)` at byte 1");
    refuses("a)", HT_ERR_FORMAT, "`)` without `(`");
    refuses("[a", HT_ERR_FORMAT, "`[` without `]`");
    refuses("[b-a]", HT_ERR_FORMAT, "a range whose end is before its beginning");
    refuses("*a", HT_ERR_FORMAT, "nothing to repeat");
    refuses("a{3,2}", HT_ERR_FORMAT, "a count whose end is before its beginning");
    refuses("a{200000}", HT_ERR_LIMIT, "a count of more than");
    refuses("\\", HT_ERR_FORMAT, "a backslash at the end");
    refuses("[\\", HT_ERR_FORMAT, "a backslash at the end");
    refuses("[a-\\", HT_ERR_FORMAT, "a backslash at the end");
    refuses("\\q", HT_ERR_FORMAT, "there is no such escape");
    refuses("\\u12", HT_ERR_FORMAT, "four hexadecimal digits");
    refuses("\\x1", HT_ERR_FORMAT, "two hexadecimal digits");
    refuses("(a)\\1", HT_ERR_UNSUPPORTED, "back references");
    refuses("a\\b", HT_ERR_UNSUPPORTED, "word boundaries");
    refuses("(?<=a)b", HT_ERR_UNSUPPORTED, "lookbehind");
    refuses("(?i)a", HT_ERR_UNSUPPORTED, "this kind of group");
    refuses("\\p{Script=Greek}", HT_ERR_UNSUPPORTED, "general categories");
    refuses("(?:a(?=b))*", HT_ERR_UNSUPPORTED, "within a repetition");
    refuses("a?(?:^b)", HT_ERR_UNSUPPORTED, "`^` after an expression that may be empty");
    refuses("[[:alpha:]]{3}", HT_ERR_UNSUPPORTED,
            "POSIX classes are not of ECMA-262: write [a-z], \\d, \\s, or \\p{L}");
    refuses("[_[:^digit:]x]", HT_ERR_UNSUPPORTED, "POSIX classes");
    refuses("[[:alpha:]", HT_ERR_UNSUPPORTED, "POSIX classes");
    refuses("[a-z&&[^b]]", HT_ERR_UNSUPPORTED, "`&&` within a class is of the flag v");
    refuses("[\\w&&\\d]", HT_ERR_UNSUPPORTED, "`&&` within a class is of the flag v");
    refuses("[[a-z]&&[^b]]", HT_ERR_UNSUPPORTED, "a class within a class is of the flag v");
    refuses("[[a-z][0-9]]", HT_ERR_UNSUPPORTED, "a class within a class is of the flag v");
    refuses("[a-z--[aeiou]]", HT_ERR_UNSUPPORTED, "a class within a class is of the flag v");
    refuses("[a[bc]]x", HT_ERR_UNSUPPORTED,
            "a class within a class is of the flag v, which is not supported: write `\\[`");
    refuses("a++", HT_ERR_UNSUPPORTED, "possessive repetitions such as `a++`");
    refuses("(?:ab)*+c", HT_ERR_UNSUPPORTED, "possessive repetitions");
    refuses("a?+", HT_ERR_UNSUPPORTED, "possessive repetitions");
    refuses("a{2,3}+", HT_ERR_UNSUPPORTED, "possessive repetitions");
    static char deep[2001];
    memset(deep, '(', 1000);
    memset(deep + 1000, ')', 1000);
    refuses(deep, HT_ERR_LIMIT, "nested too deeply");
}

/* A pattern of many bytes takes no more of the stack than one of few. */
UNIT_TEST(long_patterns) {
    enum { N = 100000 };
    char *pattern = malloc(2 * N + 1);
    ht_regexes *s = ht_regexes_new();
    ht_re r;
    memset(pattern, 'a', N);
    assert_int_equal(ht_regex_parse(s, pattern, N, &(ht_regex_syntax){0}, &r, NULL), HT_OK);
    for (int i = 0; i < N; i++) memcpy(pattern + 2 * i, i % 2 ? "a|" : "^|", 2);
    assert_int_equal(ht_regex_parse(s, pattern, 2 * N, &(ht_regex_syntax){.searches = true}, &r, NULL), HT_OK);
    for (int i = 0; i < N; i++) pattern[i] = i ? '^' : 'a';
    assert_int_equal(ht_regex_parse(s, pattern, N, &(ht_regex_syntax){.searches = true}, &r, NULL), HT_OK);
    assert_int_equal(r, HT_RE_NONE);
    for (int i = 0; i < N; i++) memcpy(pattern + 2 * i, "a?", 2);
    assert_int_equal(ht_regex_parse(s, pattern, 2 * N, &(ht_regex_syntax){0}, &r, NULL), HT_OK);
    ht_regexes_freeze(s);
    const ht_re d = ht_re_derivative(s, r, s->class_of['a']);
    assert_true(ht_regexes_status(s, NULL) == HT_ERR_LIMIT || d != HT_RE_NONE);
    ht_regexes_free(s);
    free(pattern);
}

static ht_re parse(ht_regexes *s, const char *pattern, bool searches) {
    ht_re r;
    assert_int_equal(ht_regex_parse(s, pattern, strlen(pattern), &(ht_regex_syntax){.searches = searches}, &r, NULL),
                     HT_OK);
    return r;
}

/* Whether an intersection has a text takes a search: all multiples of 7 with a last digit of 3, none with an even and an odd one. Of what
 * stands anywhere in a text, the parts are searched, not their copies at all places: there are two to the power of 300 sets. */
UNIT_TEST(searches) {
    static const char *const patterns[2][2] = {
        {"(?=(?:a{7})*$)(?=(?:a{5})*$)a{36,}", "(?=(?:aa)*$)(?=a(?:aa)*$)a*"},
        {"x(?=.{300}&$?)[a-z]fc", "x(?=.{300}&)(?=[a-z]*$)fc"},
    };
    for (int i = 0; i < 2; i++) {
        ht_regexes *s = ht_regexes_new();
        const ht_re some = parse(s, patterns[i][0], i == 1), none = parse(s, patterns[i][1], i == 1);
        ht_regexes_freeze(s);
        assert_true(ht_re_is_live(s, some));
        assert_false(ht_re_is_live(s, none));
        assert_int_equal(ht_regexes_status(s, NULL), HT_OK);
        ht_regexes_free(s);
    }
}

/* Searches of a construction have one bound together, and each one its own when it is over. */
UNIT_TEST(bounded_searches) {
    ht_regexes *s = ht_regexes_new();
    const ht_re none[3] = {parse(s, "(?=(?:aa)*$)(?=a(?:aa)*$)a{100,}", false),
                           parse(s, "(?=(?:bb)*$)(?=b(?:bb)*$)b{100,}", false),
                           parse(s, "(?=(?:cc)*$)(?=c(?:cc)*$)c{100,}", false)};
    ht_regexes_freeze(s);
    const int64_t before = s->search_budget;
    assert_false(ht_re_is_live(s, none[0]));
    const int64_t taken = before - s->search_budget;
    assert_true(taken > 100);
    s->search_budget = taken + taken / 2;
    assert_false(ht_re_is_live(s, none[1]));
    assert_int_equal(ht_regexes_status(s, NULL), HT_OK);
    (void)ht_re_is_live(s, none[2]);
    assert_int_equal(ht_regexes_status(s, NULL), HT_ERR_LIMIT);
    ht_regexes_reset(s);
    s->search_budget = INT64_MAX;
    assert_false(ht_re_is_live(s, none[2]));
    assert_int_equal(ht_regexes_status(s, NULL), HT_OK);
    ht_regexes_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_expressions), cmocka_unit_test(code_points),   cmocka_unit_test(patterns),
        cmocka_unit_test(refused_patterns),   cmocka_unit_test(long_patterns), cmocka_unit_test(searches),
        cmocka_unit_test(bounded_searches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
