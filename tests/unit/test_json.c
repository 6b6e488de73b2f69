/* JSON documents: strictness, limits, and what messages say. */
#include "formats/json.h"
#include "support/scratch.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void contains(const char *message, const char *part) {
    if (!strstr(message, part)) fail_msg("\"%s\" lacks \"%s\"", message, part);
}

static json_t *parse(const char *text) {
    json_t *root;
    ht_error err = {0};
    if (ht_json_parse(text, strlen(text), "c.json", &root, &err)) fail_msg("%s", err.message);
    return root;
}

static void expect_failure(const char *text, size_t n, ht_status status, const char *part) {
    json_t *root = (void *)1;
    ht_error err = {0};
    assert_int_equal(ht_json_parse_strict(text, n, "c.json", HT_JSON_VALUES_MAX, &root, &err), status);
    assert_null(root);
    contains(err.message, "c.json: ");
    contains(err.message, part);
}

static void strictness(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line 1, column 0: not valid JSON"},
        {"{\"a\":1,}", "line 1, column 8: not valid JSON"},
        {"{\n\"a\": 1,\n\"a\": 2}", "line 3, column 3: not valid JSON: duplicate object key near '\"a\"'"},
        {"{\"a\":\"\xff\"}", "not valid JSON"},
        {"{\"a\":\"\\u0000\"}", "a text has a NUL character"},
        {"{\"a\":\"\\ud800\"}", "not valid JSON"},
        {"{\"a\":NaN}", "not valid JSON"},
        {"{\"a\":1e999}", "not valid JSON"},
        {"{\"a\":01}", "not valid JSON"},
        {"{\"a\":1} x", "not valid JSON: end of file expected near 'x'"},
        {"{\"a\":\"\x1b[31m\"}", "not valid JSON: control character 0x1b"},
        {"[1]", "is a JSON array, expected an object"},
        {"7", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_failure(cases[i].text, strlen(cases[i].text), HT_ERR_FORMAT, cases[i].part);
    expect_failure("{\"a\":1}\0", 8, HT_ERR_FORMAT, "not valid JSON");
}

/* Python's json.dumps writes such documents, and its json.load reads them. */
static void as_python_reads_it(void **state) {
    (void)state;
    json_t *root = parse("{\"a\": 1, \"x\": NaN, \"o\": {\"k\": 1, \"k\": 2}, \"l\": [-Infinity,Infinity, -1],\n"
                         "\"s\": \"NaN \\\" Infinity\", \"a\": 7, \"NaN\": 3}");
    ht_error err = {0};
    ht_json_reader r = {.file = "c.json", .err = &err};
    int64_t i;
    double f;
    bool b;
    const char *s;
    char buffer[64];
    assert_true(ht_json_i64(&r, root, "a", &i) && i == 7);
    assert_true(ht_json_i64(&r, ht_json_object(&r, root, "o"), "k", &i) && i == 2);
    assert_true(ht_json_i64(&r, root, "NaN", &i) && i == 3);
    assert_true(ht_json_str(&r, root, "s", &s));
    assert_string_equal(s, "NaN \" Infinity");
    const json_t *list = ht_json_array(&r, root, "l");
    assert_string_equal(ht_json_describe(json_array_get(list, 0), buffer, sizeof buffer), "-Infinity");
    assert_string_equal(ht_json_describe(json_array_get(list, 1), buffer, sizeof buffer), "Infinity");
    assert_false(ht_json_whole(json_array_get(list, 0), &i));
    assert_true(ht_json_whole(json_array_get(list, 2), &i) && i == -1);
    assert_int_equal(r.status, HT_OK);
    for (int kind = 0; kind < 6; kind++) { /* a number that is used has to be one */
        r.status = HT_OK;
        switch (kind) {
        case 0: assert_false(ht_json_i64(&r, root, "x", &i)); break;
        case 1: assert_false(ht_json_f64(&r, root, "x", &f)); break;
        case 2: assert_false(ht_json_bool(&r, root, "x", &b)); break;
        case 3: assert_false(ht_json_str(&r, root, "x", &s)); break;
        case 4: assert_null(ht_json_object(&r, root, "x")); break;
        default: assert_null(ht_json_array(&r, root, "x"));
        }
        assert_int_equal(r.status, HT_ERR_FORMAT);
        contains(err.message, "c.json: `x` is NaN, expected ");
    }
    json_decref(root);
    static const char *const wrong[] = {"{\"a\":nan}",        "{\"a\":NaNN}",  "{\"a\":1NaN}", "{\"a\":+Infinity}",
                                        "{\"a\":- Infinity}", "{\"a\":1e999}", "{\"a\":NaN"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        assert_int_equal(ht_json_parse(wrong[k], strlen(wrong[k]), "c.json", &root, &err), HT_ERR_FORMAT);
        assert_null(root);
    }
}

static void depth(void **state) {
    (void)state;
    char text[1000];
    for (int levels = HT_JSON_DEPTH_MAX; levels <= HT_JSON_DEPTH_MAX + 1; levels++) {
        int n = snprintf(text, sizeof text, "{\"a\":\"[[\\\"[[\",\n\"b\":");
        for (int i = 1; i < levels; i++) text[n++] = '[';
        for (int i = 1; i < levels; i++) text[n++] = ']';
        text[n++] = '}';
        text[n] = '\0';
        if (levels == HT_JSON_DEPTH_MAX)
            json_decref(parse(text));
        else
            expect_failure(text, (size_t)n, HT_ERR_LIMIT, "line 2, column 196: nested deeper than 192 levels");
    }
}

static void number_of_values(void **state) {
    (void)state;
    size_t n = 2 * (size_t)HT_JSON_VALUES_MAX + 100;
    char *text = malloc(n);
    memcpy(text, "{\"a\":[0", 7);
    for (size_t i = 7; i < n - 3; i += 2) memcpy(text + i, ",0", 2);
    memcpy(text + n - 3, "]} ", 3);
    expect_failure(text, n, HT_ERR_LIMIT, "values, at most 4194304 are accepted");
    free(text);
    /* A caller's own number; it cannot be larger. */
    static const char three[] = "{\"a\":[1,2,3]}";
    static const size_t most[] = {2, 3, SIZE_MAX};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        json_t *root;
        ht_error err = {0};
        const ht_status status = ht_json_parse_strict(three, sizeof three - 1, "c.json", most[i], &root, &err);
        assert_int_equal(status, most[i] < 3 ? HT_ERR_LIMIT : HT_OK);
        if (status) contains(err.message, "c.json: has 3 values, at most 2 are accepted");
        json_decref(root);
    }
}

static void members(void **state) {
    (void)state;
    json_t *root = parse(
        "{\"i\":-5,\"whole\":3.0,\"real\":0.5,\"yes\":true,\"no\":false,\"s\":\"text\",\"n\":null,\"o\":{\"x\":1},"
        "\"a\":[1,2]}");
    ht_error err = {0};
    ht_json_reader r = {.file = "c.json", .err = &err};
    int64_t i = 7;
    double f = 7;
    bool b = true;
    const char *s = "old";
    assert_true(ht_json_i64(&r, root, "i", &i) && i == -5);
    assert_true(ht_json_i64(&r, root, "whole", &i) && i == 3);
    assert_true(ht_json_f64(&r, root, "i", &f) && f == -5);
    assert_true(ht_json_f64(&r, root, "real", &f) && f == 0.5);
    assert_true(ht_json_bool(&r, root, "no", &b) && !b);
    assert_true(ht_json_bool(&r, root, "yes", &b) && b);
    assert_true(ht_json_str(&r, root, "s", &s));
    assert_string_equal(s, "text");
    assert_true(ht_json_i64(&r, ht_json_object(&r, root, "o"), "x", &i) && i == 1);
    assert_int_equal(json_array_size(ht_json_array(&r, root, "a")), 2);

    i = 9;
    assert_false(ht_json_i64(&r, root, "absent", &i));
    assert_false(ht_json_i64(&r, root, "n", &i));
    assert_false(ht_json_i64(&r, NULL, "i", &i));
    assert_int_equal(i, 9);
    assert_null(ht_json_object(&r, root, "absent"));
    assert_null(ht_json_array(&r, NULL, "absent"));
    assert_int_equal(r.status, HT_OK);

    struct {
        const char *key, *message;
        int kind;
    } wrong[] = {
        {"real", "c.json: `real` is 0.5, expected an integer", 'i'},
        {"s", "c.json: `s` is the string \"text\", expected an integer", 'i'},
        {"o", "c.json: `o` is an object, expected a number", 'f'},
        {"i", "c.json: `i` is -5, expected true or false", 'b'},
        {"yes", "c.json: `yes` is true, expected a string", 's'},
        {"a", "c.json: `a` is an array of 2, expected an object", 'o'},
        {"no", "c.json: `no` is false, expected an array", 'a'},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        r.status = HT_OK;
        bool got = false;
        switch (wrong[k].kind) {
        case 'i': got = ht_json_i64(&r, root, wrong[k].key, &i); break;
        case 'f': got = ht_json_f64(&r, root, wrong[k].key, &f); break;
        case 'b': got = ht_json_bool(&r, root, wrong[k].key, &b); break;
        case 's': got = ht_json_str(&r, root, wrong[k].key, &s); break;
        case 'o': got = ht_json_object(&r, root, wrong[k].key); break;
        default: got = ht_json_array(&r, root, wrong[k].key);
        }
        assert_false(got);
        assert_int_equal(r.status, HT_ERR_FORMAT);
        assert_string_equal(err.message, wrong[k].message);
    }
    /* The first failure stays. */
    ht_json_missing(&r, "x", "a number");
    assert_string_equal(err.message, wrong[6].message);
    r.status = HT_OK;
    ht_json_missing(&r, "x", "a number");
    assert_string_equal(err.message, "c.json: `x` is missing, expected a number");
    json_decref(root);
}

static void huge_integers(void **state) {
    (void)state;
    json_t *root = parse("{\"model_max_length\":1000000000000000019884624838656,\"n\":32768,\"odd\":9007199254740993}");
    ht_json_reader r = {.file = "c.json"};
    int64_t i;
    double f;
    assert_true(ht_json_i64(&r, root, "n", &i) && i == 32768);
    assert_true(ht_json_f64(&r, root, "model_max_length", &f) && fabs(f - 1e30) < 1e20);
    assert_false(ht_json_i64(&r, root, "model_max_length", &i));
    assert_int_equal(r.status, HT_ERR_FORMAT);
    json_decref(root);
    root = parse("{\"large\":9223372036854775807,\"small\":-9223372036854775808,\"odd\":9007199254740993,"
                 "\"larger\":9223372036854775808,\"text\":\"9223372036854775808\",\"tiny\":1e-9223372036854775808,"
                 "\"list\":[-99999999999999999999,99999999999999999999.5]}");
    r.status = HT_OK;
    assert_true(ht_json_i64(&r, root, "large", &i) && i == INT64_MAX);
    assert_true(ht_json_i64(&r, root, "small", &i) && i == INT64_MIN);
    assert_true(ht_json_i64(&r, root, "odd", &i) && i == 9007199254740993);
    assert_true(ht_json_f64(&r, root, "larger", &f) && f == 0x1p63);
    assert_true(ht_json_f64(&r, root, "tiny", &f) && f == 0);
    assert_string_equal(json_string_value(json_object_get(root, "text")), "9223372036854775808");
    assert_true(json_number_value(json_array_get(json_object_get(root, "list"), 0)) == -1e20);
    json_decref(root);
}

static void descriptions(void **state) {
    (void)state;
    char buffer[128];
    json_t *root = parse(
        "{\"s\":\"a\\u001b[2J\\n\xc3\xa9\",\"l\":"
        "\"\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81"
        "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81"
        "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81z\xe2\x96\x81\"}");
    assert_string_equal(ht_json_describe(json_object_get(root, "s"), buffer, sizeof buffer),
                        "the string \"a [2J \xc3\xa9\"");
    ht_json_describe(json_object_get(root, "l"), buffer, sizeof buffer);
    assert_non_null(strstr(buffer, "z...\""));
    json_decref(root);
}

static void files(void **state) {
    (void)state;
    json_t *root;
    ht_error err = {0};
    scratch_make();
    scratch_write("a.json", "{\"a\": [1, 2}", 12);
    assert_int_equal(ht_json_read(scratch_path("a.json"), 100, &root, &err), HT_ERR_FORMAT);
    contains(err.message, "/a.json: line 1, column 12: not valid JSON");
    assert_int_equal(ht_json_read(scratch_path("a.json"), 11, &root, &err), HT_ERR_LIMIT);
    assert_int_equal(ht_json_read(scratch_path("b.json"), 100, &root, &err), HT_ERR_IO);
    scratch_write("a.json", "{\"a\": 1}", 8);
    assert_int_equal(ht_json_read(scratch_path("a.json"), 100, &root, &err), HT_OK);
    json_decref(root);
    scratch_remove();
}

/* Non-finite numbers, which JSON lacks, come out as they went in; a string that spells one stays a string. */
static void documents_are_written_as_they_were(void **state) {
    (void)state;
    static const char text[] =
        "{\n  \"a\": NaN,\n  \"b\": [\n    -Infinity,\n    1.5,\n    \"Infinity\"\n  ],\n  \"c\": {\n"
        "    \"d\": \"\\u001A \\\" NaN\",\n    \"e\": 7\n  }\n}";
    json_t *root;
    ht_error err = {0};
    if (ht_json_parse(text, strlen(text), "f", &root, &err)) fail_msg("%s", err.message);
    char *written = ht_json_text_of(root);
    assert_string_equal(written, text);
    free(written);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strictness),
        cmocka_unit_test(as_python_reads_it),
        cmocka_unit_test(depth),
        cmocka_unit_test(number_of_values),
        cmocka_unit_test(members),
        cmocka_unit_test(huge_integers),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(files),
        cmocka_unit_test(documents_are_written_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
