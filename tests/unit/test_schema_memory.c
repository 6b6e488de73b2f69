/* Memory that runs out while a JSON Schema is compiled and used: an error at every allocation, and nothing is left. Linked with --wrap for
 * the allocation functions (tests/CMakeLists.txt); leaks on the way out are the leak sanitizer's to find. */
#include "grammar/automaton.h"
#include "grammar/schema_rules.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool armed, all_that_follow;
static long until_failure;

static bool fails(void) {
    if (!armed) return false;
    if (until_failure < 0) return all_that_follow;
    return until_failure-- == 0;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }

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
    const uint32_t end = ht_automaton_feed(a, a->start, text, strlen(text));
    st = ht_automaton_status(a, err);
    const bool read = ht_automaton_may_end(a, end);
    ht_automaton_free(a);
    if (!st && !read) fail_msg("%s is refused by %s", text, schema);
    return st;
}

static void try_every_failure(const char *of, const char *valid) {
    schema = of;
    text = valid;
    for (int mode = 0; mode < 2; mode++)
        for (long k = 0;; k++) {
            ht_error err = {0};
            until_failure = k;
            all_that_follow = mode;
            armed = true;
            const ht_status st = compile_and_read(&err);
            armed = false;
            if (until_failure >= 0) {
                assert_int_equal(st, HT_OK);
                assert_true(k > 20);
                break;
            }
            if (st != HT_ERR_MEMORY || err.status != st || !err.message[0])
                fail_msg("allocation %ld of %s: status %d, \"%s\"", k, of, (int)st, err.message);
        }
}

static void every_allocation(void **state) {
    (void)state;
    try_every_failure("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", \"format\": \"time\"}, "
                      "\"b\": {\"$ref\": \"#\"}},"
                      "\"patternProperties\": {\"^x+$\": {\"multipleOf\": 0.5}}, \"required\": [\"a\"],"
                      "\"additionalProperties\": {\"enum\": [1, \"one\", \"ones\", null, [true]]}}",
                      "{\"a\": \"10:20:30Z\", \"b\": {\"a\": \"10:20:30Z\"}, \"xx\": 1.5, \"c\": [true]}");
    try_every_failure(
        "{\"$id\": \"http://a/b\", \"$defs\": {\"n\": {\"$id\": \"n\", \"$dynamicAnchor\": \"x\", \"minimum\": 2}},"
        "\"$dynamicAnchor\": \"x\", \"oneOf\": [{\"items\": {\"$dynamicRef\": \"n#x\"}, \"contains\": {\"const\": 3},"
        "\"maxContains\": 2, \"type\": \"array\"}, {\"minimum\": 1, \"maximum\": 9.75, \"type\": \"number\"}]}",
        "[[3], 3]");
    try_every_failure(
        "{\"allOf\": [{\"properties\": {\"a\": {}}}, {\"not\": {\"required\": [\"b\"]}}], \"anyOf\": [{\"properties\":"
        "{\"c\": true}, \"required\": [\"c\"]}, {}], \"unevaluatedProperties\": {\"items\": {\"enum\": [1, 2]},"
        "\"uniqueItems\": true}, \"propertyNames\": {\"maxLength\": 4}, \"minProperties\": 2}",
        "{\"a\": 0, \"c\": {}, \"d\": [2, 1]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
