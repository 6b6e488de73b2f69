/* What tests of arrays share: a stream on the CPU, and small arrays. */
#ifndef TESTS_SUPPORT_ARRAYS_H
#define TESTS_SUPPORT_ARRAYS_H

#include "support/test.h"

#include <hearth/hearth.h>

/* On a device of two threads, between test_open_stream and test_close_stream: set-up and tear-down of a cmocka group. */
extern ht_stream *test_stream;
static inline ht_device *test_device(void) { return ht_stream_device(test_stream); }
int test_open_stream(void **state);
int test_close_stream(void **state);

/* Head of a test, as UNIT_TEST, that has a scope `s` of the stream. */
#define SCOPE_TEST(name)                                                                                               \
    static void name##_in(ht_scope *s);                                                                                \
    UNIT_TEST(name) {                                                                                                  \
        ht_scope *s = ht_scope_new(test_stream);                                                                       \
        name##_in(s);                                                                                                  \
        ht_scope_free(s);                                                                                              \
    }                                                                                                                  \
    static void name##_in(ht_scope *s)

/* 0, 1, 2, ... in f32. */
ht_array *test_counting(ht_scope *s, const int64_t *shape, int n_dims);

/* The operation has failed with a message that contains `text`; frees the scope. */
void test_expect_error(ht_scope *s, const ht_array *result, const char *text);

#endif
