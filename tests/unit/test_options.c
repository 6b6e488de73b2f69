/* Option structs across versions: a caller compiled with fewer fields than the library has, and one with more. */
#include "base/options.h"
#include "support/test.h"

#include <hearth/generate.h>

#include <stdint.h>
#include <string.h>

typedef struct old_options {
    size_t size;
    int32_t first;
} old_options;

typedef struct options {
    size_t size;
    int32_t first, spare;
    int64_t second;
} options;

typedef struct new_options {
    size_t size;
    int32_t first, spare;
    int64_t second;
    double third;
} new_options;

static const options defaults = {.size = sizeof defaults, .first = 7, .second = 9};

static ht_status read_options(const void *given, options *o, ht_error *err) {
    *err = (ht_error){0};
    return ht_options_read(o, given, &defaults, sizeof defaults, "ht_some_options", err);
}

UNIT_TEST(no_options_are_the_defaults) {
    options o, made;
    ht_error err;
    assert_int_equal(read_options(NULL, &o, &err), HT_OK);
    assert_memory_equal(&o, &defaults, sizeof o);
    memset(&made, 0x55, sizeof made);
    ht_options_init(&made, sizeof made, &defaults, sizeof defaults);
    assert_memory_equal(&made, &defaults, sizeof made);
    made.first = 0;
    assert_int_equal(read_options(&made, &o, &err), HT_OK);
    assert_true(o.first == 0 && o.second == 9);
}

UNIT_TEST(a_caller_with_fewer_fields_gets_the_defaults_of_the_others) {
    struct {
        old_options o;
        unsigned char behind[32];
    } old;
    memset(&old, 0x55, sizeof old);
    ht_options_init(&old.o, sizeof old.o, &defaults, sizeof defaults);
    for (size_t i = 0; i < sizeof old.behind; i++) assert_int_equal(old.behind[i], 0x55);
    assert_true(old.o.size == sizeof old.o && old.o.first == 7);
    old.o.first = 3;
    options o;
    ht_error err;
    assert_int_equal(read_options(&old, &o, &err), HT_OK);
    assert_true(o.size == sizeof o && o.first == 3 && o.second == 9);
}

UNIT_TEST(a_caller_with_more_fields_is_refused_once_it_sets_them) {
    new_options new;
    memset(&new, 0x55, sizeof new);
    ht_options_init(&new, sizeof new, &defaults, sizeof defaults);
    assert_true(new.size == sizeof new &&new.first == 7 && new.second == 9 && new.third == 0);
    new.second = 1;
    options o;
    ht_error err;
    assert_int_equal(read_options(&new, &o, &err), HT_OK);
    assert_true(o.size == sizeof o && o.first == 7 && o.second == 1);
    new.third = 1;
    assert_int_equal(read_options(&new, &o, &err), HT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "the ht_some_options have a field that this version of Hearth does not know");
}

UNIT_TEST(a_struct_that_no_init_made_is_refused) {
    options o, given = {.first = 1};
    ht_error err;
    assert_int_equal(read_options(&given, &o, &err), HT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "not made by ht_some_options_init"));
    memset(&given, 0x55, sizeof given);
    assert_int_equal(read_options(&given, &o, &err), HT_ERR_ARGUMENT);
}

/* 0 is a value of most of these, not the default. */
UNIT_TEST(public_defaults) {
    ht_sampler_options sampler;
    ht_generate_options generate;
    ht_session_options session;
    ht_model_options model;
    ht_sampler_options_init(&sampler, sizeof sampler);
    ht_generate_options_init(&generate, sizeof generate);
    ht_session_options_init(&session, sizeof session);
    ht_model_options_init(&model, sizeof model);
    assert_true(sampler.repeat_window == HT_SAMPLER_UNSET && sampler.temperature == (float)HT_SAMPLER_UNSET);
    assert_true(sampler.seed == 11);
    assert_true(generate.max_tokens == 256 && !generate.sampler && !generate.ignore_eos);
    assert_true(session.chunk == 0 && model.kv_dtype == HT_F16 && model.precision == HT_PRECISION_HIGH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_options_are_the_defaults),
        cmocka_unit_test(a_caller_with_fewer_fields_gets_the_defaults_of_the_others),
        cmocka_unit_test(a_caller_with_more_fields_is_refused_once_it_sets_them),
        cmocka_unit_test(a_struct_that_no_init_made_is_refused),
        cmocka_unit_test(public_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
