/* Turns: one at a time, in the order of arrival, given up by those that are cancelled. */
#include "backends/calls.h"
#include "support/test.h"

#include <time.h>

enum { THREADS = 5 };

typedef struct worker {
    pthread_t thread;
    ht_turns *turns;
    ht_cancel cancel;
    ht_status status;
    int *n_done, place; /* how many had their turn before */
} worker;

static void *take_turn(void *arg) {
    worker *w = arg;
    w->status = ht_turns_enter(w->turns, &w->cancel, NULL);
    if (w->status) return NULL;
    w->place = (*w->n_done)++; /* the turn protects it */
    ht_turns_leave(w->turns);
    return NULL;
}

static int n_waiting(ht_turns *t) {
    int n = 0;
    pthread_mutex_lock(&t->lock);
    for (const ht_turn_waiter *w = t->first; w; w = w->next) n++;
    pthread_mutex_unlock(&t->lock);
    return n;
}

static void wait_for_waiters(ht_turns *t, int n) {
    while (n_waiting(t) != n) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Threads that came one after the other, while this one has the turn. */
static void start(worker *workers, ht_turns *t, int *n_done) {
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.turns = t, .n_done = n_done, .place = -1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, take_turn, &workers[i]), 0);
        wait_for_waiters(t, i + 1);
    }
}

UNIT_TEST(turns_come_in_order) {
    for (int round = 0; round < test_cases(20, 2000); round++) {
        ht_turns t;
        worker workers[THREADS];
        int n_done = 0;
        ht_turns_init(&t);
        assert_int_equal(ht_turns_enter(&t, NULL, NULL), HT_OK);
        start(workers, &t, &n_done);
        const int cancelled = round % THREADS; /* the first, the last, one in between */
        ht_cancel_request(&workers[cancelled].cancel);
        wait_for_waiters(&t, THREADS - 1);
        ht_turns_leave(&t);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(workers[i].thread, NULL);
            assert_int_equal(workers[i].status, i == cancelled ? HT_ERR_CANCELLED : HT_OK);
            if (i != cancelled) assert_int_equal(workers[i].place, i - (i > cancelled));
        }
        assert_int_equal(n_done, THREADS - 1);
        ht_turns_free(&t);
    }
}

UNIT_TEST(a_thread_has_one_turn) {
    ht_turns t;
    ht_cancel requested = {0};
    ht_turns_init(&t);
    for (int i = 0; i < 3; i++) {
        assert_works(ht_turns_enter, &t, NULL);
        assert_fails(HT_ERR_ARGUMENT, "", ht_turns_enter, &t, NULL);
        ht_turns_leave(&t);
    }
    ht_cancel_request(&requested);
    assert_fails(HT_ERR_CANCELLED, "", ht_turns_enter, &t, &requested);
    assert_works(ht_turns_enter, &t, NULL);
    ht_turns_leave(&t);
    ht_turns_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_come_in_order),
        cmocka_unit_test(a_thread_has_one_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
