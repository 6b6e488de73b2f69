/* Heads of HTTP requests: what is accepted and how it is read, what is refused with which status, and that pieces make no difference. */
#include "http/head.h"
#include "support/test.h"

#include <string.h>

typedef struct read_head {
    http_head head;
    http_progress progress;
    size_t used;
} read_head;

/* In pieces of `piece` bytes after the first one of `first`. */
static read_head feed(const char *text, size_t n, size_t first, size_t piece) {
    read_head r = {.progress = HTTP_MORE};
    for (size_t at = 0; at < n && r.progress == HTTP_MORE;) {
        const size_t wanted = at == 0 && first ? first : piece, length = wanted < n - at ? wanted : n - at;
        char *copy = malloc(length); /* so that reading beyond it is found */
        size_t used;
        assert_non_null(copy);
        memcpy(copy, text + at, length);
        r.progress = http_head_feed(&r.head, copy, length, &used);
        free(copy);
        assert_true(used <= length && (used == length || r.progress != HTTP_MORE));
        at += used;
        r.used = at;
    }
    return r;
}

static void assert_same(const read_head *a, const read_head *b) {
    assert_int_equal(a->progress, b->progress);
    assert_int_equal(a->used, b->used);
    assert_int_equal(a->head.refusal.status, b->head.refusal.status);
    assert_ptr_equal(a->head.refusal.sentence, b->head.refusal.sentence);
    assert_int_equal(a->head.n, b->head.n);
    if (a->head.n) assert_memory_equal(a->head.text, b->head.text, a->head.n);
    assert_int_equal(a->head.n_fields, b->head.n_fields);
    assert_int_equal(a->head.body, b->head.body);
}

/* Every split into two, and byte by byte. */
static void check_splits(const char *text, size_t n) {
    read_head whole = feed(text, n, n, n);
    for (size_t first = 0; first <= n; first++) {
        read_head r = first ? feed(text, n, first, n) : feed(text, n, 1, 1);
        assert_same(&whole, &r);
        http_head_discard(&r.head);
    }
    http_head_discard(&whole.head);
}

#define HOST "Host: a\r\n"
#define GET  "GET / HTTP/1.1\r\n" HOST

static void test_accepted(void **state) {
    (void)state;
    static const struct {
        const char *text, *method, *path, *query, *host;
        int minor;
        bool keep_alive;
        http_body_kind body;
        uint64_t length;
    } cases[] = {
        {GET "\r\n", "GET", "/", NULL, "a", 1, true, HTTP_BODY_NONE, 0},
        {"\r\n" GET "\r\n", "GET", "/", NULL, "a", 1, true, HTTP_BODY_NONE, 0},
        {"GET / HTTP/1.0\r\n\r\n", "GET", "/", NULL, NULL, 0, false, HTTP_BODY_NONE, 0},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET", "/", NULL, NULL, 0, true, HTTP_BODY_NONE, 0},
        {GET "Connection: x , CLOSE\r\n\r\n", "GET", "/", NULL, "a", 1, false, HTTP_BODY_NONE, 0},
        {GET "Connection: closed\r\n\r\n", "GET", "/", NULL, "a", 1, true, HTTP_BODY_NONE, 0},
        {"GET /a%20b%2Fc?x=%2e&y HTTP/1.1\r\n" HOST "\r\n", "GET", "/a b/c", "x=%2e&y", "a", 1, true, HTTP_BODY_NONE,
         0},
        {"GET /? HTTP/1.1\r\n" HOST "\r\n", "GET", "/", "", "a", 1, true, HTTP_BODY_NONE, 0},
        {"GET /%C3%A4..b/... HTTP/1.1\r\n" HOST "\r\n", "GET", "/\xC3\xA4..b/...", NULL, "a", 1, true, HTTP_BODY_NONE,
         0},
        {"GET http://b:80/c?d HTTP/1.1\r\n" HOST "\r\n", "GET", "/c", "d", "b:80", 1, true, HTTP_BODY_NONE, 0},
        {"GET HTTPS://[::1]:8 HTTP/1.1\r\n" HOST "\r\n", "GET", "/", NULL, "[::1]:8", 1, true, HTTP_BODY_NONE, 0},
        {"GET http://b?d HTTP/1.1\r\n" HOST "\r\n", "GET", "/", "d", "b", 1, true, HTTP_BODY_NONE, 0},
        {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS", "*", NULL, "a", 1, true, HTTP_BODY_NONE, 0},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length:  0012 \t\r\n\r\n", "POST", "/", NULL, "a", 1, true,
         HTTP_BODY_LENGTH, 12},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "POST", "/", NULL, "a", 1, true, HTTP_BODY_NONE, 0},
        {"POST / HTTP/1.1\r\n" HOST "transfer-encoding: Chunked\r\n\r\n", "POST", "/", NULL, "a", 1, true,
         HTTP_BODY_CHUNKED, 0},
        {"GET / HTTP/1.1\r\nhOST:\r\n\r\n", "GET", "/", NULL, "", 1, true, HTTP_BODY_NONE, 0},
        {GET "X:\r\nY: \xE4\tb\r\n\r\n", "GET", "/", NULL, "a", 1, true, HTTP_BODY_NONE, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = strlen(cases[i].text);
        read_head r = feed(cases[i].text, n, n, n);
        const http_head *h = &r.head;
        if (r.progress != HTTP_DONE) fail_msg("%s: %s", cases[i].text, h->refusal.sentence);
        assert_int_equal(r.used, n);
        assert_string_equal(h->method, cases[i].method);
        assert_string_equal(h->path, cases[i].path);
        assert_string_equal(h->query ? h->query : "(none)", cases[i].query ? cases[i].query : "(none)");
        assert_string_equal(h->host ? h->host : "(none)", cases[i].host ? cases[i].host : "(none)");
        assert_int_equal(h->minor, cases[i].minor);
        assert_int_equal(h->keep_alive, cases[i].keep_alive);
        assert_int_equal(h->body, cases[i].body);
        assert_int_equal(h->content_length, cases[i].length);
        http_head_discard(&r.head);
        check_splits(cases[i].text, n);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"\r\n\r\n", 400},
        {"GET /\r\n\r\n", 400},
        {"GET  / HTTP/1.1\r\n", 400},
        {"GET / HTTP/1.1 \r\n", 400},
        {" GET / HTTP/1.1\r\n", 400},
        {"GET\t/ HTTP/1.1\r\n", 400},
        {"GET / http/1.1\r\n", 400},
        {"GET / HTTP/1.10\r\n", 400},
        {"GET / HTTP/1.\r\n", 400},
        {"GET / HTTP/2.0\r\n", 505},
        {"GET / HTTP/0.9\r\n", 505},
        {"GET / HTTP/1.2\r\n", 505},
        {"G(T / HTTP/1.1\r\n", 400},
        {"get / HTTP/1.1\r\n", 501},
        {"BREW / HTTP/1.1\r\n", 501},
        {"CONNECT a:1 HTTP/1.1\r\n", 405},
        {"GET * HTTP/1.1\r\n", 400},
        {"GET a HTTP/1.1\r\n", 400},
        {"GET ftp://a/ HTTP/1.1\r\n", 400},
        {"GET http:///a HTTP/1.1\r\n", 400},
        {"GET http://u@a/ HTTP/1.1\r\n", 400},
        {"GET http://:80/ HTTP/1.1\r\n", 400},
        {"GET /#a HTTP/1.1\r\n", 400},
        {"GET /\\a HTTP/1.1\r\n", 400},
        {"GET /\xC3\xA4 HTTP/1.1\r\n", 400},
        {"GET /% HTTP/1.1\r\n", 400},
        {"GET /%4 HTTP/1.1\r\n", 400},
        {"GET /%4g HTTP/1.1\r\n", 400},
        {"GET /%00 HTTP/1.1\r\n", 400},
        {"GET /%0a HTTP/1.1\r\n", 400},
        {"GET /%ff HTTP/1.1\r\n", 400},
        {"GET /%ed%a0%80 HTTP/1.1\r\n", 400},
        {"GET /.. HTTP/1.1\r\n", 400},
        {"GET /a/../b HTTP/1.1\r\n", 400},
        {"GET /a/%2e%2E HTTP/1.1\r\n", 400},
        {"GET /a%2f.. HTTP/1.1\r\n", 400},
        {"GET / HTTP/1.1\n", 400},
        {"GET / HTTP/1.1\r \n", 400},
        {"GET / HTTP/1.1\r\nHost: a\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\r\n", 400},
        {GET " folded\r\n", 400},
        {GET "\tfolded\r\n", 400},
        {GET "Name : value\r\n", 400},
        {GET "Name\r\n", 400},
        {GET ": value\r\n", 400},
        {GET "Na\xE4me: value\r\n", 400},
        {GET "Name: a\x01\r\n", 400},
        {GET "Name: a\x7F\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {GET "Host: a\r\n\r\n", 400},
        {"GET / HTTP/1.0\r\n" HOST HOST "\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a/\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
        {GET "Content-Length:\r\n\r\n", 400},
        {GET "Content-Length: +1\r\n\r\n", 400},
        {GET "Content-Length: -1\r\n\r\n", 400},
        {GET "Content-Length: 1 1\r\n\r\n", 400},
        {GET "Content-Length: 0x1\r\n\r\n", 400},
        {GET "Content-Length: 1, 1\r\n\r\n", 400},
        {GET "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {GET "Content-Length: 99999999999999999999\r\n\r\n", 413},
        {GET "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {GET "Transfer-Encoding: chunked, chunked\r\n\r\n", 501},
        {GET "Transfer-Encoding: \x0B"
             "chunked\r\n\r\n",
         400},
        {GET "Transfer-Encoding: identity\r\n\r\n", 501},
        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Expect: tea\r\n\r\n", 417},
        {GET "Content-Encoding: gzip\r\n\r\n", 415},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = strlen(cases[i].text);
        read_head r = feed(cases[i].text, n, n, n);
        if (r.progress != HTTP_REFUSED || r.head.refusal.status != cases[i].status)
            fail_msg("%s: %d %d", cases[i].text, r.progress, r.head.refusal.status);
        assert_non_null(r.head.refusal.sentence);
        http_head_discard(&r.head);
        check_splits(cases[i].text, n);
    }
    static const char nul[] = "GET / HTTP/1.1\r\nA: \0b\r\n";
    read_head r = feed(nul, sizeof nul - 1, 5, 5);
    assert_int_equal(r.head.refusal.status, 400);
    http_head_discard(&r.head);
}

/* `before`, n times `repeated`, `after`: 0 when it is accepted, else the status. */
static int status_of(const char *before, const char *repeated, size_t n, const char *after) {
    const size_t length = strlen(before) + n * strlen(repeated) + strlen(after);
    char *text = malloc(length + 1);
    assert_non_null(text);
    char *at = stpcpy(text, before);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, repeated);
    strcpy(at, after);
    read_head one = feed(text, length, length, length), bytes = feed(text, length, 1, 1);
    assert_same(&one, &bytes);
    const int status = one.progress == HTTP_DONE ? 0 : one.head.refusal.status;
    assert_int_not_equal(one.progress, HTTP_MORE);
    http_head_discard(&one.head);
    http_head_discard(&bytes.head);
    free(text);
    return status;
}

static void test_limits(void **state) {
    (void)state;
    assert_int_equal(status_of("GET /", "a", HTTP_TARGET_BYTES - 1, " HTTP/1.1\r\n" HOST "\r\n"), 0);
    assert_int_equal(status_of("GET /", "a", HTTP_TARGET_BYTES, " HTTP/1.1\r\n" HOST "\r\n"), 414);
    assert_int_equal(status_of("GET /", "a", 40000, ""), 414);
    assert_int_equal(status_of(GET, "A: b\r\n", HTTP_FIELDS - 1, "\r\n"), 0);
    assert_int_equal(status_of(GET, "A: b\r\n", HTTP_FIELDS, "\r\n"), 431);
    const size_t around = strlen(GET "A:\r\n\r\n");
    assert_int_equal(status_of(GET "A:", "b", HTTP_HEAD_BYTES - around, "\r\n\r\n"), 0);
    assert_int_equal(status_of(GET "A:", "b", HTTP_HEAD_BYTES - around + 1, "\r\n\r\n"), 431);
    assert_int_equal(status_of(GET "A:", "b", 40000, ""), 431);
}

static void test_fields_and_query(void **state) {
    (void)state;
    static const char text[] = GET "X-A: 1\r\nx-a: 2\r\nB:c d\r\n\r\nrest";
    char value[8];
    read_head r = feed(text, sizeof text - 1, 7, 3);
    assert_int_equal(r.used, sizeof text - 1 - strlen("rest"));
    assert_string_equal(http_head_value(&r.head, "x-a"), "1");
    assert_string_equal(http_head_value(&r.head, "b"), "c d");
    assert_null(http_head_value(&r.head, "c"));
    assert_int_equal(r.head.n_fields, 4);
    assert_string_equal(r.head.text + r.head.field[2].name, "x-a");
    assert_string_equal(r.head.text + r.head.field[2].value, "2");
    http_head_discard(&r.head);

    static const char query[] = "a=1&bb=x+y%21&c&d=%zz&e=12345678&f=%00&b";
    assert_true(http_query_value(query, "a", value, sizeof value));
    assert_string_equal(value, "1");
    assert_true(http_query_value(query, "bb", value, sizeof value));
    assert_string_equal(value, "x y!");
    assert_true(http_query_value(query, "c", value, sizeof value));
    assert_string_equal(value, "");
    assert_true(http_query_value(query, "b", value, sizeof value));
    assert_false(http_query_value(query, "d", value, sizeof value));
    assert_false(http_query_value(query, "e", value, sizeof value));
    assert_false(http_query_value(query, "f", value, sizeof value));
    assert_false(http_query_value(query, "z", value, sizeof value));
    assert_false(http_query_value(NULL, "a", value, sizeof value));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_accepted), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_limits), cmocka_unit_test(test_fields_and_query)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
