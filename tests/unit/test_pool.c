/* The thread pool: every block runs once, leases take turns, more threads than cores do no harm. */
#include "base/pool.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 1000 };

typedef struct job {
    int n_threads;
    _Atomic int bad_worker;
    _Atomic int runs[N];
} job;

static void count(void *arg, int64_t begin, int64_t end, int worker) {
    job *j = arg;
    if (worker < 0 || worker >= j->n_threads) j->bad_worker = 1;
    for (int64_t i = begin; i < end; i++) j->runs[i]++;
}

static void every_block_runs_once(void **state) {
    (void)state;
    ht_error err = {0};
    for (int threads = 1; threads <= 5; threads++) {
        ht_pool *p;
        assert_int_equal(ht_pool_new(threads, &p, &err), HT_OK);
        assert_int_equal(ht_pool_threads(p), threads);
        for (int round = 0; round < 200; round++) {
            job j = {.n_threads = threads};
            int64_t n = (round * 37) % (N + 1), grain = round % 9;
            ht_pool_lease(p);
            ht_pool_run(p, n, grain, count, &j);
            ht_pool_run(p, n, 1, count, &j);
            ht_pool_release(p);
            for (int64_t i = 0; i < N; i++) assert_int_equal(j.runs[i], i < n ? 2 : 0);
            assert_int_equal(j.bad_worker, 0);
        }
        ht_pool_free(p);
    }
}

typedef struct leaser {
    ht_pool *pool;
    long long sum;
} leaser;

static void add(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    long long local = 0;
    for (int64_t i = begin; i < end; i++) local += i;
    atomic_fetch_add((_Atomic long long *)arg, local);
}

static void *lease_many_times(void *arg) {
    leaser *l = arg;
    for (int i = 0; i < 300; i++) {
        _Atomic long long sum = 0;
        ht_pool_lease(l->pool);
        for (int k = 0; k < 3; k++) ht_pool_run(l->pool, 100, 7, add, &sum);
        ht_pool_release(l->pool);
        l->sum += sum;
    }
    return NULL;
}

static void leases_of_several_threads_take_turns(void **state) {
    (void)state;
    ht_error err = {0};
    ht_pool *p;
    assert_int_equal(ht_pool_new(3, &p, &err), HT_OK);
    pthread_t thread[4];
    leaser l[4];
    for (int i = 0; i < 4; i++) {
        l[i] = (leaser){.pool = p};
        assert_int_equal(pthread_create(&thread[i], NULL, lease_many_times, &l[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(l[i].sum, 300LL * 3 * 4950);
    }
    ht_pool_free(p);
}

static void a_parked_pool_wakes_up(void **state) {
    (void)state;
    ht_error err = {0};
    ht_pool *p;
    assert_int_equal(ht_pool_new(2, &p, &err), HT_OK);
    for (int round = 0; round < 5; round++) {
        struct timespec nap = {0, 3000000};
        nanosleep(&nap, NULL);
        job j = {.n_threads = 2};
        ht_pool_lease(p);
        nanosleep(&nap, NULL);
        ht_pool_run(p, N, 1, count, &j);
        ht_pool_release(p);
        for (int i = 0; i < N; i++) assert_int_equal(j.runs[i], 1);
    }
    ht_pool_free(p);
}

static void bad_thread_counts_are_refused(void **state) {
    (void)state;
    ht_pool *p;
    ht_error err = {0};
    assert_int_equal(ht_pool_new(-1, &p, &err), HT_ERR_ARGUMENT);
    assert_null(p);
    assert_int_equal(ht_pool_new(100000, &p, &err), HT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "100000"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_runs_once),
        cmocka_unit_test(leases_of_several_threads_take_turns),
        cmocka_unit_test(a_parked_pool_wakes_up),
        cmocka_unit_test(bad_thread_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
