#include "support/arrays.h"

#include "support/options.h"
#include "support/test.h"

#include <string.h>

ht_stream *test_stream;

int test_open_stream(void **state) {
    (void)state;
    ht_device *device;
    ht_error err = {0};
    if (ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &device, &err)) return -1;
    ht_status status = ht_stream_new(device, &test_stream, &err);
    ht_device_free(device); /* the stream holds it */
    return status ? -1 : 0;
}

int test_close_stream(void **state) {
    (void)state;
    ht_stream_free(test_stream);
    return 0;
}

ht_array *test_counting(ht_scope *s, const int64_t *shape, int n_dims) {
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= shape[i];
    return ht_reshape(s, ht_arange(s, 0, (double)n, 1, HT_F32), shape, n_dims);
}

void test_expect_error(ht_scope *s, const ht_array *result, const char *text) {
    assert_null(result);
    assert_non_null(ht_scope_error(s));
    if (!strstr(ht_scope_error(s)->message, text)) fail_msg("%s", ht_scope_error(s)->message);
    ht_scope_free(s);
}
