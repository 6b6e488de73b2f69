/* UTF-8 against the Unicode standard's definition, and the growing byte string. */
#include "base/error.h"
#include "base/text.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* Every prefix of the encoding of a scalar value, by the bit distribution of table 3-6 (D92): what may begin a sequence.
 * Tables of one bit per prefix of 1, 2 and 3 bytes; 4 bytes are decided by the value. */
static unsigned char one[256], *two, *three;

static size_t encode(uint32_t c, unsigned char b[4]) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c /= 64) b[i] = (unsigned char)(0x80 + c % 64);
    b[0] = (unsigned char)(lead[n] + c);
    return n;
}

enum { COMPLETE = 1, OPEN = 2 }; /* a whole character; the beginning of a longer one */

static int make_tables(void **state) {
    (void)state;
    two = calloc(1, 1 << 16);
    three = calloc(1, 1 << 24);
    if (!two || !three) return -1;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        unsigned char b[4];
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        size_t n = encode(c, b);
        one[b[0]] |= n == 1 ? COMPLETE : OPEN;
        if (n > 1) two[b[0] << 8 | b[1]] |= n == 2 ? COMPLETE : OPEN;
        if (n > 2) three[b[0] << 16 | b[1] << 8 | b[2]] |= n == 3 ? COMPLETE : OPEN;
    }
    return 0;
}

static int free_tables(void **state) {
    (void)state;
    free(two);
    free(three);
    return 0;
}

/* Length of the maximal subpart at the start of b, and whether it is a whole character. */
static size_t reference(const unsigned char *b, size_t n, bool *whole) {
    size_t len = 1;
    int now = one[b[0]];
    if ((now & OPEN) && n > 1 && two[b[0] << 8 | b[1]]) {
        now = two[b[0] << 8 | b[1]];
        len = 2;
        if ((now & OPEN) && n > 2 && three[b[0] << 16 | b[1] << 8 | b[2]]) {
            now = three[b[0] << 16 | b[1] << 8 | b[2]];
            len = 3;
            if ((now & OPEN) && n > 3 && b[3] >= 0x80 && b[3] < 0xC0) {
                now = COMPLETE;
                len = 4;
            }
        }
    }
    *whole = now & COMPLETE;
    return len;
}

static void check(const unsigned char *b, size_t n) {
    bool whole;
    uint32_t c = 0;
    size_t want = reference(b, n, &whole), got = ht_utf8_decode((const char *)b, n, &c);
    if (got != want || (!whole && c != 0xFFFD))
        fail_msg("%02x %02x %02x %02x: %zu bytes, expected %zu", b[0], b[1], b[2], b[3], got, want);
    if (ht_utf8_valid((const char *)b, want) != whole)
        fail_msg("%02x %02x %02x %02x: validity", b[0], b[1], b[2], b[3]);
    if (whole) {
        unsigned char again[4];
        if (encode(c, again) != want || memcmp(again, b, want) != 0)
            fail_msg("%02x %02x %02x %02x is U+%04X", b[0], b[1], b[2], b[3], c);
    }
}

UNIT_TEST(every_short_sequence) {
    static const unsigned char ends[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF};
    for (unsigned a = 0; a < 256; a++) {
        check((unsigned char[4]){(unsigned char)a}, 1);
        for (unsigned b = 0; b < 256; b++) {
            check((unsigned char[4]){(unsigned char)a, (unsigned char)b}, 2);
            if (a < 0x80) continue;
            for (size_t c = 0; c < sizeof ends; c++) {
                check((unsigned char[4]){(unsigned char)a, (unsigned char)b, ends[c]}, 3);
                for (size_t d = 0; d < sizeof ends; d++)
                    check((unsigned char[4]){(unsigned char)a, (unsigned char)b, ends[c], ends[d]}, 4);
            }
        }
    }
}

UNIT_TEST(every_code_point) {
    ht_text t = {0};
    for (uint32_t c = 0; c <= 0x110010; c++) {
        unsigned char want[4];
        bool scalar = c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
        size_t n = encode(scalar ? c : 0xFFFD, want);
        uint32_t back;
        ht_text_clear(&t);
        ht_text_append_utf8(&t, c);
        if (t.len != n || memcmp(t.data, want, n) != 0) fail_msg("U+%04X", c);
        if (ht_utf8_decode(t.data, t.len, &back) != n || back != (scalar ? c : 0xFFFD)) fail_msg("U+%04X", c);
        for (size_t cut = 0; cut <= n; cut++)
            if (ht_utf8_complete_prefix(t.data, cut) != (cut == n ? n : 0)) fail_msg("U+%04X cut at %zu", c, cut);
    }
    ht_text_discard(&t);
}

/* The prefix may end in anything that more bytes cannot complete. */
UNIT_TEST(complete_prefixes) {
    const struct {
        const char *text;
        size_t want;
    } cases[] = {
        {"", 0},
        {"abc", 3},
        {"a\xe2\x96", 1},
        {"a\xe2", 1},
        {"a\xf0\x9f\x98", 1},
        {"a\x80", 2},
        {"a\xff", 2},
        {"\xe2\x28", 2},
        {"\xed\xa0", 2},
        {"\xf0\x80\x80", 3},
        {"\xc1", 1},
        {"\xf5", 1},
        {"\xe2\x96\x81z", 4},
        {"\x80\x80\x80\x80", 4},
        {"\xf4\x90", 2},
        {"\xe2\x96\x81\xe2", 3},
        {"\xf4\x8f\xbf", 0},
        {"\xc3\xa9\xc3", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t got = ht_utf8_complete_prefix(cases[i].text, strlen(cases[i].text));
        if (got != cases[i].want) fail_msg("case %zu: %zu, expected %zu", i, got, cases[i].want);
    }
    char cut[] = "ab\xe2\x96";
    ht_utf8_trim(cut);
    assert_string_equal(cut, "ab");
}

UNIT_TEST(validity_of_long_texts) {
    assert_true(ht_utf8_valid("", 0));
    assert_true(ht_utf8_valid("a\0b", 3));
    assert_true(ht_utf8_valid("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", 11));
    assert_false(ht_utf8_valid("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", 10));
    assert_false(ht_utf8_valid("\xed\xa0\x80", 3));
    assert_false(ht_utf8_valid("\xc0\x80", 2));
}

UNIT_TEST(growing) {
    ht_text t = {0};
    char *taken = ht_text_take(&t);
    assert_string_equal(taken, "");
    free(taken);
    for (int i = 0; i < 1000; i++) ht_text_printf(&t, "%d,", i);
    assert_int_equal(t.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_memory_equal(t.data + t.len - 4, "999,", 5);
    ht_text_append(&t, NULL, 0);
    ht_text_clear(&t);
    ht_text_append_str(&t, "x");
    ht_text_append(&t, "\0y", 2);
    assert_int_equal(t.len, 3);
    taken = ht_text_take(&t);
    assert_memory_equal(taken, "x\0y", 4);
    free(taken);
    assert_null(t.data);
}

UNIT_TEST(a_failed_append_is_seen_at_the_end) {
    ht_text t = {0};
    ht_text_append_str(&t, "abc");
    assert_false(ht_text_reserve(&t, SIZE_MAX - 2));
    assert_true(t.failed);
    ht_text_append_str(&t, "def");
    ht_text_printf(&t, "%d", 1);
    ht_text_append_utf8(&t, 'x');
    assert_int_equal(t.len, 3);
    assert_null(ht_text_take(&t));
    assert_false(t.failed);
    ht_text_discard(&t);
}

UNIT_TEST(messages) {
    ht_error err = {0};
    assert_int_equal(ht_fail(&err, HT_ERR_FORMAT, "%s is %d", "x", 3), HT_ERR_FORMAT);
    assert_string_equal(err.message, "x is 3");
    assert_int_equal(ht_fail_in(&err, HT_ERR_IO, "file %d", 7), HT_ERR_FORMAT);
    assert_string_equal(err.message, "file 7: x is 3");
    assert_int_equal(ht_fail(NULL, HT_ERR_IO, "nobody listens"), HT_ERR_IO);
    assert_int_equal(ht_fail_in(NULL, HT_ERR_IO, "nobody listens"), HT_ERR_IO);
    assert_int_equal(ht_fail_memory(&err, 12, "a test"), HT_ERR_MEMORY);
    assert_non_null(strstr(err.message, "12 bytes for a test"));
    assert_string_equal(ht_status_name(HT_ERR_CANCELLED), "cancelled");
    assert_string_equal(ht_status_name((ht_status)99), "unknown");

    /* Long messages lose their middle, between characters wherever that falls. */
    ht_text t = {0};
    for (int shift = 0; shift < 4; shift++) {
        ht_text_clear(&t);
        for (int i = 0; i < shift; i++) ht_text_append_str(&t, "a");
        while (t.len < 1000) ht_text_append_utf8(&t, 0x1F600);
        ht_fail(&err, HT_ERR_IO, "%s", t.data);
        assert_true(ht_utf8_valid(err.message, strlen(err.message)));
        assert_true(strlen(err.message) >= sizeof err.message - 7);
        assert_non_null(strstr(err.message, "..."));
        ht_fail_in(&err, HT_ERR_IO, "where");
        assert_memory_equal(err.message, "where: ", 7);
        assert_true(ht_utf8_valid(err.message, strlen(err.message)));
        ht_fail_in(&err, HT_ERR_IO, "%s", t.data);
        assert_true(ht_utf8_valid(err.message, strlen(err.message)));
    }
    ht_text_discard(&t);

    /* Of a long path the reason stays, and where it begins. */
    static const char start[] = "/models/", reason[] = ": cannot be opened: No such file or directory";
    char path[4096], fits[sizeof err.message];
    memset(path, 'x', sizeof path);
    memcpy(path, start, strlen(start));
    path[sizeof path - 1] = '\0';
    for (int nested = 0; nested < 2; nested++) {
        if (nested) {
            ht_fail(&err, HT_ERR_IO, "%s", reason + 2);
            ht_fail_in(&err, HT_ERR_IO, "%s", path);
        } else
            ht_fail(&err, HT_ERR_IO, "%s%s", path, reason);
        size_t n = strlen(err.message);
        assert_int_equal(n, sizeof err.message - 1);
        assert_memory_equal(err.message, start, strlen(start));
        assert_string_equal(err.message + n - strlen(reason), reason);
    }
    /* What just fits stays whole. */
    memset(fits, 'y', sizeof fits - 1);
    fits[sizeof fits - 1] = '\0';
    ht_fail(&err, HT_ERR_IO, "%s", fits);
    assert_string_equal(err.message, fits);
    ht_fail(&err, HT_ERR_IO, "z%s", fits);
    assert_non_null(strstr(err.message, "y...y"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_short_sequence),
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(complete_prefixes),
        cmocka_unit_test(validity_of_long_texts),
        cmocka_unit_test(growing),
        cmocka_unit_test(a_failed_append_is_seen_at_the_end),
        cmocka_unit_test(messages),
    };
    return cmocka_run_group_tests(tests, make_tables, free_tables);
}
