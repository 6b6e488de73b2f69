/* The thread pool: every block exactly once, whatever the sizes; leases in turn; workers that park wake again. */
#include "base/pool.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_N = 3000 };

typedef struct job {
    atomic_int count[MAX_N]; /* how often each block ran */
    atomic_int wrong;        /* calls with a bad range or worker */
    int64_t n, grain;
    int n_threads;
} job;

static void count_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    job *j = arg;
    if (begin < 0 || begin >= end || end > j->n || worker < 0 || worker >= j->n_threads) atomic_fetch_add(&j->wrong, 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&j->count[i], 1);
}

static void run_once(ht_pool *pool, int64_t n, int64_t grain) {
    static job j;
    memset(&j, 0, sizeof j);
    j.n = n;
    j.grain = grain;
    j.n_threads = ht_pool_threads(pool);
    ht_pool_run(pool, n, grain, count_blocks, &j);
    assert_int_equal(atomic_load(&j.wrong), 0);
    for (int64_t i = 0; i < MAX_N; i++)
        if (atomic_load(&j.count[i]) != (i < n)) fail_msg("n %ld grain %ld: block %ld", (long)n, (long)grain, (long)i);
}

static ht_pool *make(int n_threads) {
    ht_pool *pool;
    ht_error err = {0};
    if (ht_pool_new(n_threads, &pool, &err)) fail_msg("%s", err.message);
    return pool;
}

static void every_block_once(void **state) {
    (void)state;
    static const int64_t sizes[] = {-1, 0, 1, 2, 3, 7, 64, 1000, MAX_N};
    static const int64_t grains[] = {-3, 0, 1, 2, 5, 63, 1000, MAX_N, INT64_MAX};
    for (int threads = 1; threads <= 5; threads++) {
        ht_pool *pool = make(threads);
        assert_int_equal(ht_pool_threads(pool), threads);
        ht_pool_lease(pool);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) run_once(pool, sizes[s], grains[g]);
        ht_pool_release(pool);
        ht_pool_free(pool);
    }
}

static void add_one(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    int *values = arg; /* not atomic: the pool orders one job after the other */
    for (int64_t i = begin; i < end; i++) values[i]++;
}

static void many_small_jobs(void **state) {
    (void)state;
    enum { JOBS = 5000, N = 17 };
    int values[N] = {0};
    ht_pool *pool = make(3);
    ht_pool_lease(pool);
    for (int k = 0; k < JOBS; k++) ht_pool_run(pool, N, 1, add_one, values);
    ht_pool_release(pool);
    for (int k = 0; k < JOBS; k++) ht_pool_run(pool, N, 2, add_one, values); /* without a lease, workers may park */
    for (int i = 0; i < N; i++) assert_int_equal(values[i], 2 * JOBS);
    ht_pool_free(pool);
}

/* Workers sleep between the jobs; a wake-up that is lost would hang here. */
static void parked_workers_wake(void **state) {
    (void)state;
    int values[8] = {0};
    ht_pool *pool = make(4);
    for (int k = 0; k < 100; k++) {
        nanosleep(&(struct timespec){.tv_nsec = k % 7 * 100000}, NULL);
        ht_pool_lease(pool);
        ht_pool_run(pool, 8, 1, add_one, values);
        ht_pool_release(pool);
    }
    for (int i = 0; i < 8; i++) assert_int_equal(values[i], 100);
    ht_pool_free(pool);
}

typedef struct tenant {
    ht_pool *pool;
    int *shared; /* only touched under the lease */
    int values[40];
} tenant;

static void *lease_often(void *arg) {
    tenant *t = arg;
    for (int k = 0; k < 300; k++) {
        ht_pool_lease(t->pool);
        ++*t->shared;
        ht_pool_run(t->pool, 40, 3, add_one, t->values);
        ht_pool_run(t->pool, 40, 1, add_one, t->values);
        ht_pool_release(t->pool);
    }
    return NULL;
}

static void leases_take_turns(void **state) {
    (void)state;
    ht_pool *pool = make(3);
    int shared = 0;
    tenant tenants[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        tenants[i] = (tenant){.pool = pool, .shared = &shared};
        assert_int_equal(pthread_create(&threads[i], NULL, lease_often, &tenants[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_int_equal(shared, 900);
    for (int i = 0; i < 3; i++)
        for (int v = 0; v < 40; v++) assert_int_equal(tenants[i].values[v], 600);
    ht_pool_free(pool);
}

static void sizes_of_a_pool(void **state) {
    (void)state;
    ht_pool *pool = (void *)1;
    ht_error err = {0};
    assert_int_equal(ht_pool_new(-1, &pool, &err), HT_ERR_ARGUMENT);
    assert_null(pool);
    assert_int_equal(ht_pool_new(1025, &pool, &err), HT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "1025 threads were asked for, expected 0 (one per core) to 1024"));
    pool = make(0);
    assert_true(ht_pool_threads(pool) >= 1);
    ht_pool_free(pool);
    ht_pool_free(NULL);
    for (int k = 0; k < 50; k++) ht_pool_free(make(4)); /* freed before the workers had anything to do */
}

static void halve_smallest(void *arg, int64_t begin, int64_t end, int worker) {
    volatile float smallest = 1.17549435e-38f, half = smallest * 0.5f;
    (void)begin, (void)end;
    if (worker > 0 && half != 0) atomic_fetch_add((atomic_int *)arg, 1);
}

static void denormals(void **state) {
    (void)state;
    volatile float smallest = 1.17549435e-38f, half = smallest * 0.5f;
    assert_true(half > 0);
    unsigned old = ht_flush_denormals();
    half = smallest * 0.5f;
    ht_restore_denormals(old);
    assert_true(half == 0);
    half = smallest * 0.5f;
    assert_true(half > 0);
    ht_pool *pool = make(4);
    atomic_int kept = 0;
    for (int k = 0; k < 100; k++) ht_pool_run(pool, 64, 1, halve_smallest, &kept);
    assert_int_equal(atomic_load(&kept), 0);
    ht_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_once),  cmocka_unit_test(many_small_jobs), cmocka_unit_test(parked_workers_wake),
        cmocka_unit_test(leases_take_turns), cmocka_unit_test(sizes_of_a_pool), cmocka_unit_test(denormals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
