/* Memory that runs out while a JSON Schema is compiled and used: an error at every allocation, and nothing is left. As
 * test_allocation.c. */
#include "grammar/automaton.h"
#include "grammar/schema_rules.h"
#include "support/allocations.h"
#include "support/test.h"

#include <string.h>

static const char *schema, *text;

/* Compiles the schema, and reads the text, which is valid. */
static ht_status compile_and_read(ht_error *err) {
    ht_rules *rules;
    ht_automaton *a;
    ht_status st = ht_schema_compile(schema, strlen(schema), NULL, &rules, err);
    if (st) {
        assert_null(rules);
        return st;
    }
    st = ht_automaton_new(rules, &a, err);
    if (st) {
        assert_null(a);
        return st;
    }
    const uint32_t end = ht_automaton_feed(a, a->start[0], text, strlen(text));
    st = ht_automaton_status(a, err);
    const bool read = ht_automaton_may_end(a, end);
    ht_automaton_free(a);
    if (!st && !read) fail_msg("%s is refused by %s", text, schema);
    return st;
}

static void fail_each(const char *of, const char *valid) {
    schema = of;
    text = valid;
    assert_true(try_every_failure(compile_and_read, NOTHING_ELSE) > 20);
}

static void every_allocation(void **state) {
    (void)state;
    fail_each("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", \"format\": \"time\"}, "
              "\"b\": {\"$ref\": \"#\"}},"
              "\"patternProperties\": {\"^x+$\": {\"multipleOf\": 0.5}}, \"required\": [\"a\"],"
              "\"additionalProperties\": {\"enum\": [1, \"one\", \"ones\", null, [true]]}}",
              "{\"a\": \"10:20:30Z\", \"b\": {\"a\": \"10:20:30Z\"}, \"xx\": 1.5, \"c\": [true]}");
    fail_each(
        "{\"$id\": \"http://a/b\", \"$defs\": {\"n\": {\"$id\": \"n\", \"$dynamicAnchor\": \"x\", \"minimum\": 2}},"
        "\"$dynamicAnchor\": \"x\", \"oneOf\": [{\"items\": {\"$dynamicRef\": \"n#x\"}, \"contains\": {\"const\": 3},"
        "\"maxContains\": 2, \"type\": \"array\"}, {\"minimum\": 1, \"maximum\": 9.75, \"type\": \"number\"}]}",
        "[[3], 3]");
    fail_each(
        "{\"allOf\": [{\"properties\": {\"a\": {}}}, {\"not\": {\"required\": [\"b\"]}}], \"anyOf\": [{\"properties\":"
        "{\"c\": true}, \"required\": [\"c\"]}, {}], \"unevaluatedProperties\": {\"items\": {\"enum\": [1, 2]},"
        "\"uniqueItems\": true}, \"propertyNames\": {\"maxLength\": 4}, \"minProperties\": 2}",
        "{\"a\": 0, \"c\": {}, \"d\": [2, 1]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
