/* Copies between the host and the CUDA device, through page-locked memory: what is written is read, whatever its size and however many
 * threads write, and a failing call of the driver loses no memory. */
#include "device/device.h"
#include "support/cuda_driver.h"
#include "support/gpu.h"
#include "support/options.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const cuda_driver *driver;

static int setup(void **state) {
    (void)state;
    driver = cuda_driver_on_host();
    return 0;
}

static ht_device *open_device(void) {
    ht_error err = {0};
    ht_device *d;
    if (!cuda_driver_exists()) skip();
    must(ht_device_open("cuda", OPTIONS_AT(ht_device_options, with.n_threads = 1), &d, &err), &err);
    return d;
}

static void fill_randomly(unsigned char *p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i += sizeof seed) {
        const uint64_t some = test_random(&seed);
        memcpy(p + i, &some, n - i < sizeof some ? n - i : sizeof some);
    }
}

/* ---- sizes ---- */

#define MB ((size_t)1 << 20)
static const size_t sizes[] = {
    1,       63,     64,         65,         4095,   (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (1 << 20) - 1,
    1 << 20, 2 * MB, 2 * MB + 1, 3 * MB + 7, 4 * MB, 5 * MB + 3};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static ht_status write_and_read(ht_device *d, size_t n, const unsigned char *from, unsigned char *to, ht_error *err) {
    void *there;
    ht_status status = ht_memory_alloc(d->memory, n, "a copy", &there, err);
    if (status) return status;
    status = ht_memory_write(d->memory, there, from, n, err);
    if (!status) status = ht_memory_read(d->memory, to, there, n, err);
    ht_memory_free(d->memory, there, n);
    return status;
}

UNIT_TEST(every_size) {
    ht_device *d = open_device();
    ht_error err = {0};
    unsigned char *from = malloc(6 * MB), *to = malloc(6 * MB + 1);
    for (int i = 0; i < N_SIZES; i++) {
        fill_randomly(from, sizes[i], (uint64_t)i);
        memset(to, 0x55, sizes[i] + 1);
        must(write_and_read(d, sizes[i], from, to, &err), &err);
        assert_memory_equal(from, to, sizes[i]);
        assert_int_equal(to[sizes[i]], 0x55);
    }
    free(from);
    free(to);
    ht_device_free(d);
}

/* The ring is gone round several times, and what the host's memory held when a write returned is what arrives. */
UNIT_TEST(many_small_writes) {
    enum { N = 3000, BYTES = 700 };
    ht_device *d = open_device();
    ht_error err = {0};
    void *there;
    unsigned char from[BYTES], *to = malloc((size_t)N * BYTES);
    must(ht_memory_alloc(d->memory, (size_t)N * BYTES, "copies", &there, &err), &err);
    for (int i = 0; i < N; i++) {
        fill_randomly(from, BYTES, (uint64_t)i);
        must(ht_memory_write(d->memory, (char *)there + (size_t)i * BYTES, from, BYTES, &err), &err);
        memset(from, 0, BYTES);
    }
    must(ht_memory_read(d->memory, to, there, (size_t)N * BYTES, &err), &err);
    for (int i = 0; i < N; i++) {
        fill_randomly(from, BYTES, (uint64_t)i);
        assert_memory_equal(to + (size_t)i * BYTES, from, BYTES);
    }
    ht_memory_free(d->memory, there, (size_t)N * BYTES);
    free(to);
    ht_device_free(d);
}

/* What is fetched is there when the queue has been waited for. */
UNIT_TEST(fetching) {
    enum { BYTES = 513 << 10 };
    ht_device *d = open_device();
    ht_error err = {0};
    ht_mark failed;
    void *there, *here;
    unsigned char *from = malloc(BYTES);
    fill_randomly(from, BYTES, 7);
    must(ht_memory_alloc(d->memory, BYTES, "a row", &there, &err), &err);
    must(ht_memory_host_alloc(d->memory, BYTES, "a row", &here, &err), &err);
    for (int i = 0; i < 20; i++) {
        from[i] ^= 0xff;
        memset(here, 0, BYTES);
        must(ht_memory_write(d->memory, there, from, BYTES, &err), &err);
        const unsigned turn = d->begin(d);
        must(ht_memory_fetch(d->memory, here, there, BYTES, &err), &err);
        must(ht_device_wait(d, &failed, &err), &err);
        d->end(d, turn);
        assert_memory_equal(here, from, BYTES);
    }
    ht_memory_free(d->memory, there, BYTES);
    ht_memory_host_free(d->memory, here, BYTES);
    free(from);
    ht_device_free(d);
}

/* ---- threads ---- */

typedef struct writer {
    ht_device *d;
    uint64_t seed;
    bool wrong;
} writer;

static void *write_much(void *arg) {
    writer *w = arg;
    ht_error err = {0};
    unsigned char *from = malloc(6 * MB), *to = malloc(6 * MB);
    for (int i = 0; i < test_cases(5, 400) && !w->wrong; i++) {
        const size_t n = sizes[(w->seed + (uint64_t)i * 7) % N_SIZES];
        fill_randomly(from, n, w->seed + (uint64_t)i);
        w->wrong = write_and_read(w->d, n, from, to, &err) || memcmp(from, to, n) != 0;
    }
    free(from);
    free(to);
    return NULL;
}

/* More than there are pieces. */
UNIT_TEST(threads) {
    enum { N = 24 };
    ht_device *d = open_device();
    pthread_t thread[N];
    writer w[N];
    for (int i = 0; i < N; i++) {
        w[i] = (writer){.d = d, .seed = (uint64_t)i * 1001};
        assert_int_equal(pthread_create(&thread[i], NULL, write_much, &w[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(thread[i], NULL);
        assert_false(w[i].wrong);
    }
    ht_device_free(d);
    if (driver->bytes) assert_int_equal(driver->bytes(), 0);
}

/* ---- failures ---- */

static ht_status open_and_copy(const void *how, ht_error *err) {
    (void)how;
    static const size_t some[] = {100, 64 << 10, 64 << 10, 200 << 10, 128 << 10, 5 * MB};
    ht_device *d;
    ht_status status = ht_device_open("cuda", OPTIONS_AT(ht_device_options, with.n_threads = 1), &d, err);
    if (status) return status;
    unsigned char *from = malloc(5 * MB), *to = calloc(1, 5 * MB);
    void *row = NULL;
    fill_randomly(from, 5 * MB, 3);
    for (size_t i = 0; i < 4 * sizeof some / sizeof *some && !status; i++) {
        const size_t n = some[i % (sizeof some / sizeof *some)];
        status = write_and_read(d, n, from, to, err);
        if (!status) assert_memory_equal(from, to, n);
    }
    if (!status) status = ht_memory_host_alloc(d->memory, 1000, "a row", &row, err);
    ht_memory_host_free(d->memory, row, 1000);
    free(from);
    free(to);
    ht_device_free(d);
    return status;
}

static bool every_third(long k) { return test_takes(k, 3); }
static bool the_next(long k) { return test_takes(k + 1, 3); }

UNIT_TEST(every_call_may_fail) {
    cuda_driver_fail_each_call(open_and_copy, NULL, false, every_third);
    cuda_driver_fail_each_call(open_and_copy, NULL, true, the_next);
}

/* Without page-locked memory, large copies go as they can. */
UNIT_TEST(no_page_locked_memory) {
    if (!driver->fail_call) skip();
    ht_device *d = open_device();
    ht_error err = {0};
    unsigned char *from = malloc(3 * MB), *to = malloc(3 * MB);
    void *there;
    fill_randomly(from, 3 * MB, 5);
    must(ht_memory_alloc(d->memory, 3 * MB, "a copy", &there, &err), &err);
    driver->fail_call(1, CUDA_OUT_OF_MEMORY, 0); /* the first piece */
    must(ht_memory_write(d->memory, there, from, 3 * MB, &err), &err);
    driver->fail_call(1, CUDA_OUT_OF_MEMORY, 0);
    must(ht_memory_read(d->memory, to, there, 3 * MB, &err), &err);
    driver->fail_call(0, 0, 0);
    assert_memory_equal(from, to, 3 * MB);
    ht_memory_free(d->memory, there, 3 * MB);
    free(from);
    free(to);
    ht_device_free(d);
    assert_int_equal(driver->bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size), cmocka_unit_test(many_small_writes),   cmocka_unit_test(fetching),
        cmocka_unit_test(threads),    cmocka_unit_test(every_call_may_fail), cmocka_unit_test(no_page_locked_memory),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
