/* What a GPU says of itself, and what is measured on it. Skipped without a driver; tests/cuda/driver.cc is one that runs on the host. */
#include "support/cuda_driver.h"
#include "support/gpu.h"
#include "support/options.h"
#include "support/test.h"

#include <hearth/measure.h>

static ht_device *open_gpu(void) {
    ht_device *d;
    ht_error err = {0};
    must(ht_device_cuda(0, OPTIONS_AT(ht_device_options, with.n_threads = 1), &d, &err), &err);
    return d;
}

static void need_gpu(void) {
    int n;
    if (ht_device_count("cuda", &n, NULL) || n == 0) skip();
}

UNIT_TEST(devices_are_counted) {
    int n = -1;
    ht_error err = {0};
    assert_int_equal(ht_device_count("cpu", &n, &err), HT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(ht_device_count("abacus", &n, &err), HT_ERR_UNSUPPORTED);
    assert_int_equal(n, 0);
    ht_device *d;
    assert_int_equal(ht_device_cuda(-1, NULL, &d, &err), HT_ERR_UNSUPPORTED);
    assert_null(d);
    if (ht_device_count("cuda", &n, &err)) {
        assert_true(n == 0 && err.message[0]);
        assert_int_equal(ht_device_cuda(0, NULL, &d, &err), HT_ERR_UNSUPPORTED);
        return;
    }
    assert_true(n >= 0);
    assert_int_equal(ht_device_cuda(n, NULL, &d, &err), HT_ERR_UNSUPPORTED);
}

UNIT_TEST(a_gpu_describes_itself) {
    need_gpu();
    ht_gpu gpu;
    ht_device *d = open_gpu(), *cpu;
    ht_error err = {0};
    assert_true(ht_device_gpu(d, &gpu));
    assert_string_equal(gpu.name, ht_device_instruction_set(d));
    assert_true(gpu.major >= 8 && gpu.multiprocessors > 0 && gpu.cuda_major >= 11);
    assert_true(gpu.memory_free_bytes > 0 && gpu.memory_free_bytes <= gpu.memory_bytes);
    ht_device_free(d);
    assert_int_equal(ht_device_open("cpu", NULL, &cpu, &err), HT_OK);
    assert_false(ht_device_gpu(cpu, &gpu));
    assert_true(!*gpu.name && !gpu.memory_bytes);
    ht_device_free(cpu);
}

UNIT_TEST(a_gpu_measures_itself) {
    need_gpu();
    ht_device *d = open_gpu();
    ht_meter *m;
    ht_error err = {0};
    assert_int_equal(ht_meter_new(d, (1 << 20) + 24, &m, &err), HT_OK); /* no multiple of 16 bytes */
    assert_true(ht_meter_read(m, 0.002) > 1e6);
    assert_true(ht_meter_compute(m, HT_ARITHMETIC_F32, 0.002) > 1e6);
    assert_true(ht_meter_compute(m, HT_ARITHMETIC_F16, 0.002) > 1e6);
    assert_true(ht_meter_compute(m, HT_ARITHMETIC_INT8, 0.002) == 0);
    assert_true(ht_meter_compute(m, HT_ARITHMETIC_INT16, 0.002) == 0);
    if (!cuda_driver_on_host()->fail_call) { /* a real one: no faster than any that there is, and tensor cores are */
        const double f32 = ht_meter_compute(m, HT_ARITHMETIC_F32, 0.05),
                     f16 = ht_meter_compute(m, HT_ARITHMETIC_F16, 0.05);
        if (!(f32 > 1e12 && f16 > 3 * f32 && f16 < 1e16)) fail_msg("f32 %g, f16 %g", f32, f16);
    }
    ht_meter_free(m);
    ht_device_free(d);
}

UNIT_TEST(a_failure_is_no_rate) {
    const cuda_driver *driver = cuda_driver_on_host();
    if (!driver->fail_call) skip();
    for (long k = 1; k < 6; k++) {
        ht_device *d = open_gpu();
        ht_meter *m;
        ht_error err = {0};
        assert_int_equal(ht_meter_new(d, 1 << 16, &m, &err), HT_OK);
        driver->fail_call(k, CUDA_RESULT, 1);
        assert_true(ht_meter_read(m, 0.001) == 0);
        assert_true(ht_meter_compute(m, HT_ARITHMETIC_F16, 0.001) == 0);
        driver->fail_call(0, 0, 0);
        ht_meter_free(m);
        ht_device_free(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_counted),
        cmocka_unit_test(a_gpu_describes_itself),
        cmocka_unit_test(a_gpu_measures_itself),
        cmocka_unit_test(a_failure_is_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
