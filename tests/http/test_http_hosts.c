/* Names under which a server may be asked, pages that may ask it, and keys. */
#include "http/hosts.h"
#include "http/keys.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

static void test_hosts(void **state) {
    (void)state;
    static const char *const hosts[] = {"box.example", "*.lan", "2001:db8::1"};
    const http_host_rules rules = {.host = hosts, .n_hosts = 3}, none = {0};
    static const char *const allowed[] = {"localhost",     "LOCALHOST:80",  "a.b.localhost", "localhost.",
                                          "127.0.0.1",     "127.255.1.2:1", "[::1]",         "[::1]:80",
                                          "10.0.0.7:8080", "Box.Example",   "pc.lan:1",      "[2001:DB8:0::1]"};
    static const char *const refused[] = {
        "",     "localhost.evil",   "evillocalhost", "128.0.0.1", "127.0.0.1.evil", "10.0.0.8", "[::2]", "lan",
        "xlan", "box.example.evil", "127.1",         "::1",       "0x7f.0.0.1"};
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (!http_host_allowed(allowed[i], "10.0.0.7", &rules)) fail_msg("%s", allowed[i]);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (http_host_allowed(refused[i], "10.0.0.7", &rules)) fail_msg("%s", refused[i]);
    assert_false(http_host_allowed("box.example", "10.0.0.7", &none));
    assert_true(http_host_allowed("evil", NULL, &none)); /* a unix socket */
    assert_true(http_host_allowed(NULL, "10.0.0.7", &none));
    static const char *const any[] = {"*"};
    assert_true(http_host_allowed("evil", "10.0.0.7", &(http_host_rules){.host = any, .n_hosts = 1}));
}

static void test_origins(void **state) {
    (void)state;
    static const char *const origins[] = {"https://app.example", "http://dev.example:*"};
    const http_host_rules rules = {.origin = origins, .n_origins = 2};
    static const struct {
        const char *origin, *host;
        http_origin wanted;
    } cases[] = {{"http://a", "a", HTTP_ORIGIN_SAME},
                 {"http://A:3000", "a:80", HTTP_ORIGIN_SAME},
                 {"http://[::1]:3000", "[::1]", HTTP_ORIGIN_SAME},
                 {"http://b", "a", HTTP_ORIGIN_FOREIGN},
                 {"http://a", NULL, HTTP_ORIGIN_FOREIGN},
                 {"null", "a", HTTP_ORIGIN_FOREIGN},
                 {"", "", HTTP_ORIGIN_FOREIGN},
                 {"https://app.example", "a", HTTP_ORIGIN_LISTED},
                 {"https://app.example:444", "a", HTTP_ORIGIN_FOREIGN},
                 {"http://app.example", "a", HTTP_ORIGIN_FOREIGN},
                 {"http://dev.example", "a", HTTP_ORIGIN_LISTED},
                 {"http://dev.example:1", "a", HTTP_ORIGIN_LISTED},
                 {"http://dev.example:", "a", HTTP_ORIGIN_FOREIGN},
                 {"http://dev.example:1x", "a", HTTP_ORIGIN_FOREIGN},
                 {"http://dev.example.evil", "a", HTTP_ORIGIN_FOREIGN},
                 {"http://dev", "a", HTTP_ORIGIN_FOREIGN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (http_origin_of(cases[i].origin, cases[i].host, &rules) != cases[i].wanted) fail_msg("%s", cases[i].origin);
}

static ssize_t admitted(const http_keys *keys, const char *fields) {
    char text[256];
    http_head head = {0};
    size_t used;
    const int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    assert_int_equal(http_head_feed(&head, text, (size_t)n, &used), HTTP_DONE);
    const ssize_t found = http_keys_admit(keys, &head);
    http_head_discard(&head);
    return found;
}

static void test_keys(void **state) {
    (void)state;
    static const char text[] = "\xEF\xBB\xBF# first\none\r\n\n \t two-2 \nthree";
    http_keys *keys;
    ht_error err = {0};
    assert_int_equal(http_keys_parse("keys", text, sizeof text - 1, &keys, &err), HT_OK);
    static const char *const others[] = {"", "on", "# first", "onex"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char field[64];
        snprintf(field, sizeof field, "x-api-key: %s\r\n", others[i]);
        assert_int_equal(admitted(keys, field), -1);
    }
    assert_int_equal(admitted(keys, "Authorization: BEARER  three\r\n"), 2);
    assert_int_equal(admitted(keys, "x-api-key: two-2\r\n"), 1);
    assert_int_equal(admitted(keys, "Authorization: Bearer no\r\nx-api-key: one\r\n"), 0);
    assert_int_equal(admitted(keys, "Authorization: one\r\n"), -1);
    assert_int_equal(admitted(keys, ""), -1);
    http_keys_free(keys);

    assert_int_equal(http_keys_parse("keys", "#a\n\n", 4, &keys, &err), HT_ERR_FORMAT);
    assert_null(keys);
    assert_int_equal(http_keys_parse("keys", "a\nb c\n", 6, &keys, &err), HT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "line 2"));
    assert_int_equal(http_keys_parse("keys", "a\0b", 3, &keys, &err), HT_ERR_FORMAT);
    assert_int_equal(http_keys_load("/nonexistent/keys", &keys, &err), HT_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hosts), cmocka_unit_test(test_origins),
                                       cmocka_unit_test(test_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
