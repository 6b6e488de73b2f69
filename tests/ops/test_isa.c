/* Which instruction sets can be used: those the processor has, by name and by preference. Names on the command line are
 * all that must be found, the best one last; cross builds give them for each processor that they emulate. */
#include "base/error.h"
#include "cpu/isa.h"
#include "support/test.h"

#include <string.h>

static char **expected;
static int n_expected;

static void found_by_name(void **state) {
    (void)state;
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
        const char *name = ht_cpu_isa_name((ht_cpu_isa)i);
        ht_cpu_isa found = HT_CPU_ISA_COUNT;
        ht_error err = {0};
        ht_status status = ht_cpu_isa_find(name, &found, &err);
        if (ht_cpu_isa_available((ht_cpu_isa)i)) {
            assert_int_equal(status, HT_OK);
            assert_int_equal(found, i);
        } else {
            assert_int_equal(status, HT_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.message, name));
            assert_non_null(strstr(err.message, ht_cpu_isa_name(ht_cpu_isa_best())));
        }
    }
}

static void best_without_a_name(void **state) {
    (void)state;
    ht_cpu_isa found = HT_CPU_ISA_COUNT;
    assert_int_equal(ht_cpu_isa_find(NULL, &found, NULL), HT_OK);
    assert_int_equal(found, ht_cpu_isa_best());
    for (int i = (int)found + 1; i < HT_CPU_ISA_COUNT; i++) assert_false(ht_cpu_isa_available((ht_cpu_isa)i));
}

static void as_expected(void **state) {
    (void)state;
    int n = 0;
    if (!n_expected) skip();
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
        if (!ht_cpu_isa_available((ht_cpu_isa)i)) continue;
        const char *name = ht_cpu_isa_name((ht_cpu_isa)i);
        if (n == n_expected || strcmp(name, expected[n]) != 0) fail_msg("found %s, which was not expected", name);
        n++;
    }
    if (n < n_expected) fail_msg("did not find %s", expected[n]);
}

int main(int argc, char **argv) {
    n_expected = argc - 1;
    expected = argv + 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_by_name),
        cmocka_unit_test(best_without_a_name),
        cmocka_unit_test(as_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
