/* Threads that sleep are sent to cores of their own, and may go where they might go before when they have arrived. */
#include "base/core_placement.h"
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#if defined(__linux__)

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5 };

typedef struct sleeper {
    pthread_t thread;
    pid_t number;
    int index, arrived_on;
    bool sent;
    cpu_set_t before, after;
} sleeper;

static sleeper sleepers[MOST];
static ht_core_placement *placements;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_asleep;
static bool awake;

static void *sleep_once(void *arg) {
    sleeper *s = arg;
    s->number = (pid_t)syscall(SYS_gettid);
    assert_int_equal(sched_getaffinity(0, sizeof s->before, &s->before), 0);
    pthread_mutex_lock(&lock);
    ht_core_placement_sleep(ht_core_placement_at(placements, s->index));
    n_asleep++;
    pthread_cond_broadcast(&changed);
    while (!awake) pthread_cond_wait(&changed, &lock);
    s->arrived_on = ht_core_now();
    s->sent = ht_core_placement_woken(ht_core_placement_at(placements, s->index));
    pthread_mutex_unlock(&lock);
    assert_int_equal(sched_getaffinity(0, sizeof s->after, &s->after), 0);
    return NULL;
}

/* n threads, sent off `core`, or not at all. */
static void run(int n, int core, bool send) {
    placements = ht_core_placements_new(n);
    assert_non_null(placements);
    n_asleep = 0;
    awake = false;
    for (int i = 0; i < n; i++) {
        sleepers[i] = (sleeper){.index = i};
        assert_int_equal(pthread_create(&sleepers[i].thread, NULL, sleep_once, &sleepers[i]), 0);
    }
    pthread_mutex_lock(&lock);
    while (n_asleep < n) pthread_cond_wait(&changed, &lock);
    if (send) ht_core_placements_send(placements, n, core);
    awake = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++) {
        pthread_join(sleepers[i].thread, NULL);
        assert_true(CPU_EQUAL(&sleepers[i].before, &sleepers[i].after));
    }
    free(placements);
}

static int cores(cpu_set_t *set) {
    assert_int_equal(sched_getaffinity(0, sizeof *set, set), 0);
    return CPU_COUNT(set);
}

UNIT_TEST(sent_off_a_core) {
    cpu_set_t set;
    if (cores(&set) < 2) skip();
    for (int n = 1; n <= MOST; n++)
        for (size_t core = 0; core < CPU_SETSIZE; core++) {
            if (!CPU_ISSET(core, &set)) continue;
            run(n, (int)core, true);
            for (int i = 0; i < n; i++) {
                assert_true(sleepers[i].sent);
                assert_int_not_equal(sleepers[i].arrived_on, core);
            }
        }
}

UNIT_TEST(on_one_core_nobody_is_sent) {
    cpu_set_t set, one;
    (void)cores(&set);
    size_t core = 0;
    while (!CPU_ISSET(core, &set)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0); /* and threads inherit it */
    run(2, (int)core, true);
    assert_false(sleepers[0].sent || sleepers[1].sent);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

/* A process that was forked leaves the threads alone that only its parent has. */
UNIT_TEST(nobody_is_sent_from_another_process) {
    placements = ht_core_placements_new(1);
    assert_non_null(placements);
    n_asleep = 0;
    awake = false;
    sleepers[0] = (sleeper){.index = 0};
    assert_int_equal(pthread_create(&sleepers[0].thread, NULL, sleep_once, &sleepers[0]), 0);
    pthread_mutex_lock(&lock);
    while (n_asleep < 1) pthread_cond_wait(&changed, &lock);
    const pid_t child = fork();
    if (child == 0) {
        for (int core = 0; core < 4; core++) ht_core_placements_send(placements, 1, core);
        _exit(ht_core_placement_woken(ht_core_placement_at(placements, 0)));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(sleepers[0].number, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &sleepers[0].before));
    awake = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(sleepers[0].thread, NULL);
    free(placements);
}

UNIT_TEST(nobody_is_sent_unasked) {
    run(MOST, 0, false);
    for (int i = 0; i < MOST; i++) assert_false(sleepers[i].sent);
    run(MOST, -1, true); /* a core that is not known */
    for (int i = 0; i < MOST; i++) assert_false(sleepers[i].sent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sent_off_a_core),
        cmocka_unit_test(on_one_core_nobody_is_sent),
        cmocka_unit_test(nobody_is_sent_from_another_process),
        cmocka_unit_test(nobody_is_sent_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

UNIT_TEST(nothing_to_do) {
    ht_core_placement *b = ht_core_placements_new(1);
    assert_non_null(b);
    ht_core_placement_sleep(b);
    ht_core_placements_send(b, 1, 0);
    assert_false(ht_core_placement_woken(b));
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_to_do)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
