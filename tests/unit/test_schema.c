/* JSON Schemas: which texts are valid, which schemas are refused and with what words. The JSON-Schema-Test-Suite and random schemas are
 * tried by tests/golden/json_schemas.py. */
#include "base/text.h"
#include "grammar/automaton.h"
#include "grammar/schema_rules.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON that is written with single quotes; the caller frees it. */
static char *json_of(const char *text) {
    char *json = strdup(text);
    for (char *c = json; (c = strchr(c, '\''));) *c = '"';
    return json;
}

static ht_automaton *compile(const char *schema, const ht_schema_options *options) {
    ht_rules *rules;
    ht_automaton *a = NULL;
    ht_error err = {0};
    char *json = json_of(schema);
    if (ht_schema_compile(json, strlen(json), options, &rules, &err) || ht_automaton_new(rules, &a, &err))
        fail_msg("%s: %s", schema, err.message);
    free(json);
    return a;
}

static uint32_t feed(ht_automaton *a, const char *text) {
    char *json = json_of(text);
    const uint32_t end = ht_automaton_feed(a, a->start[0], json, strlen(json));
    free(json);
    return end;
}

static bool takes(ht_automaton *a, const char *text) {
    ht_error err = {0};
    const uint32_t end = feed(a, text);
    if (ht_automaton_status(a, &err)) fail_msg("%s: %s", text, err.message);
    return ht_automaton_may_end(a, end);
}

/* Whether some text goes on so. */
static bool begins(ht_automaton *a, const char *text) { return ht_automaton_is_live(a, feed(a, text)); }

/* A schema, and texts up to NULL. */
typedef struct schema_case {
    const char *schema, *valid[8], *invalid[8];
} schema_case;

static void check_with(const schema_case *c, size_t n, const ht_schema_options *options) {
    for (size_t i = 0; i < n; i++) {
        ht_automaton *a = compile(c[i].schema, options);
        for (size_t k = 0; k < 8 && c[i].valid[k]; k++)
            if (!takes(a, c[i].valid[k])) fail_msg("%s: %s is refused", c[i].schema, c[i].valid[k]);
        for (size_t k = 0; k < 8 && c[i].invalid[k]; k++)
            if (takes(a, c[i].invalid[k])) fail_msg("%s: %s is taken", c[i].schema, c[i].invalid[k]);
        ht_automaton_free(a);
    }
}

#define CHECK(cases, ...) check_with(cases, sizeof cases / sizeof *cases, &(ht_schema_options){__VA_ARGS__})

UNIT_TEST(types_and_values) {
    static const schema_case cases[] = {
        {"true",
         {"null", "[1, {'a': '\\u00e9\\ud83d\\ude00\\/'}]", "-0.5E+7"},
         {"", "01", "'\\ud83d'", "[1,]", "{,}", "nul"}},
        {"{'type': ['null', 'boolean']}", {"null", "true", "false"}, {"0", "''", "[]", "{}"}},
        {"{'type': 'integer'}",
         {"0", "-12", "12345678901234567890"},
         {"123456789012345678901", "1.0", "1.5", "1e3", "-"}},
        {"{'enum': [1, 'a', null, [1, {}], {'k': false}]}",
         {"1", "'a'", "null", "[1, {}]", "{'k':false}"},
         {"2", "'b'", "[1]", "{}", "{'k': true}", "{'k': false, 'l': 1}"}},
        {"{'const': 'q\\'\\\\\\u0001\\n'}", {"'q\\'\\\\\\u0001\\n'"}, {"'q\\u0022\\\\\\u0001\\n'"}},
        {"{'const': 1.50}", {"1.5"}, {"1.50", "1", "15e-1"}},
        {"{'not': {'const': 0}}", {"1", "-1", "0.5", "'0'"}, {"0", "-0", "0.0"}},
        {"{'not': {'type': ['object', 'array', 'string', 'number']}}", {"null", "true"}, {"{}", "[]", "0"}},
    };
    CHECK(cases, 0);
}

UNIT_TEST(numbers) {
    static const schema_case cases[] = {
        {"{'type': 'number', 'minimum': -12.25, 'exclusiveMaximum': 130}",
         {"-12.25", "-12.2", "-0", "0", "129.999", "5", "-12.250"},
         {"-12.26", "-13", "130", "130.0", "1000", "-100"}},
        {"{'type': 'integer', 'minimum': 1, 'maximum': 1e2}",
         {"1", "9", "10", "99", "100"},
         {"0", "101", "-5", "1000"}},
        {"{'type': 'number', 'exclusiveMinimum': 0, 'maximum': 0.05}",
         {"0.05", "0.01", "0.0499"},
         {"0", "0.051", "0.1", "-1"}},
        {"{'type': 'number', 'multipleOf': 0.01}", {"0", "19.99", "-3.5", "7", "1.100"}, {"0.001", "19.999"}},
        {"{'type': 'integer', 'multipleOf': 7, 'minimum': 100}", {"105", "70000"}, {"98", "106"}},
        {"{'type': 'integer', 'multipleOf': 0.123456789}", {"0", "123456789"}, {"1", "123456788"}},
        {"{'type': 'integer', 'not': {'multipleOf': 2}}", {"1", "-3"}, {"0", "4"}},
        {"{'minimum': 3, 'exclusiveMinimum': true, '$schema': 'http://json-schema.org/draft-04/schema#'}",
         {"3.1", "null"},
         {"3"}},
    };
    static const schema_case spelled[] = {
        {"{'type': 'integer'}", {"1.0", "1", "-0.00"}, {"1.01", "1."}},
        {"{'enum': [2, 2.5]}", {"2.000", "2.50"}, {"2.05"}},
    };
    CHECK(cases, 0);
    CHECK(spelled, .every_spelling = true);
}

UNIT_TEST(strings) {
    static const schema_case cases[] = {
        {"{'type': 'string', 'minLength': 2, 'maxLength': 3}", {"'é😀'", "'\\n\\'a'"}, {"'a'", "'abcd'", "'\\u0041b'"}},
        {"{'type': 'string', 'pattern': '^[^x]+$', 'minLength': 2}", {"'ab'", "'\\\\\\''"}, {"'a'", "'ax'", "''"}},
        {"{'type': 'string', 'pattern': 'b', 'not': {'pattern': '^a'}}", {"'b'", "'cab'"}, {"'ab'", "'c'"}},
        {"{'format': 'date'}", {"'2024-02-29'", "'1999-12-31'", "5"}, {"'2023-02-29'", "'1900-02-29'", "'2024-13-01'"}},
        {"{'format': 'time'}",
         {"'23:59:60Z'", "'01:29:60+01:30'", "'08:30:06.5-08:00'"},
         {"'22:59:60Z'", "'24:00:00Z'", "'12:00:00'"}},
        {"{'format': 'duration'}", {"'P1DT12H'", "'P2W'"}, {"'P'", "'PT1D'", "'P1D2H'"}},
        {"{'format': 'email'}", {"'a.b@c.example'", "'\\'a b\\'@[127.0.0.1]'"}, {"'a..b@c'", "'a@'", "'a@b_c'"}},
        {"{'format': 'ipv6'}", {"'::'", "'1::d6:192.168.0.1'"}, {"'1:2:3:4:5:::8'", "'1::2::3'"}},
        {"{'format': 'uuid'}", {"'2EB8AA08-aa98-11ea-b4aa-73b441d16380'"}, {"'2eb8aa08aa9811eab4aa73b441d16380'"}},
        {"{'format': 'uri'}", {"'http://a.b/c?d#e'", "'urn:a:b'"}, {"'/a'", "'a b:c'"}},
        {"{'format': 'colour'}", {"'red'"}, {"red"}},
    };
    static const schema_case ignored[] = {{"{'format': 'date'}", {"'tomorrow'"}, {"tomorrow"}}};
    CHECK(cases, 0);
    CHECK(ignored, .ignore_formats = true);
}

UNIT_TEST(arrays) {
    static const schema_case cases[] = {
        {"{'type': 'array', 'items': {'type': 'integer'}, 'minItems': 1, 'maxItems': 3}",
         {"[1]", "[1, 2,3]"},
         {"[]", "[1,2,3,4]", "[null]"}},
        {"{'type': 'array', 'prefixItems': [{'const': 1}, {'const': 2}], 'items': false, 'minItems': 1}",
         {"[1]", "[1, 2]"},
         {"[2]", "[1,2,3]", "[]"}},
        {"{'type': 'array', 'contains': {'const': 1}, 'minContains': 2, 'maxContains': 3}",
         {"[1,0,1]", "[1,1,1,2]"},
         {"[1]", "[1,1,1,1]"}},
        {"{'items': {'enum': ['a', 'b', 'c']}, 'uniqueItems': true, 'type': 'array', 'minItems': 2}",
         {"['a', 'b']", "['c','b','a']"},
         {"['a','a']", "['a']"}},
        {"{'not': {'items': {'type': 'string'}}}", {"[1]", "['a', 1]"}, {"[]", "['a']", "1"}},
        {"{'prefixItems': [true], 'anyOf': [{'prefixItems': [true, {'const': 2}]}, true], 'unevaluatedItems': false}",
         {"[0]", "[0, 2]"},
         {"[0, 3]", "[0, 2, 3]"}},
        {"{'items': [{'const': 1}], 'additionalItems': {'const': 2}, 'type': 'array'}",
         {"[]", "[1,2,2]"},
         {"[2]", "[1,1]"}},
    };
    CHECK(cases, 0);
}

UNIT_TEST(objects) {
    static const schema_case cases[] = {
        {"{'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'null'}}, 'required': ['a'], "
         "'additionalProperties': false}",
         {"{'a': 1}", "{'b': null, 'a': 1}", "{\n  'a': 1,\n  'b': null\n}", "{'a':1,'b':null}"},
         {"{}", "{'b': null}", "{'a': 1, 'a': 2}", "{'a': 1, 'c': 1}", "{'a': null}", "{'a': 1 , 'b':\n\n null}"}},
        {"{'type': 'object', 'properties': {'a': false}, 'patternProperties': {'^x': {'type': 'integer'}, 'y$': "
         "{'minimum': 5}}, 'additionalProperties': {'type': 'string'}}",
         {"{}", "{'x': 1, 'xy': 5, 'y': ''}", "{'b': ''}"},
         {"{'a': 1}", "{'xy': 1}", "{'b': 1}", "{'y': 4}"}},
        {"{'type': 'object', 'minProperties': 2, 'maxProperties': 2, 'propertyNames': {'maxLength': 1}}",
         {"{'a': 1, 'b': 2}"},
         {"{'a': 1}", "{'aa': 1, 'b': 1}", "{'a':1,'b':1,'c':1}"}},
        {"{'dependentRequired': {'a': ['b']}, 'dependentSchemas': {'b': {'maxProperties': 2}}}",
         {"{}", "{'b': 1}", "{'b':1, 'a':1}", "1"},
         {"{'a': 1}", "{'a':1,'b':1,'c':1}"}},
        {"{'not': {'additionalProperties': {'type': 'string'}}}",
         {"{'a': 1}", "{'a': '', 'b': 1}"},
         {"{}", "{'a': ''}", "[]"}},
        {"{'allOf': [{'properties': {'a': true}}, {'properties': {'b': true}}], 'unevaluatedProperties': false}",
         {"{'a': 1, 'b': 1}"},
         {"{'c': 1}"}},
        {"{'required': ['a'], 'properties': {'a': false}, 'type': ['object', 'null']}", {"null"}, {"{}", "{'a': 1}"}},
        {"{'type': 'object', 'properties': {'a\\'é': {'const': 1}}, 'required': ['a\\'é']}",
         {"{'a\\'é': 1, 'x': [2]}"},
         {"{'a\\u0022é': 1}", "{}"}},
    };
    static const schema_case ordered[] = {
        {"{'type': 'object', 'properties': {'b': {'const': 1}, 'a': {'const': 2}, 'c': {'const': 3}}, 'required': "
         "['a']}",
         {"{'b': 1, 'a': 2, 'c': 3}", "{'a': 2}", "{'b':1,'a':2,'x':0}"},
         {"{'a': 2, 'b': 1}", "{'b': 1}", "{'x': 0, 'a': 2}", "{'a': 2, 'x': 0, 'c': 3}"}},
        {"{'allOf': [{'properties': {'n': {}, 't': {}}}, {'properties': {'t': {}, 'n': {}, 'u': {}}}], "
         "'minProperties': 2, 'maxProperties': 2}",
         {"{'n': 0, 't': 0}", "{'t': 0, 'u': 1}"},
         {"{'t': 0, 'n': 0}", "{'u': 0}"}},
    };
    CHECK(cases, 0);
    CHECK(ordered, .ordered = true);
}

UNIT_TEST(logic) {
    static const schema_case cases[] = {
        {"{'oneOf': [{'multipleOf': 2, 'type': 'integer'}, {'multipleOf': 3, 'type': 'integer'}]}",
         {"2", "3", "9"},
         {"6", "0", "1", "''"}},
        {"{'oneOf': [{'required': ['a']}, {'required': ['b']}], 'type': 'object'}",
         {"{'a': 1}", "{'b': 1, 'c': 2}"},
         {"{}", "{'a': 1, 'b': 1}"}},
        {"{'if': {'properties': {'k': {'const': 'x'}}, 'required': ['k']}, 'then': {'required': ['v']}, 'else': "
         "{'maxProperties': 1}}",
         {"{'k': 'x', 'v': 1}", "{'k': 'y'}", "{}"},
         {"{'k': 'x'}", "{'k': 'y', 'v': 1}"}},
        {"{'$defs': {'n': {'type': 'object', 'properties': {'v': {'type': 'integer'}, 'next': {'$ref': '#/$defs/n'}}, "
         "'required': ['v'], 'additionalProperties': false}}, '$ref': '#/$defs/n', 'properties': {'v': {'minimum': "
         "3}}}",
         {"{'v': 3, 'next': {'v': 1, 'next': {'v': 0}}}"},
         {"{'v': 2}", "{'v': 3, 'next': {}}", "{'v': 3, 'next': null}"}},
        {"{'properties': {'a': {'$ref': '#'}}, 'required': ['a'], 'type': ['object', 'integer']}",
         {"1", "{'a': {'a': 2}}"},
         {"{}", "{'a': null}"}},
        {"{'$id': 'http://x/y', '$defs': {'s': {'$anchor': 'here', 'const': 1}, 't': {'$id': 'z', 'const': 2}}, "
         "'items': {'anyOf': [{'$ref': '#here'}, {'$ref': 'http://x/z'}]}}",
         {"[1, 2]"},
         {"[3]"}},
    };
    CHECK(cases, 0);
}

/* Objects whose members are described have no others, wherever in a schema that is. */
UNIT_TEST(closed_objects) {
    static const schema_case cases[] = {
        {"{'properties': {'a': {}, 'b': {'type': 'object'}}, 'required': ['c'], 'type': 'object'}",
         {"{'c': 1}", "{'a': {'x': 1}, 'c': 1}", "{'b': {'x': 1}, 'c': 1}"},
         {"{'c': 1, 'd': 1}", "{'a': 1}"}},
        {"{'type': 'object'}", {"{}", "{'a': {'b': 1}}"}, {"1"}},
        {"{'type': 'object', 'required': ['a']}", {"{'a': 1}", "{'a': 1, 'b': 1}"}, {"{'b': 1}"}},
        {"{'properties': {'a': {}}, 'additionalProperties': true, 'type': 'object'}", {"{'b': 1}"}, {"1"}},
        {"{'properties': {'a': {}}, 'additionalProperties': {'type': 'null'}, 'type': 'object'}",
         {"{'b': null}"},
         {"{'b': 1}"}},
        {"{'properties': {'a': {}}, 'unevaluatedProperties': {}, 'type': 'object'}", {"{'b': 1}"}, {"1"}},
        {"{'properties': {'a': {}}, 'patternProperties': {'^x': {}}, 'type': 'object'}",
         {"{'a': 1, 'x1': 1}"},
         {"{'b': 1}"}},
        /* Members of all schemas of an object together. */
        {"{'allOf': [{'properties': {'a': {}}}, {'$ref': '#/$defs/b'}], '$defs': {'b': {'properties': {'b': {'items': "
         "{'properties': {'c': {}}}}}}}, 'type': 'object'}",
         {"{'a': 1, 'b': [{'c': 1}]}"},
         {"{'c': 1}", "{'b': [{'d': 1}]}"}},
        {"{'anyOf': [{'properties': {'a': {}}}, {'properties': {'b': {}}}], 'type': 'object'}",
         {"{'a': 1}", "{'b': 1}"},
         {"{'c': 1}", "{'a': 1, 'b': 1}"}},
        /* Those that need others have them. */
        {"{'properties': {'a': {}}, 'minProperties': 2, 'type': 'object'}", {"{'a': 1, 'b': 1}"}, {"{'a': 1}"}},
        {"{'not': {'required': ['a']}, 'type': 'object'}", {"{'b': 1}"}, {"{'a': 1}"}},
    };
    CHECK(cases, .closed = true);
    static const schema_case ordered[] = {{"{'properties': {'b': {}, 'a': {}}, 'required': ['b'], 'type': 'object'}",
                                           {"{'b': 1}", "{'b': 1, 'a': 1}"},
                                           {"{'a': 1, 'b': 1}", "{'b': 1, 'c': 1}"}}};
    CHECK(ordered, .closed = true, .ordered = true);
}

/* Numbers do not go on without end, unless that is what is valid. */
UNIT_TEST(short_numbers) {
    static const schema_case cases[] = {
        {"{'type': 'number'}",
         {"-12345678901234567890.12345678901234567890e+12"},
         {"123456789012345678901", "1.123456789012345678901", "1e100"}},
        {"{'type': 'number', 'minimum': 0}", {"12345678901234567890.5"}, {"123456789012345678901", "-1"}},
        {"{'type': 'integer', 'minimum': 1e25}", {"10000000000000000000000001"}, {"12345678901234567890"}},
        {"{'const': 123456789012345678901234567890}", {"123456789012345678901234567890"}, {"1"}},
    };
    CHECK(cases, 0);
    static const schema_case all[] = {{"{'type': 'number'}", {"123456789012345678901.0e1000"}, {"1e"}}};
    CHECK(all, .every_spelling = true);
}

/* Where nothing valid can follow, nothing may be begun. */
UNIT_TEST(dead_ends) {
    ht_automaton *a = compile("{'type': 'object', 'properties': {'loop': {'$ref': '#/$defs/endless'}, 'n': {'type': "
                              "'integer', 'minimum': 20, 'maximum': 29}},'additionalProperties': false, '$defs': "
                              "{'endless': {'type': 'array', 'minItems': 1, 'items': {'$ref': '#/$defs/endless'}}}}",
                              NULL);
    assert_true(begins(a, "{'n': 2"));
    assert_false(begins(a, "{'n': 3"));
    assert_false(begins(a, "{'n': 2,"));
    assert_false(begins(a, "{'l"));
    ht_automaton_free(a);
    a = compile("{'type': 'object', 'minProperties': 2, 'properties': {'a': true, 'b': true, 'c': {'type': 'string', "
                "'enum': [1]}}, 'additionalProperties': false}",
                NULL);
    assert_true(takes(a, "{'b': 0, 'a': 0}"));
    assert_false(begins(a, "{'a': 0}"));
    assert_false(begins(a, "{'c"));
    ht_automaton_free(a);
}

UNIT_TEST(white_space) {
    static const schema_case none[] = {{"true", {"{'a':[1,2]}"}, {"{'a': 1}", "[1, 2]", " 1"}}};
    static const schema_case any[] = {{"true", {"{ 'a'\r\n:\t\t[1 ,  2 ] }"}, {"[1]]"}}};
    static const schema_case some[] = {{"true",
                                        {"{ 'a' : [\n\t1,\n      2 ] }", "[\n]", "[1 , 2]"},
                                        {"[1,  2]", "[1,\n\n2]", "[1] ", "[1\n, 2]", "{'a'\n: 1}", "[\n \t1]",
                                         "[\n\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t1]"}}};
    CHECK(none, .space = HT_SCHEMA_SPACE_NONE);
    CHECK(any, .space = HT_SCHEMA_SPACE_ANY);
    CHECK(some, .space = HT_SCHEMA_SPACE_LINES);
}

UNIT_TEST(refusals) {
    static const struct {
        const char *schema;
        ht_status status;
        const char *part;
    } cases[] = {
        {"", HT_ERR_FORMAT, "line 1, column 1: expected a value, found the end of the text"},
        {"{'a': 1, 'a': 2}", HT_ERR_FORMAT, "expected each member once, found `a` again"},
        {"[]", HT_ERR_FORMAT, "#: a schema is expected"},
        {"{'type': 'text'}", HT_ERR_FORMAT, "#/type: there is no type `text`"},
        {"{'properties': {'a/b': {'minLength': -1}}}", HT_ERR_FORMAT, "#/properties/a~1b/minLength: a whole number"},
        {"{'$ref': 'other.json#/a'}", HT_ERR_UNSUPPORTED, "#/$ref: `other.json#/a` is not within this schema"},
        {"{'$ref': '#/$defs/a'}", HT_ERR_FORMAT, "#/$ref: `#/$defs/a` names nothing"},
        {"{'$ref': '#'}", HT_ERR_FORMAT, "refers to itself"},
        {"{'items': {'uniqueItems': true}}", HT_ERR_UNSUPPORTED, "#/items/uniqueItems: unique items"},
        {"{'pattern': '(a)\\\\1'}", HT_ERR_UNSUPPORTED, "#/pattern: the regular expression `(a)\\1`: back references"},
        {"{'pattern': '('}", HT_ERR_FORMAT, "#/pattern"},
        {"{'format': 'regex'}", HT_ERR_UNSUPPORTED, "#/format: the format `regex`"},
        {"{'$schema': 'http://json-schema.org/draft-03/schema#'}", HT_ERR_UNSUPPORTED, "#/$schema: the dialect"},
        {"{'minimum': 1e5000}", HT_ERR_LIMIT, "#/minimum: a number of more than 1000 digits"},
        {"{'type': 'integer', 'exclusiveMinimum': 1, 'exclusiveMaximum': 2}", HT_ERR_FORMAT, "no valid value"},
        {"false", HT_ERR_FORMAT, "no valid value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_rules *rules = (void *)1;
        ht_error err = {0};
        char *json = json_of(cases[i].schema);
        const ht_status st = ht_schema_compile(json, strlen(json), NULL, &rules, &err);
        free(json);
        assert_null(rules);
        if (st != cases[i].status || !strstr(err.message, cases[i].part))
            fail_msg("%s: status %d, '%s' lacks '%s'", cases[i].schema, (int)st, err.message, cases[i].part);
    }
}

/* Sixteen conditions one by one: two to the power of sixteen cases, nearly all of which contradict themselves. */
UNIT_TEST(many_conditions) {
    ht_text schema = {0};
    ht_text_append_str(&schema, "{'type': 'object', 'allOf': [");
    for (int i = 0; i < 16; i++)
        ht_text_printf(
            &schema,
            "%s{'if': {'properties': {'kind': {'const': %d}}, 'required': ['kind']}, 'then': {'required': ['of_%d']}}",
            i ? "," : "", i, i);
    ht_text_append_str(&schema, "]}");
    assert_false(schema.failed);
    ht_automaton *a = compile(schema.data, NULL);
    assert_true(takes(a, "{'kind': 3, 'of_3': 0}"));
    assert_false(takes(a, "{'kind': 3, 'of_4': 0}"));
    assert_true(takes(a, "{'kind': 16}"));
    assert_true(takes(a, "{}"));
    ht_automaton_free(a);
    ht_text_discard(&schema);
}

/* A hundred members in any order, and five thousand texts that begin alike. */
UNIT_TEST(large_ones) {
    ht_text schema = {0}, text = {0}, twice = {0};
    ht_text_append_str(&schema, "{'type': 'object', 'additionalProperties': false, 'properties': {");
    ht_text_append_str(&text, "{");
    for (int i = 0; i < 100; i++) {
        ht_text_printf(&schema, "%s'member_%d': {'type': 'integer'}", i ? "," : "", i);
        ht_text_printf(&text, "%s'member_%d': %d", i ? ", " : "", (i * 37 + 5) % 100, i);
    }
    ht_text_append_str(&schema, "}}");
    ht_text_append(&twice, text.data, text.len);
    ht_text_append_str(&text, "}");
    ht_text_append_str(&twice, ", 'member_7': 1}");
    assert_false(schema.failed || text.failed || twice.failed);
    ht_automaton *a = compile(schema.data, NULL);
    assert_true(takes(a, text.data));
    assert_false(takes(a, twice.data));
    ht_automaton_free(a);
    ht_text_clear(&schema);
    ht_text_append_str(&schema, "{'enum': ['x'");
    for (int i = 0; i < 5000; i++) ht_text_printf(&schema, ",'value %d of many'", i * 7919 % 100003);
    ht_text_append_str(&schema, "]}");
    a = compile(schema.data, NULL);
    assert_true(takes(a, "'value 7919 of many'"));
    assert_false(takes(a, "'value 1 of many'"));
    ht_automaton_free(a);
    ht_text_discard(&schema);
    ht_text_discard(&text);
    ht_text_discard(&twice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_values), cmocka_unit_test(numbers),     cmocka_unit_test(strings),
        cmocka_unit_test(arrays),           cmocka_unit_test(objects),     cmocka_unit_test(logic),
        cmocka_unit_test(dead_ends),        cmocka_unit_test(white_space), cmocka_unit_test(closed_objects),
        cmocka_unit_test(short_numbers),    cmocka_unit_test(refusals),    cmocka_unit_test(many_conditions),
        cmocka_unit_test(large_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
