/* Which way large results are written: all are tried, and the one that was the fastest of late is taken. */
#include "cpu/ways.h"
#include "support/test.h"

enum { THREADS = 1, TENTH = 100000000 }; /* of a second: what delays a test is little beside it */

/* As if each way took so many tenths of a second for a half; 0: no time that a clock could see. */
static void end_trial(ht_trial *t, ht_work work, const int *takes) {
    ht_ways_begin(t);
    ht_ways_half(t);
    t->half -= (int64_t)takes[t->second] * TENTH;
    t->began = t->half - (int64_t)takes[t->first] * TENTH;
    ht_ways_end(t, work, THREADS);
}

static void all_are_tried_first(void **state) {
    (void)state;
    int tried[HT_WAY_COUNT] = {0}, first[HT_WAY_COUNT] = {0};
    ht_trial new = ht_ways_next(HT_WORK_TILES, 2);
    assert_false(new.tries); /* in memory that the system has just cleared */
    assert_int_equal(new.first, HT_WAY_PLAIN);
    for (int i = 0; i < 2 * HT_WAY_COUNT; i++) {
        ht_trial t = ht_ways_next(HT_WORK_TILES, 2);
        assert_true(t.tries);
        assert_int_not_equal(t.first, t.second);
        tried[t.first]++, tried[t.second]++, first[t.first]++;
    }
    for (int w = 0; w < HT_WAY_COUNT; w++) {
        assert_in_range(tried[w], 2, 2 * HT_WAY_COUNT);
        assert_int_equal(2 * first[w], tried[w]); /* as often with the half that comes first as with the other */
    }
}

static void the_fastest_way_is_taken_until_another_one_is(void **state) {
    (void)state;
    for (int round = 0; round < 2 * HT_WAY_COUNT; round++) {
        const ht_way fast = (ht_way)(round * 3 % HT_WAY_COUNT);
        int takes[HT_WAY_COUNT], trials = 0;
        for (int w = 0; w < HT_WAY_COUNT; w++) takes[w] = 80 + 7 * ((w + round) % HT_WAY_COUNT);
        takes[fast] = 50;
        for (int i = 0; i < 400; i++) {
            ht_trial t = ht_ways_next(HT_WORK_MATH, THREADS);
            trials += t.tries;
            if (t.tries)
                end_trial(&t, HT_WORK_MATH, takes);
            else if (i > 300)
                assert_int_equal(t.first, fast);
        }
        assert_in_range(trials, 12, 48);
    }
}

/* One half that another program delayed changes nothing for long, and halves that took no time nothing at all. */
static void delays_are_forgotten(void **state) {
    (void)state;
    const int takes[HT_WAY_COUNT] = {60, 70, 50, 90, 80}, none[HT_WAY_COUNT] = {0};
    int wrong = 0;
    for (int i = 0; i < 1000; i++) {
        ht_trial t = ht_ways_next(HT_WORK_LONG, THREADS);
        int now[HT_WAY_COUNT];
        for (int w = 0; w < HT_WAY_COUNT; w++) now[w] = i % 300 == 256 && w == HT_WAY_BYPASS_QUIET ? 5000 : takes[w];
        if (t.tries)
            end_trial(&t, HT_WORK_LONG, i % 7 == 3 ? none : now);
        else if (i > 100)
            wrong += t.first != HT_WAY_BYPASS_QUIET;
    }
    assert_in_range(wrong, 0, 150);
}

/* What one kind of work found out says nothing of another. */
static void kinds_of_work_are_apart(void **state) {
    (void)state;
    static const int takes[2][HT_WAY_COUNT] = {{50, 90, 80, 70, 60}, {90, 80, 70, 50, 60}};
    for (int i = 0; i < 80; i++) {
        ht_trial one = ht_ways_next(HT_WORK_LIGHT_ONE, THREADS), more = ht_ways_next(HT_WORK_LIGHT_MORE, THREADS);
        if (one.tries) end_trial(&one, HT_WORK_LIGHT_ONE, takes[0]);
        if (more.tries) end_trial(&more, HT_WORK_LIGHT_MORE, takes[1]);
        if (i >= 40 && !one.tries) assert_int_equal(one.first, HT_WAY_BYPASS);
        if (i >= 40 && !more.tries) assert_int_equal(more.first, HT_WAY_PLAIN);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_tried_first),
        cmocka_unit_test(the_fastest_way_is_taken_until_another_one_is),
        cmocka_unit_test(delays_are_forgotten),
        cmocka_unit_test(kinds_of_work_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
