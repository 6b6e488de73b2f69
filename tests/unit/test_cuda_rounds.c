/* Models on the CUDA device, opened and closed again and again: no memory stays behind, on the device or page-locked. And where the
 * device's memory does not suffice: what does not fit is refused with the numbers, and what runs out of it is an error of
 * that call alone. */
#include "device/device.h"
#include "models/model.h"
#include "support/cuda_driver.h"
#include "support/gpu.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <string.h>

static const cuda_driver *driver;

static int setup(void **state) {
    driver = cuda_driver_on_host();
    return scratch_start(state);
}

/* The device is the caller's to free, too. */
static ht_status open_on(const char *path, int64_t positions, ht_device **d, ht_model **out, ht_error *err) {
    ht_status status = ht_device_open("cuda", OPTIONS_AT(ht_device_options, with.n_threads = 2), d, err);
    if (status) return status;
    return ht_model_load(path, OPTIONS_AT(ht_model_options, with.device = *d, with.expected_positions = positions), out,
                         err);
}

static ht_status open_model(const char *path, int64_t positions, ht_model **out, ht_error *err) {
    ht_device *d = NULL;
    const ht_status status = open_on(path, positions, &d, out, err);
    ht_device_free(d);
    return status;
}

/* Bytes of the device, in use or kept for the next use. */
static size_t taken_on(ht_device *d) { return ht_memory_get(d).active_bytes + ht_memory_get(d).cache_bytes; }

/* The tokens of an answer, behind a prompt of n. */
static ht_status answer(ht_model *m, int n, int32_t out[4], ht_error *err) {
    static int32_t prompt[300];
    tiny_ids(prompt, n, 7);
    ht_session *s;
    ht_status status = ht_session_new(m, NULL, &s, err);
    if (status) return status;
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 4, with.ignore_eos = true);
    status = ht_generate(s, prompt, (size_t)n, &o, NULL, NULL, NULL, err);
    if (!status) memcpy(out, ht_session_tokens(s) + n, 4 * sizeof *out);
    ht_session_free(s);
    return status;
}

static ht_status one_round(const char *path, int32_t out[4], ht_error *err) {
    ht_model *m;
    ht_status status = open_model(path, 0, &m, err);
    if (status) return status;
    status = answer(m, 10, out, err);
    ht_model_free(m);
    return status;
}

/* By a device that stays open, as the driver tells it. */
static size_t left_on(ht_device *d) {
    size_t bytes = 0;
    assert_true(ht_memory_left(d->memory, &bytes));
    return bytes;
}

UNIT_TEST(rounds) {
    if (!cuda_driver_exists()) skip();
    enum { WARM = 3, SLACK = 4 << 20 /* less than a byte in a thousand rounds would be if they lost pages */ };
    ht_error err = {0};
    ht_device *watch;
    int32_t expected[4], got[4];
    const char *path = tiny_write(&(tiny_options){.type = HT_W_Q8_0});
    must(ht_device_open("cuda", NULL, &watch, &err), &err);
    for (int i = 0; i < WARM; i++) must(one_round(path, expected, &err), &err);
    const size_t left = left_on(watch), held = driver->bytes ? driver->bytes() : 0;
    for (int i = 0; i < test_cases(5, 1000); i++) {
        must(one_round(path, got, &err), &err);
        assert_memory_equal(got, expected, sizeof got);
    }
    if (driver->bytes) {
        assert_int_equal(driver->bytes(), held);
        assert_int_equal(left_on(watch), left);
    } else if (left_on(watch) + SLACK < left) {
        fail_msg("%zu bytes of the GPU were left, now %zu", left, left_on(watch));
    }
    ht_device_free(watch);
    if (driver->bytes) assert_int_equal(driver->bytes(), 0);
}

/* The tokens are those of the first time. */
static ht_status same_round(const void *path, ht_error *err) {
    static int32_t expected[4];
    static bool known;
    int32_t got[4];
    const ht_status status = one_round(path, got, err);
    if (!status && !known) memcpy(expected, got, sizeof got);
    if (!status) assert_memory_equal(got, expected, sizeof got);
    known |= !status;
    return status;
}

static bool first_and_some(long k) { return k < 40 || k % test_cases(79, 1) == 0; }

/* When a model is opened and answers. */
UNIT_TEST(every_call_may_fail) {
    if (!driver->fail_call) skip();
    cuda_driver_fail_each_call(same_round, tiny_write(&(tiny_options){.type = HT_W_F32}), false, first_and_some);
}

/* ---- not enough memory ---- */

static void expect_refusal(const char *path, int64_t positions, const char *const words[], int n) {
    ht_error err = {0};
    ht_model *m;
    const ht_status status = open_model(path, positions, &m, &err);
    if (!status) ht_model_free(m);
    driver->limit(0);
    if (status != HT_ERR_LIMIT) fail_msg("%s: status %d, %s", words[n - 2], (int)status, err.message);
    for (int i = 0; i < n; i++)
        if (!strstr(err.message, words[i])) fail_msg("there is no \"%s\" in: %s", words[i], err.message);
    assert_int_equal(driver->bytes(), 0);
}

UNIT_TEST(what_does_not_fit_is_refused) {
    if (!driver->limit) skip();
    ht_error err = {0};
    ht_model *m;
    const char *path = tiny_write(&(tiny_options){.type = HT_W_F32});
    driver->limit(100 << 10);
    expect_refusal(path, 0, (const char *[]){"for its weights", "are free on cuda"}, 2);
    driver->limit(800 << 10);
    expect_refusal(path, 4096, (const char *[]){"for its weights", "KV cache of 4096 positions", "are free on cuda"},
                   3);
    ht_device *d = NULL;
    must(open_on(path, 0, &d, &m, &err), &err);
    const size_t weights = taken_on(d);
    ht_model_free(m);
    ht_device_free(d);
    driver->limit(weights + (128 << 10)); /* for the weights and what the device itself takes, not for a step */
    expect_refusal(path, 0, (const char *[]){"for its weights", "to compute in", "are free on cuda"}, 3);
}

/* Rows of a step on a device with so much memory; 0: the model is refused. */
static int32_t step_rows_within(const char *path, size_t bytes, const int32_t expected[4]) {
    ht_error err = {0};
    ht_model *m;
    ht_device *d = NULL;
    int32_t got[4];
    driver->limit(bytes);
    const ht_status status = open_on(path, 0, &d, &m, &err);
    ht_device_free(d);
    driver->limit(0);
    if (status) {
        assert_int_equal(status, HT_ERR_LIMIT);
        return 0;
    }
    const int32_t rows = m->step_rows;
    must(answer(m, 10, got, &err), &err);
    assert_memory_equal(got, expected, sizeof got);
    ht_model_free(m);
    return rows;
}

/* Where memory is short, steps are cut to a quarter before the model is refused. */
UNIT_TEST(steps_fit_the_memory) {
    if (!driver->limit) skip();
    ht_error err = {0};
    int32_t expected[4], rows = 2048, seen = 0;
    const char *path = tiny_write(&(tiny_options){.type = HT_W_F32});
    must(one_round(path, expected, &err), &err);
    assert_int_equal(step_rows_within(path, 0, expected), rows);
    for (size_t bytes = (size_t)64 << 20; rows; bytes -= bytes / 8) {
        const int32_t next = step_rows_within(path, bytes, expected);
        if (next == rows) continue;
        assert_int_equal(next, rows > 512 ? rows / 2 : 0);
        rows = next;
        seen++;
    }
    assert_int_equal(seen, 3);
    const char *small = tiny_write(&(tiny_options){.type = HT_W_F32, .context = 300});
    must(one_round(small, expected, &err), &err);
    assert_int_equal(step_rows_within(small, 0, expected), 300);
    assert_int_equal(driver->bytes(), 0);
}

UNIT_TEST(running_out_of_memory) {
    if (!driver->limit) skip();
    ht_error err = {0};
    ht_model *m;
    int32_t expected[4], got[4];
    const char *path = tiny_write(&(tiny_options){.type = HT_W_F32});
    ht_device *d = NULL;
    must(open_on(path, 0, &d, &m, &err), &err);
    must(answer(m, 10, expected, &err), &err);
    int failures = 0, successes = 0;
    for (size_t more = 0; more < (size_t)64 << 20 && !successes; more += more / 2 + (32 << 10)) {
        driver->limit(taken_on(d) + more);
        err = (ht_error){0};
        const ht_status status = answer(m, 300, got, &err);
        driver->limit(0);
        failures += status != HT_OK;
        successes += status == HT_OK;
        if (status) {
            assert_int_equal(status, HT_ERR_MEMORY);
            if (!strstr(err.message, "no memory left")) fail_msg("%s", err.message);
        }
        must(answer(m, 10, got, &err), &err); /* the model is as it was */
        assert_memory_equal(got, expected, sizeof got);
        ht_memory_clear_cache(d);
    }
    assert_true(failures > 3);
    assert_int_equal(successes, 1);
    ht_model_free(m);
    ht_device_free(d);
    assert_int_equal(driver->bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(steps_fit_the_memory),
        cmocka_unit_test(running_out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, scratch_finish);
}
