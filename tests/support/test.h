/* cmocka with the headers it needs before it, in the order it needs them. */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

/* clang-format off */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <hearth/status.h>

#include <stdlib.h>
#include <string.h>
/* clang-format on */

/* Head of a cmocka test function. */
#define UNIT_TEST(name) static void name(void **state __attribute__((unused)))

static inline void assert_error(ht_status found, const ht_error *err, ht_status expected, const char *text) {
    if (found != expected || !*err->message || !strstr(err->message, text))
        fail_msg("status %d, \"%s\", expected %d, \"%s\"", found, err->message, expected, text);
}

/* Calls whose last argument is an ht_error, given without it: they work, or fail with a status and a message that has a text. */
#define assert_works(function, ...)                                                                                    \
    do {                                                                                                               \
        ht_error failure = {0};                                                                                        \
        if (function(__VA_ARGS__, &failure)) fail_msg("%s", failure.message);                                          \
    } while (0)
#define assert_fails(expected, text, function, ...)                                                                    \
    do {                                                                                                               \
        ht_error failure = {0};                                                                                        \
        const ht_status failed_with = function(__VA_ARGS__, &failure);                                                 \
        assert_error(failed_with, &failure, expected, text);                                                           \
    } while (0)

/* In builds where everything takes many times as long, tests of many combinations run fewer. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
/* Of kernels that differ in what they compute, not in how they share it, some are enough. */
#define TEST_WATCHES_THREADS 1
#endif
#endif
#if !defined(TEST_WATCHES_THREADS)
#define TEST_WATCHES_THREADS 0
#endif
#if !defined(TEST_EMULATED)
#define TEST_EMULATED 0
#endif
#if TEST_EMULATED || defined(TEST_SANITIZED)
enum { TEST_SLOW = 1 };
#else
enum { TEST_SLOW = 0 };
#endif

/* Whether ht_device_open("cpu") opens the late device (support/late_device.h), whose memory is not the host's. */
static inline int test_is_late(void) { return getenv("HEARTH_TEST_DEVICE") != NULL; }

/* scripts/soak sets HEARTH_SOAK to "SHARE FIRST": one of SHARE cases is run, beginning with case FIRST % SHARE. 0 elsewhere. */
static inline int test_soak_share(int64_t *first) {
    const char *soak = getenv("HEARTH_SOAK");
    char *end = NULL;
    const long share = soak ? strtol(soak, &end, 10) : 0;
    *first = end ? strtol(end, NULL, 10) : 0;
    return share > 0 ? (int)share : 0;
}

/* How many cases a test runs: of `soak` cases the share that scripts/soak asks for; at least `usual`, about a hundredth. */
static inline int test_cases(int usual, int soak) {
    int64_t first;
    const int share = test_soak_share(&first);
    if (!share) return usual;
    const int some = soak > usual ? soak / share : soak * share; /* a step is less in a soak */
    return (some > usual) == (soak > usual) ? some : usual;
}

/* Whether a test runs case `i` of similar ones: every `n`th, and those that scripts/soak asks for. Of nested loops, `i` is
 * a sum of the indices, so that every value of each of them is run. An emulated processor runs half of that. */
static inline bool test_takes(int64_t i, int n) {
    int64_t first;
    const int share = test_soak_share(&first);
    return i % (TEST_EMULATED ? 2 * n : n) == 0 || (share && (i + first) % share == 0);
}

/* The same for cases that differ in values more than in the memory they touch: with sanitizers one of `n`, another one each
 * day; elsewhere all. scripts/test and scripts/soak set HEARTH_TEST_DAY. */
static inline bool test_takes_today(int64_t i, int n) {
    const char *day = getenv("HEARTH_TEST_DAY");
    return !TEST_SLOW || test_takes(i + (day ? strtol(day, NULL, 10) : 0), n);
}

#endif
