/* Which way large results are written: both are tried, and the one that was faster of late is taken. */
#include "cpu/ways.h"
#include "support/test.h"

enum { THREADS = 1, MILLISECOND = 1000000 };

/* As if the way `slow` had just taken 50 ms for its half, and the other one no time. */
static void end_trial(ht_trial *t, ht_work work, ht_way slow) {
    ht_ways_begin(t);
    ht_ways_half(t);
    if (t->first == slow)
        t->began -= 50 * MILLISECOND;
    else {
        t->began -= 50 * MILLISECOND;
        t->half -= 50 * MILLISECOND;
    }
    ht_ways_end(t, work, THREADS);
}

static void both_are_tried_first(void **state) {
    (void)state;
    int first[2] = {0, 0};
    ht_trial new = ht_ways_next(HT_WORK_LIGHT, 2);
    assert_false(new.tries); /* in memory that the system has just cleared */
    assert_int_equal(new.first, HT_WAY_PLAIN);
    for (int i = 0; i < 4; i++) {
        ht_trial t = ht_ways_next(HT_WORK_LIGHT, 2);
        assert_true(t.tries);
        first[t.first]++;
    }
    assert_int_equal(first[HT_WAY_PLAIN], 2);
    assert_int_equal(first[HT_WAY_BYPASS], 2);
}

static void the_faster_way_is_taken_until_it_is_slower(void **state) {
    (void)state;
    ht_way slow = HT_WAY_PLAIN;
    for (int round = 0; round < 3; round++, slow = slow == HT_WAY_PLAIN ? HT_WAY_BYPASS : HT_WAY_PLAIN) {
        int trials = 0;
        for (int i = 0; i < 200; i++) {
            ht_trial t = ht_ways_next(HT_WORK_HEAVY, THREADS);
            trials += t.tries;
            if (t.tries)
                end_trial(&t, HT_WORK_HEAVY, slow);
            else if (trials > 4)
                assert_int_not_equal(t.first, slow);
        }
        assert_in_range(trials, 5, 16);
    }
}

/* What one kind of work found out says nothing of another. */
static void kinds_of_work_are_apart(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        ht_trial heavy = ht_ways_next(HT_WORK_HEAVY, THREADS), light = ht_ways_next(HT_WORK_LIGHT, THREADS);
        if (heavy.tries) end_trial(&heavy, HT_WORK_HEAVY, HT_WAY_PLAIN);
        if (light.tries) end_trial(&light, HT_WORK_LIGHT, HT_WAY_BYPASS);
        if (i >= 4 && !light.tries) assert_int_equal(light.first, HT_WAY_PLAIN);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_are_tried_first),
        cmocka_unit_test(the_faster_way_is_taken_until_it_is_slower),
        cmocka_unit_test(kinds_of_work_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
