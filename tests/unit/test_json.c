/* JSON documents: typed members, and what messages say of them. */
#include "formats/json.h"
#include "support/scratch.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_json *parse(const char *text) {
    ht_json *root;
    assert_works(ht_json_parse, text, strlen(text), "c.json", &root);
    return root;
}

/* Python's json.dumps writes such documents, and its json.load reads them. */
UNIT_TEST(as_python_reads_it) {
    ht_json *root = parse("{\"a\": 1, \"x\": NaN, \"o\": {\"k\": 1, \"k\": 2}, \"l\": [-Infinity,Infinity, -1],\n"
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
    const ht_json *list = ht_json_array(&r, root, "l");
    assert_string_equal(ht_json_describe(ht_json_array_get(list, 0), buffer, sizeof buffer), "-Infinity");
    assert_string_equal(ht_json_describe(ht_json_array_get(list, 1), buffer, sizeof buffer), "Infinity");
    assert_false(ht_json_whole(ht_json_array_get(list, 0), &i));
    assert_true(ht_json_whole(ht_json_array_get(list, 2), &i) && i == -1);
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
        assert_non_null(strstr(err.message, "c.json: `x` is NaN, expected "));
    }
    ht_json_decref(root);
    static const char *const wrong[] = {"{\"a\":nan}",       "{\"a\":NaNN}",       "{\"a\":1NaN}",
                                        "{\"a\":+Infinity}", "{\"a\":- Infinity}", "{\"a\":NaN"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        assert_fails(HT_ERR_FORMAT, "", ht_json_parse, wrong[k], strlen(wrong[k]), "c.json", &root);
        assert_null(root);
    }
}

UNIT_TEST(members) {
    ht_json *root = parse(
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
    assert_int_equal(ht_json_array_size(ht_json_array(&r, root, "a")), 2);

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
    ht_json_decref(root);
}

UNIT_TEST(huge_integers) {
    ht_json *root =
        parse("{\"model_max_length\":1000000000000000019884624838656,\"n\":32768,\"odd\":9007199254740993}");
    ht_json_reader r = {.file = "c.json"};
    int64_t i;
    double f;
    assert_true(ht_json_i64(&r, root, "n", &i) && i == 32768);
    assert_true(ht_json_f64(&r, root, "model_max_length", &f) && fabs(f - 1e30) < 1e20);
    assert_false(ht_json_i64(&r, root, "model_max_length", &i));
    assert_int_equal(r.status, HT_ERR_FORMAT);
    ht_json_decref(root);
    root = parse("{\"large\":9223372036854775807,\"small\":-9223372036854775808,\"odd\":9007199254740993,"
                 "\"larger\":9223372036854775808,\"text\":\"9223372036854775808\",\"tiny\":1e-9223372036854775808,"
                 "\"list\":[-99999999999999999999,99999999999999999999.5]}");
    r.status = HT_OK;
    assert_true(ht_json_i64(&r, root, "large", &i) && i == INT64_MAX);
    assert_true(ht_json_i64(&r, root, "small", &i) && i == INT64_MIN);
    assert_true(ht_json_i64(&r, root, "odd", &i) && i == 9007199254740993);
    assert_true(ht_json_f64(&r, root, "larger", &f) && f == 0x1p63);
    assert_true(ht_json_f64(&r, root, "tiny", &f) && f == 0);
    assert_string_equal(ht_json_string_value(ht_json_object_get(root, "text")), "9223372036854775808");
    assert_true(ht_json_number_value(ht_json_array_get(ht_json_object_get(root, "list"), 0)) == -1e20);
    ht_json_decref(root);
}

UNIT_TEST(descriptions) {
    char buffer[128];
    ht_json *root = parse(
        "{\"s\":\"a\\u001b[2J\\n\xc3\xa9\",\"l\":"
        "\"\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81"
        "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81"
        "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81z\xe2\x96\x81\"}");
    assert_string_equal(ht_json_describe(ht_json_object_get(root, "s"), buffer, sizeof buffer),
                        "the string \"a [2J \xc3\xa9\"");
    ht_json_describe(ht_json_object_get(root, "l"), buffer, sizeof buffer);
    assert_non_null(strstr(buffer, "z...\""));
    ht_json_decref(root);
}

UNIT_TEST(files) {
    ht_json *root;
    scratch_make();
    scratch_write("a.json", "{\"a\": [1, 2}", 12);
    assert_fails(HT_ERR_FORMAT, "/a.json: line 1, column 12: expected a comma or `]`, found `}`", ht_json_read,
                 scratch_path("a.json"), 100, &root);
    assert_fails(HT_ERR_LIMIT, "", ht_json_read, scratch_path("a.json"), 11, &root);
    assert_fails(HT_ERR_IO, "", ht_json_read, scratch_path("b.json"), 100, &root);
    scratch_write("a.json", "{\"a\": 1}", 8);
    assert_works(ht_json_read, scratch_path("a.json"), 100, &root);
    ht_json_decref(root);
    scratch_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_python_reads_it), cmocka_unit_test(members), cmocka_unit_test(huge_integers),
        cmocka_unit_test(descriptions),       cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
