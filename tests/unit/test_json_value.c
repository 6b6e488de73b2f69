/* The reader of JSON, its values and the writer: what is accepted, what errors say, how numbers and strings come out. */
#include "formats/json_value.h"
#include "formats/json_write.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ht_json *load(const char *text, const ht_json_options *options) {
    ht_json *value;
    assert_works(ht_json_load, text, strlen(text), options, &value);
    return value;
}

static const ht_json_options any = {.name = "t.json", .any_value = true},
                             python = {.name = "t.json", .any_value = true, .as_python = true};

static void dumps_to(ht_json *value, unsigned flags, const char *expected) {
    char *text = ht_json_dump(value, flags);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    ht_json_decref(value);
}

UNIT_TEST(errors_name_the_place) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 1: expected an object (`{`), found the end of the text"},
        {"[1]", "line 1, column 1: expected an object (`{`), found `[`"},
        {"{\"a\":1,}", "line 1, column 8: expected the name of a member in quotes, found `}`"},
        {"{\n\"a\": 1\n \"b\": 2}", "line 3, column 2: expected a comma or `}`, found `\"`"},
        {"{\n\"a\": 1,\n\"a\": 2}", "line 3, column 1: expected each member once, found `a` again"},
        {"{\"\xc3\xa9\xe2\x96\x81\": [1,\r\n\t]}", "line 2, column 2: expected a value, found `]`"},
        {"{\"\xc3\xa9\xe2\x96\x81\": [1 2]}", "line 1, column 11: expected a comma or `]`, found `2`"},
        {"{\"a\":\"\xff\"}", "line 1, column 7: expected UTF-8, found the byte 0xFF"},
        {"{\"a\":\"\xed\xa0\x80\"}", "line 1, column 7: expected UTF-8, found the byte 0xED"},
        {"{\"a\":NaN}", "line 1, column 6: expected a value, found `NaN`"},
        {"{\"a\":-Infinity}", "line 1, column 6: expected a value, found `-Infinity`"},
        {"{\"a\":nulll}", "line 1, column 6: expected a value, found `nulll`"},
        {"{\"a\":01}", "line 1, column 7: expected a comma or `}`, found `1`"},
        {"{\"a\":-}", "line 1, column 7: expected a digit, found `}`"},
        {"{\"a\":1.e5}", "line 1, column 8: expected a digit, found `e5`"},
        {"{\"a\":1e+}", "line 1, column 9: expected a digit, found `}`"},
        {"{\"a\" 1}", "line 1, column 6: expected a colon after the name of a member, found `1`"},
        {"{a:1}", "line 1, column 2: expected the name of a member in quotes, found `a`"},
        {"{\"a\":1} // x", "line 1, column 9: expected nothing after the value, found `/`"},
        {"{\"a\":\"\x1b[31m\"}", "line 1, column 7: expected control characters as escapes, found the byte 0x1B"},
        {"{\"a\":\"\n\"}", "line 1, column 7: expected control characters as escapes, found a line break"},
        {"{\"a\":\"x", "line 1, column 8: expected `\"` at the end of the string, found the end of the text"},
        {"{\"a\":\"\\q\"}", "line 1, column 8: expected an escape such as `\\n` after the backslash, found `q`"},
        {"{\"a\":\"\\u12g4\"}", "line 1, column 11: expected four hexadecimal digits after `\\u`, found `g4`"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ht_json_options options = {.name = "t.json"};
        ht_json *value = (void *)1;
        ht_error err = {0};
        assert_int_equal(ht_json_load(cases[i].text, strlen(cases[i].text), &options, &value, &err), HT_ERR_FORMAT);
        assert_null(value);
        assert_memory_equal(err.message, "t.json: ", 8);
        assert_string_equal(err.message + 8, cases[i].message);
    }
    assert_null(ht_json_of("{}\0", 3));
}

UNIT_TEST(limits) {
    char text[2 * HT_JSON_DEPTH_MAX + 8];
    for (int levels = HT_JSON_DEPTH; levels <= HT_JSON_DEPTH + 1; levels++) {
        memset(text, '[', (size_t)levels);
        memset(text + levels, ']', (size_t)levels);
        ht_json *value;
        ht_error err = {0};
        assert_int_equal(ht_json_load(text, 2 * (size_t)levels, &any, &value, &err),
                         levels > HT_JSON_DEPTH ? HT_ERR_LIMIT : HT_OK);
        if (!value) assert_string_equal(err.message, "t.json: line 1, column 193: nested deeper than 192 levels");
        ht_json_decref(value);
    }
    for (size_t most = 2; most <= 3; most++) {
        const ht_json_options options = {.name = "t.json", .values_max = most};
        ht_json *value;
        ht_error err = {0};
        assert_int_equal(ht_json_load("{\"a\":[1,2,3]}", 13, &options, &value, &err), most < 3 ? HT_ERR_LIMIT : HT_OK);
        if (!value) assert_string_equal(err.message, "t.json: line 1, column 10: more than 2 values");
        ht_json_decref(value);
    }
}

UNIT_TEST(texts) {
    static const char text[] =
        "\xEF\xBB\xBF [\"a\\u0000b\", \"\\ud83d\\ude00\\uD83D\\n\\ud83d\\u0041\", \"\\udc00\\/\", {\"\\u0000\":1}]";
    dumps_to(load(text, &any), HT_JSON_COMPACT,
             "[\"a\xEF\xBF\xBD"
             "b\",\"\xF0\x9F\x98\x80\xEF\xBF\xBD\\n\xEF\xBF\xBD"
             "A\",\"\xEF\xBF\xBD/\",{\"\xEF\xBF\xBD\":1}]");
    ht_json_options keeps = any;
    keeps.keeps_nul = true;
    dumps_to(load(text, &keeps), HT_JSON_COMPACT | HT_JSON_ASCII,
             "[\"a\\u0000b\",\"\\ud83d\\ude00\\ufffd\\n\\ufffdA\",\"\\ufffd/\",{\"\\u0000\":1}]");
    /* What is not UTF-8 is written as U+FFFD. */
    dumps_to(ht_json_stringn("a\xff\xe2\x96z\0\x7f", 7), 0, "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\\u0000\x7f\"");
    dumps_to(ht_json_stringn("a\xffz\x7f", 4), HT_JSON_ASCII, "\"a\\ufffdz\\u007f\"");
}

UNIT_TEST(numbers_keep_their_spelling) {
    static const char text[] = "[0.1,1E5,-0,9223372036854775807,9223372036854775808,-9223372036854775808,"
                               "123456789012345678901234567890,1.10,0.30000000000000004,1e-400,1e999]";
    ht_json *list = load(text, &any);
    static const bool is_integer[] = {false, false, true, true, false, true, false, false, false, false, false};
    for (size_t i = 0; i < ht_json_array_size(list); i++)
        assert_int_equal(ht_json_is_integer(ht_json_array_get(list, i)), is_integer[i]);
    assert_true(ht_json_integer_value(ht_json_array_get(list, 5)) == INT64_MIN);
    assert_true(ht_json_number_value(ht_json_array_get(list, 4)) == 0x1p63);
    dumps_to(list, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(3), text);

    static const struct {
        double x;
        const char *text;
    } reals[] = {{0, "0.0"},
                 {-0.0, "-0.0"},
                 {0.1, "0.1"},
                 {1e22, "1e+22"},
                 {1e15, "1000000000000000.0"},
                 {1e16, "1e+16"},
                 {12345678901234567.0, "1.2345678901234568e+16"},
                 {1e-5, "1e-05"},
                 {0.0001, "0.0001"},
                 {5e-324, "5e-324"},
                 {1.7976931348623157e308, "1.7976931348623157e+308"},
                 {1.0 / 3, "0.3333333333333333"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {-1234567890123456.7, "-1234567890123456.8"}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) dumps_to(ht_json_real(reals[i].x), 0, reals[i].text);
    dumps_to(ht_json_real((double)0.1f), HT_JSON_REAL_PRECISION(7), "0.1");
    assert_null(ht_json_real(NAN));

    static const char odd[] =
        "{\n  \"a\": NaN,\n  \"b\": [\n    -Infinity,\n    1.50,\n    \"Infinity\"\n  ],\n  \"c\": {}\n}";
    list = load(odd, &python);
    assert_false(ht_json_is_number(ht_json_object_get(list, "a")));
    dumps_to(list, HT_JSON_INDENT(2), odd);
}

UNIT_TEST(members) {
    ht_json *object = ht_json_new_object();
    char name[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(ht_json_object_set_new(object, name, ht_json_integer(i)), 0);
    }
    for (int i = 0; i < 1000; i += 3) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(ht_json_object_del(object, name), 0);
        assert_int_equal(ht_json_object_del(object, name), -1);
    }
    assert_int_equal(ht_json_object_set_new(object, "n4", ht_json_string("four")), 0); /* stays the third */
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        if (i % 3 == 0)
            assert_null(ht_json_object_get(object, name));
        else if (i != 4)
            assert_int_equal(ht_json_integer_value(ht_json_object_get(object, name)), i);
    }
    assert_int_equal(ht_json_object_size(object), 666);
    size_t n = 0;
    const char *key, *other;
    ht_json *value, *inner;
    ht_json_object_foreach(object, key, value) {
        ht_json_object_foreach(value, other, inner) fail_msg("%s %p", other, (void *)inner);
        if (n++ == 2) assert_string_equal(key, "n4");
    }
    ht_json *copy = ht_json_copy(object);
    assert_true(ht_json_equal(copy, object));
    ht_json_object_del(copy, "n5");
    assert_false(ht_json_equal(copy, object));
    assert_int_equal(ht_json_object_set_new(copy, "n5", ht_json_integer(5)), 0); /* order does not matter */
    assert_true(ht_json_equal(copy, object));
    ht_json_decref(copy);
    ht_json_decref(object);

    dumps_to(load("{\"b\":1,\"a\":{\"y\":1,\"x\":[true,false,null]},\"b\":2}", &python), HT_JSON_SORT_KEYS,
             "{\"a\": {\"x\": [true, false, null], \"y\": 1}, \"b\": 2}");
    object = load("{\"a\": 1,\n  \"b\": [\n \"\xc3\xa9\", {}]}", &any);
    value = ht_json_array_get(ht_json_object_get(object, "b"), 1);
    assert_int_equal(value->line, 3);
    assert_int_equal(value->column, 7);
    ht_json_decref(object);
}

UNIT_TEST(packing) {
    ht_json *shared = ht_json_string("x");
    dumps_to(ht_json_pack("{ss, si:sI sf s[bnO]s{so}ss%so?ss?ss*sO* sO}", "s", "t", "i", 1, "I", (int64_t)1 << 40, "f",
                          0.5, "l", 7, shared, "o", "p", ht_json_new_array(), "%", "abc", (size_t)2, "q", NULL, "r",
                          NULL, "gone", NULL, "away", NULL, "last", shared),
             HT_JSON_COMPACT,
             "{\"s\":\"t\",\"i\":1,\"I\":1099511627776,\"f\":0.5,\"l\":[true,null,\"x\"],\"o\":{\"p\":[]},\"%\":\"ab\","
             "\"q\":null,\"r\":null,\"last\":\"x\"}");
    assert_int_equal(shared->references, 1);
    assert_null(ht_json_pack("{so so}", "a", NULL, "b", ht_json_incref(shared)));
    assert_int_equal(shared->references, 1);
    assert_null(ht_json_pack("{ss}", "a", NULL));
    assert_null(ht_json_pack("[f]", (double)INFINITY));
    ht_json_decref(shared);
}

/* Reals of Python's text are written as they stand there. */
static void check_reals(const ht_json *value) {
    const char *name, *spelling = ht_json_spelling(value);
    ht_json *item;
    size_t i;
    ht_json_array_foreach(value, i, item) check_reals(item);
    ht_json_object_foreach(value, name, item) check_reals(item);
    if (!ht_json_is_real(value) || !strpbrk(spelling, ".e")) return;
    char text[64];
    ht_json_format_real(ht_json_real_value(value), text);
    assert_string_equal(text, spelling);
}

/* tests/golden/make_json.py */
UNIT_TEST(as_python) {
    FILE *file = fopen("tests/golden/json.txt", "r");
    char *line = NULL, *expected = NULL;
    size_t capacity = 0, expected_capacity = 0, cases = 0;
    const ht_json_options options = {.name = "t.json", .any_value = true, .as_python = true, .keeps_nul = true};
    assert_non_null(file);
    for (ssize_t n; (n = getline(&line, &capacity, file)) > 0; cases++) {
        const ssize_t n_expected = getline(&expected, &expected_capacity, file);
        ht_json *value, *wanted;
        const ht_status status = ht_json_load(line, (size_t)n - 1, &options, &value, NULL);
        assert_true(n_expected > 1);
        expected[n_expected - 1] = '\0';
        if ((status == HT_OK) == (expected[0] == '!')) fail_msg("%s%s", line, expected);
        if (status) continue;
        assert_int_equal(ht_json_load(expected, strlen(expected), &options, &wanted, NULL), HT_OK);
        assert_true(ht_json_equal(value, wanted));
        check_reals(wanted);
        dumps_to(wanted, HT_JSON_ASCII, expected);
        ht_json_decref(value);
    }
    assert_true(cases > 120);
    free(line);
    free(expected);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_the_place),
        cmocka_unit_test(limits),
        cmocka_unit_test(texts),
        cmocka_unit_test(numbers_keep_their_spelling),
        cmocka_unit_test(members),
        cmocka_unit_test(packing),
        cmocka_unit_test(as_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
