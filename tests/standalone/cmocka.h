/* As much of cmocka's interface as the kernel tests use, for builds where cmocka is not to be had: a cross build that
 * runs under an emulator. */
#ifndef TESTS_STANDALONE_CMOCKA_H
#define TESTS_STANDALONE_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
} CMUnitTest;

#define cmocka_unit_test(function)                                                                                     \
    { #function, function }
#define cmocka_run_group_tests(tests, setup, teardown)                                                                 \
    standalone_run(tests, sizeof(tests) / sizeof *(tests), setup, teardown)

/* Ends the running test as failed. */
_Noreturn void standalone_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the running test as skipped, which is no failure. */
_Noreturn void standalone_skip(void);
/* Runs every test and says how each ended; returns how many failed. */
int standalone_run(const CMUnitTest *tests, size_t n, int (*setup)(void **), int (*teardown)(void **));

#define skip()        standalone_skip()
#define fail_msg(...) standalone_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(x)                                                                                                 \
    do {                                                                                                               \
        if (!(x)) fail_msg("%s is not true", #x);                                                                      \
    } while (0)
#define assert_false(x)              assert_true(!(x))
#define assert_null(p)               assert_true((p) == NULL)
#define assert_non_null(p)           assert_true((p) != NULL)
#define assert_int_equal(a, b)       assert_true((long long)(a) == (long long)(b))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)

#endif
