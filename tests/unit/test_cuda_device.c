/* The CUDA device and what may fail of it, with a driver that runs on the host (tests/cuda/driver.cc): every call of the driver is made
 * to fail, once and for good, and nothing is lost or leaked. Skipped with any other driver. */
#include "support/cuda_driver.h"
#include "support/gpu.h"
#include "support/options.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <stdlib.h>
#include <string.h>

enum { MANY = 4000 };

static const cuda_driver *driver;

static int setup(void **state) {
    (void)state;
    driver = cuda_driver_on_host();
    return 0;
}

static void need_driver(void) {
    if (!driver->fail_call) skip();
}

/* Copies, an elementwise program, a value that is read, and what is given back. */
static ht_status compute(ht_device *d, float out[4], ht_error *err) {
    ht_stream *stream;
    ht_status status = ht_stream_new(d, &stream, err);
    if (status) return status;
    ht_scope *s = ht_scope_new(stream);
    ht_array *x = ht_array_from(s, (float[]){1, 2, 3, 4}, HT_F32, (int64_t[]){4}, 1);
    ht_array *y = ht_add(s, ht_multiply(s, x, ht_arange(s, 0, 4, 1, HT_F32)), ht_exp(s, ht_negative(s, x)));
    status = ht_array_read(s, y, out, 4 * sizeof *out, err);
    ht_scope_free(s);
    ht_stream_free(stream);
    return status;
}

/* Fails unless the values are those of the first time. */
static ht_status open_and_compute(const void *how, ht_error *err) {
    static float expected[4];
    (void)how;
    ht_device *d;
    float got[4] = {0};
    ht_status status = ht_device_open("cuda", OPTIONS_AT(ht_device_options, with.n_threads = 1), &d, err);
    if (status) return status;
    status = compute(d, got, err);
    if (!status && expected[0] == 0) memcpy(expected, got, sizeof got);
    if (!status) assert_memory_equal(got, expected, sizeof got);
    ht_device_free(d);
    return status;
}

static bool all(long k) { return k > 0; }

UNIT_TEST(every_call_may_fail) {
    for (int stays = 0; stays < 2; stays++) cuda_driver_fail_each_call(open_and_compute, NULL, stays, all);
}

/* A kernel that cannot be launched fails its own evaluation; a device whose stream is broken stays so until it is closed. */
UNIT_TEST(one_call_or_all) {
    need_driver();
    ht_error err = {0};
    ht_device *d;
    float got[4];
    must(ht_device_open("cuda", NULL, &d, &err), &err);
    must(compute(d, got, &err), &err);
    driver->fail_call(0, 0, 0);
    must(compute(d, got, &err), &err);
    const long n = driver->calls();
    int lost = 0;
    for (long k = 1; k <= n && !lost; k++) {
        driver->fail_call(k, CUDA_RESULT, 0);
        (void)compute(d, got, &err);
        driver->fail_call(0, 0, 0);
        lost += compute(d, got, &err) != HT_OK;
    }
    assert_true(lost == 1);
    assert_int_equal(compute(d, got, &err), HT_ERR_INTERNAL);
    if (!strstr(err.message, "as it was told to")) fail_msg("%s", err.message);
    ht_device_free(d);
    assert_int_equal(driver->bytes(), 0);
}

UNIT_TEST(many_rounds_leave_nothing) {
    need_driver();
    ht_error err = {0};
    for (int i = 0; i < test_cases(50, MANY); i++) must(open_and_compute(NULL, &err), &err);
    assert_int_equal(driver->bytes(), 0);
}

UNIT_TEST(names) {
    ht_error err = {0};
    ht_device *d;
    static const char *const wrong[] = {"cuda:", "cuda:x", "cuda:1x", "cuda:99999999999", "abacus", "abacus:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ht_device_open(wrong[i], NULL, &d, &err), HT_ERR_UNSUPPORTED);
        assert_null(d);
        if (!strstr(err.message, wrong[i]) || !strstr(err.message, "cpu, cuda")) fail_msg("%s", err.message);
    }
    assert_int_equal(ht_device_open("cpu:1", NULL, &d, &err), HT_ERR_UNSUPPORTED);
    need_driver();
    must(ht_device_open("cuda:0", NULL, &d, &err), &err);
    ht_device_free(d);
    assert_int_equal(ht_device_open("cuda:1", NULL, &d, &err), HT_ERR_UNSUPPORTED);
    if (!strstr(err.message, "there is no GPU 1")) fail_msg("%s", err.message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(one_call_or_all),
        cmocka_unit_test(many_rounds_leave_nothing),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
