/* Bodies of HTTP requests: chunks that are accepted, those that are refused with which status, bounds, and that pieces make no
 * difference. */
#include "http/body.h"
#include "support/test.h"

#include <string.h>

static http_progress feed(http_body_reader *r, const http_head *head, size_t limit, const char *text, size_t n,
                          size_t first, size_t piece, size_t *used) {
    http_progress progress = http_body_begin(r, head, limit);
    *used = 0;
    while (*used < n && progress == HTTP_MORE) {
        const size_t wanted = *used == 0 ? first : piece, length = wanted < n - *used ? wanted : n - *used;
        char *copy = malloc(length);
        size_t taken;
        assert_non_null(copy);
        memcpy(copy, text + *used, length);
        progress = http_body_feed(r, copy, length, &taken);
        free(copy);
        assert_true(taken <= length && (taken == length || progress != HTTP_MORE));
        *used += taken;
    }
    return progress;
}

static const http_head chunked = {.body = HTTP_BODY_CHUNKED};

/* The status, or 0 with the body; the same for every split. */
static int read_chunked(const char *text, size_t limit, char *body, size_t room, size_t *used) {
    http_body_reader whole;
    const size_t n = strlen(text);
    const http_progress progress = feed(&whole, &chunked, limit, text, n, n ? n : 1, n, used);
    for (size_t first = 0; first <= n && n < 1000; first++) {
        http_body_reader r;
        size_t same;
        assert_int_equal(feed(&r, &chunked, limit, text, n, first ? first : 1, first ? n : 1, &same), progress);
        assert_int_equal(same, *used);
        assert_int_equal(r.n, whole.n);
        assert_int_equal(r.refusal.status, whole.refusal.status);
        if (r.n) assert_memory_equal(r.bytes, whole.bytes, r.n + 1);
        http_body_discard(&r);
    }
    assert_int_not_equal(progress, HTTP_MORE);
    assert_true(whole.n < room);
    if (whole.n) memcpy(body, whole.bytes, whole.n);
    body[whole.n] = '\0';
    const int status = whole.refusal.status;
    assert_int_equal(status == 0, progress == HTTP_DONE);
    http_body_discard(&whole);
    return status;
}

static void test_chunks(void **state) {
    (void)state;
    static const struct {
        const char *text, *body, *rest;
    } cases[] = {{"0\r\n\r\nrest", "", "rest"},
                 {"3\r\nabc\r\n0\r\n\r\nGET", "abc", "GET"},
                 {"000000000000000A\r\n0123456789\r\n1\r\nx\r\n0000\r\n\r\n", "0123456789x", ""},
                 {"1;a;b=\"c\td\"\r\n\r\r\n0;x\r\n\r\n", "\r", ""},
                 {"1\r\nx\r\n0\r\nA:\r\nB: c\r\n\r\n\r\n", "x", "\r\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[64];
        size_t used;
        assert_int_equal(read_chunked(cases[i].text, 100, body, sizeof body, &used), 0);
        assert_string_equal(body, cases[i].body);
        assert_string_equal(cases[i].text + used, cases[i].rest);
    }
}

static void test_refused_chunks(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {{"\r\n", 400},
                 {"g\r\n", 400},
                 {" 1\r\n", 400},
                 {"1 \r\n", 400},
                 {"-1\r\n", 400},
                 {"+1\r\n", 400},
                 {"0x1\r\n", 400},
                 {"1\n", 400},
                 {"1\rx", 400},
                 {"1\r\nab\r\n", 400},
                 {"1\r\na\n", 400},
                 {"1\r\na\r1", 400},
                 {"1;a\n", 400},
                 {"1;a\x01\r\n", 400},
                 {"1,1\r\n", 400},
                 {"65\r\n", 413},
                 {"ffffffffffffffff\r\n", 413},
                 {"00000000000000001\r\n", 400},
                 {"0\r\n\n", 400},
                 {"0\r\n\rx", 400},
                 {"0\r\n: a\r\n", 400},
                 {"0\r\nA : b\r\n", 400},
                 {"0\r\n b: c\r\n", 400},
                 {"0\r\nA: b\n", 400},
                 {"0\r\nA\r\n", 400},
                 {";a\r\n", 400}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        size_t used;
        if (read_chunked(cases[i].text, 100, body, sizeof body, &used) != cases[i].status)
            fail_msg("%s", cases[i].text);
    }
}

static void test_bounds(void **state) {
    (void)state;
    char *text = malloc(20000), body[128];
    size_t used;
    assert_non_null(text);
    char *at = stpcpy(text, "64\r\n");
    memset(at, 'x', 100);
    strcpy(at + 100, "\r\n0\r\n\r\n");
    assert_int_equal(read_chunked(text, 100, body, sizeof body, &used), 0);
    assert_int_equal(strlen(body), 100);
    assert_int_equal(read_chunked(text, 99, body, sizeof body, &used), 413);
    for (size_t n = HTTP_EXTENSION_BYTES; n <= HTTP_EXTENSION_BYTES + 1; n++) {
        at = stpcpy(text, "0;");
        memset(at, 'x', n);
        strcpy(at + n, "\r\n\r\n");
        assert_int_equal(read_chunked(text, 100, body, sizeof body, &used), n > HTTP_EXTENSION_BYTES ? 400 : 0);
    }
    for (size_t n = HTTP_TRAILER_BYTES - 4; n <= HTTP_TRAILER_BYTES;
         n += 4) { /* "A:", the CR of the field, that of the end */
        at = stpcpy(text, "0\r\nA:");
        memset(at, 'x', n);
        strcpy(at + n, "\r\n\r\n");
        assert_int_equal(read_chunked(text, 100, body, sizeof body, &used), n > HTTP_TRAILER_BYTES - 4 ? 431 : 0);
    }
    free(text);
}

static void test_lengths(void **state) {
    (void)state;
    static const char text[] = "0123456789rest";
    const http_head head = {.body = HTTP_BODY_LENGTH, .content_length = 10}, none = {0};
    const http_head huge = {.body = HTTP_BODY_LENGTH, .content_length = UINT64_MAX};
    for (size_t first = 1; first < sizeof text; first++) {
        http_body_reader r;
        size_t used;
        assert_int_equal(feed(&r, &head, 10, text, sizeof text - 1, first, 3, &used), HTTP_DONE);
        assert_int_equal(used, 10);
        assert_int_equal(r.n, 10);
        assert_string_equal(r.bytes, "0123456789");
        http_body_discard(&r);
    }
    http_body_reader r;
    assert_int_equal(http_body_begin(&r, &none, 0), HTTP_DONE);
    assert_int_equal(http_body_begin(&r, &head, 9), HTTP_REFUSED);
    assert_int_equal(r.refusal.status, 413);
    assert_int_equal(http_body_begin(&r, &huge, SIZE_MAX - 1), HTTP_REFUSED);
    /* What is promised takes no memory. */
    const http_head promised = {.body = HTTP_BODY_LENGTH, .content_length = (uint64_t)1 << 40};
    size_t used;
    assert_int_equal(feed(&r, &promised, (size_t)1 << 41, text, 3, 3, 3, &used), HTTP_MORE);
    assert_true(r.capacity <= 4096);
    http_body_discard(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks), cmocka_unit_test(test_refused_chunks),
                                       cmocka_unit_test(test_bounds), cmocka_unit_test(test_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
