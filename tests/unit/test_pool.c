/* The thread pool: every block exactly once, whatever the sizes; leases in turn; workers that park wake again. */
#include "base/pool.h"
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
    assert_works(ht_pool_new, n_threads, &pool);
    return pool;
}

UNIT_TEST(every_block_once) {
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

UNIT_TEST(many_small_jobs) {
    enum { N = 17 };
    const int jobs = test_cases(1000, 100000);
    int values[N] = {0};
    ht_pool *pool = make(3);
    ht_pool_lease(pool);
    for (int k = 0; k < jobs; k++) ht_pool_run(pool, N, 1, add_one, values);
    ht_pool_release(pool);
    for (int k = 0; k < jobs; k++) ht_pool_run(pool, N, 2, add_one, values); /* without a lease, workers may park */
    for (int i = 0; i < N; i++) assert_int_equal(values[i], 2 * jobs);
    ht_pool_free(pool);
}

/* Workers sleep between the jobs; a wake-up that is lost would hang here. */
UNIT_TEST(parked_workers_wake) {
    int values[8] = {0};
    ht_pool *pool = make(4);
    const int rounds = test_cases(50, 5000);
    for (int k = 0; k < rounds; k++) {
        nanosleep(&(struct timespec){.tv_nsec = k % 7 * 100000}, NULL);
        ht_pool_lease(pool);
        ht_pool_run(pool, 8, 1, add_one, values);
        ht_pool_release(pool);
    }
    for (int i = 0; i < 8; i++) assert_int_equal(values[i], rounds);
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

/* Without the workers, which fall asleep at about the time of the fork; and the pool can be freed there. */
UNIT_TEST(a_forked_process_goes_on) {
    ht_pool *pool = make(4);
    for (int i = 0; i < test_cases(50, 3000); i++) {
        ht_pool_lease(pool);
        run_once(pool, 40, 1);
        ht_pool_release(pool);
        struct timespec begin, t;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &t);
        while ((t.tv_sec - begin.tv_sec) * 1000000000 + t.tv_nsec - begin.tv_nsec < i % 100 * 1000);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60); /* of what waits for ever */
            for (int k = 0; k < 2; k++) {
                ht_pool_lease(pool);
                run_once(pool, 40, 1);
                ht_pool_release(pool);
            }
            ht_pool_free(pool);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    ht_pool_free(pool);
}

UNIT_TEST(leases_take_turns) {
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

/* The order of leases: threads that take one again and again. */
typedef struct queue {
    ht_pool *pool;
    atomic_int waiting; /* threads that have come */
    int last, repeated; /* only touched under the lease: the last thread; leases of a thread after its own */
} queue;

typedef struct customer {
    queue *queue;
    int number;
} customer;

enum { CUSTOMERS = 3, PURCHASES = 400 };

static void *buy(void *arg) {
    const customer *c = arg;
    queue *q = c->queue;
    atomic_fetch_add(&q->waiting, 1);
    while (atomic_load(&q->waiting) < CUSTOMERS) sched_yield();
    for (int i = 0; i < PURCHASES; i++) {
        ht_pool_lease(q->pool);
        q->repeated += q->last == c->number;
        q->last = c->number;
        const struct timespec step = {.tv_nsec = 50000}; /* the others come meanwhile */
        nanosleep(&step, NULL);
        ht_pool_release(q->pool);
    }
    return NULL;
}

UNIT_TEST(leases_go_in_order_of_arrival) {
    ht_pool *pool = make(2);
    queue q = {.pool = pool, .last = -1};
    customer customers[CUSTOMERS];
    pthread_t threads[CUSTOMERS];
    for (int i = 0; i < CUSTOMERS; i++) {
        customers[i] = (customer){&q, i};
        assert_int_equal(pthread_create(&threads[i], NULL, buy, &customers[i]), 0);
    }
    for (int i = 0; i < CUSTOMERS; i++) pthread_join(threads[i], NULL);
    /* Now and then a thread loses its core between two leases, and the others repeat. */
    assert_true(q.repeated < CUSTOMERS * PURCHASES / 20);
    ht_pool_free(pool);
}

/* A long lease of many jobs, and a thread that wants a short one. */
typedef struct visit {
    ht_pool *pool;
    atomic_bool came, done;
} visit;

static void *visit_once(void *arg) {
    visit *v = arg;
    atomic_store(&v->came, true);
    ht_pool_lease(v->pool);
    atomic_store(&v->done, true);
    ht_pool_release(v->pool);
    return NULL;
}

UNIT_TEST(a_long_lease_lets_others_go_first) {
    ht_pool *pool = make(2);
    visit v = {.pool = pool};
    pthread_t thread;
    const struct timespec slice = {.tv_nsec = 25000000};
    ht_pool_lease(pool);
    ht_pool_yield(pool); /* nothing waits */
    assert_int_equal(pthread_create(&thread, NULL, visit_once, &v), 0);
    while (!atomic_load(&v.came)) sched_yield();
    assert_false(atomic_load(&v.done));
    for (int i = 0; i < 1000 && !atomic_load(&v.done); i++) { /* until the thread waits: nearly always once */
        nanosleep(&slice, NULL);
        assert_false(atomic_load(&v.done)); /* not during a job */
        ht_pool_yield(pool);
    }
    assert_true(atomic_load(&v.done));
    run_once(pool, 40, 1);
    ht_pool_release(pool);
    pthread_join(thread, NULL);
    ht_pool_free(pool);
}

static void count_slowly(void *arg, int64_t begin, int64_t end, int worker) {
    count_blocks(arg, begin, end, worker);
    if (begin % 7 == worker % 7) sched_yield(); /* some threads lose their core, others take what is left of theirs */
}

typedef struct crowd {
    ht_pool *pool;
    atomic_int wrong;
} crowd;

/* Jobs of changing sizes, so that a thread which comes late finds other jobs in the place of the one it knew. */
static void *run_in_a_crowd(void *arg) {
    crowd *c = arg;
    job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    j->n_threads = ht_pool_threads(c->pool);
    int64_t ran = 0;
    for (int k = 0; k < 200; k++) {
        ht_pool_lease(c->pool);
        for (int small = 0; small < 5; small++) {
            j->n = 1 + (k * 5 + small) * 13 % 40;
            j->grain = 1 + small % 2;
            ht_pool_run(c->pool, j->n, j->grain, small < 4 ? count_blocks : count_slowly, j);
            int64_t total = 0;
            for (int i = 0; i < 40; i++) total += atomic_load(&j->count[i]);
            ran += j->n;
            if (total != ran) atomic_fetch_add(&c->wrong, 1);
        }
        ht_pool_release(c->pool);
    }
    for (int i = 1; i < 40; i++) /* a job has all blocks up to its last */
        if (atomic_load(&j->count[i]) > atomic_load(&j->count[i - 1])) atomic_fetch_add(&c->wrong, 1);
    atomic_fetch_add(&c->wrong, atomic_load(&j->wrong));
    free(j);
    return c;
}

UNIT_TEST(every_block_once_in_a_crowd) {
    for (int threads = 1; threads <= 8; threads++) {
        enum { POOLS = 2, TENANTS = 2 };
        crowd crowds[POOLS];
        pthread_t tenants[POOLS][TENANTS];
        for (int p = 0; p < POOLS; p++) {
            crowds[p] = (crowd){.pool = make(threads)};
            for (int t = 0; t < TENANTS; t++)
                assert_int_equal(pthread_create(&tenants[p][t], NULL, run_in_a_crowd, &crowds[p]), 0);
        }
        for (int p = 0; p < POOLS; p++) {
            for (int t = 0; t < TENANTS; t++) {
                void *done;
                pthread_join(tenants[p][t], &done);
                assert_non_null(done);
            }
            assert_int_equal(atomic_load(&crowds[p].wrong), 0);
            ht_pool_free(crowds[p].pool);
        }
    }
}

typedef struct held {
    atomic_int others;   /* blocks that other workers have run */
    atomic_int expected; /* of them, before the one that is held goes on */
} held;

static void hold_first(void *arg, int64_t begin, int64_t end, int worker) {
    held *h = arg;
    (void)end;
    (void)worker;
    if (begin > 0)
        atomic_fetch_add(&h->others, 1);
    else
        while (atomic_load(&h->others) < atomic_load(&h->expected)) sched_yield();
}

/* One block does not end before all others have: the blocks behind it must be taken by another thread. */
UNIT_TEST(nobody_waits_for_more_than_a_block) {
    for (int threads = 2; threads <= 5; threads++) {
        ht_pool *pool = make(threads);
        for (int n = 2; n <= 50; n += 6) {
            held h = {.expected = n - 1};
            ht_pool_run(pool, n, 1, hold_first, &h);
            assert_int_equal(atomic_load(&h.others), n - 1);
        }
        ht_pool_free(pool);
    }
}

/* Block 0 is first; each thread's run ascends; every rank once. */
UNIT_TEST(ranks) {
    for (int threads = 1; threads <= 5; threads++) {
        ht_pool *pool = make(threads);
        for (int64_t n = 1; n <= 40; n++) {
            int seen[40] = {0};
            int runs = 1;
            for (int64_t i = 0; i < n; i++) {
                int64_t rank = ht_pool_rank(pool, n, i);
                assert_in_range(rank, 0, n - 1);
                seen[rank]++;
                if (i > 0 && rank < ht_pool_rank(pool, n, i - 1)) runs++;
            }
            for (int64_t i = 0; i < n; i++) assert_int_equal(seen[i], 1);
            assert_int_equal(ht_pool_rank(pool, n, 0), 0);
            assert_true(runs <= threads);
            if (n >= 2 * threads) assert_int_equal(runs, threads);
        }
        ht_pool_free(pool);
    }
}

UNIT_TEST(sizes_of_a_pool) {
    ht_pool *pool = (void *)1;
    ht_error err = {0};
    assert_int_equal(ht_pool_new(-1, &pool, &err), HT_ERR_ARGUMENT);
    assert_null(pool);
    assert_fails(HT_ERR_ARGUMENT, "1025 threads were asked for, expected 0 (one per core) to 1024", ht_pool_new, 1025,
                 &pool);
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

UNIT_TEST(denormals) {
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
        cmocka_unit_test(every_block_once_in_a_crowd),
        cmocka_unit_test(nobody_waits_for_more_than_a_block),
        cmocka_unit_test(ranks),
        cmocka_unit_test(every_block_once),
        cmocka_unit_test(many_small_jobs),
        cmocka_unit_test(parked_workers_wake),
        cmocka_unit_test(a_forked_process_goes_on),
        cmocka_unit_test(leases_take_turns),
        cmocka_unit_test(leases_go_in_order_of_arrival),
        cmocka_unit_test(a_long_lease_lets_others_go_first),
        cmocka_unit_test(sizes_of_a_pool),
        cmocka_unit_test(denormals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
