/* Calls that must fail. */
#ifndef TESTS_SUPPORT_EXPECT_H
#define TESTS_SUPPORT_EXPECT_H

#include "support/test.h"

#include <hearth/status.h>

#include <string.h>

/* Its status, and words of its message. */
static inline void expect_failure(ht_status found, ht_status expected, const ht_error *err, const char *words) {
    if (found != expected)
        fail_msg("status %d with \"%s\", expected %d with \"%s\"", found, err->message, expected, words);
    if (!strstr(err->message, words)) fail_msg("\"%s\" does not say \"%s\"", err->message, words);
}

#endif
