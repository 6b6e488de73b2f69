/* The engine: every answer has the bits it has alone, whatever comes, goes, is set back or shared beside it; what ends one
 * request leaves the others alone; nothing is left behind. */
#include "device/device.h"
#include "generate/engine_internal.h"
#include "generate/session_internal.h"
#include "support/engine_questions.h"
#include "support/options.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bits ---- */

UNIT_TEST(answers_are_as_alone) {
    for (int m = 0; m < N_MODELS; m++) {
        ht_engine *e = open_engine(m, NULL);
        for (int again = 0; again < 2; again++) {
            asked a[QUESTIONS] = {0};
            for (int i = 0; i < QUESTIONS; i++) {
                a[i].q = &questions[m][i];
                assert_works(submit, e, m, &a[i]);
            }
            ht_engine_wait(e, 0);
            for (int i = 0; i < QUESTIONS; i++) {
                check_answer(&a[i], again ? "again" : "at first");
                assert_int_equal(a[i].status, HT_OK);
                if (again && a[i].q->n > (m == RECURRENT ? 64 : 20)) assert_true(a[i].reuse.reused > 0);
            }
        }
        const ht_engine_statistics f = ht_engine_get_statistics(e);
        assert_int_equal(f.submitted, 2 * QUESTIONS);
        assert_int_equal(f.ended, 2 * QUESTIONS);
        assert_int_equal(f.running + f.waiting, 0);
        assert_int_equal(f.kv_bytes, f.prefix_bytes); /* nothing but what is kept */
        ht_engine_close(e);
    }
}

static uint64_t random_state;
static uint32_t draw(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* Arrivals, cancellations, refusals, little memory, and prefixes that come and go. */
static void run_schedule(int number) {
    enum { MOST = 24 };
    asked a[MOST] = {0};
    const int m = number % N_MODELS;
    random_state = (uint64_t)number * 7919 + 1;
    const size_t before = in_use(m), page = ht_cache_bytes(models[m], 256, 64);
    const ht_engine_options o =
        OPTIONS(ht_engine_options, with.sequences = 1 + (int32_t)draw(6), with.step_tokens = 8 + (int32_t)draw(300),
                with.kv_bytes = draw(3) ? page * (5 + draw(6)) : 0,
                with.prefix_bytes = draw(4) ? SIZE_MAX : draw(2) * page * 2, with.prefill_budget = 1 + draw(3));
    ht_engine *e = open_engine(m, &o);
    const int n = 3 + (int)draw(MOST - 3);
    for (int i = 0; i < n; i++) {
        ht_error err = {0};
        a[i].q = &questions[m][draw(QUESTIONS)];
        if (draw(6) == 0) a[i].refuse_at = 1 + (int)draw(10);
        if (draw(6) == 0) a[i].cancel_at = 1 + (int)draw(10);
        if (submit(e, m, &a[i], &err)) fail_msg("schedule %d: %s", number, err.message);
        if (draw(8) == 0) ht_engine_cancel(e, a[i].ticket);
        for (uint32_t pause = draw(3) ? 0 : draw(400); pause > 0; pause--) sched_yield();
    }
    if (draw(5)) ht_engine_wait(e, 0);
    const ht_engine_statistics f = ht_engine_get_statistics(e);
    ht_engine_close(e);
    for (int i = 0; i < n; i++) {
        char when[40];
        snprintf(when, sizeof when, "schedule %d, request %d", number, i);
        check_answer(&a[i], when);
        if (a[i].status) assert_int_equal(a[i].status, HT_ERR_CANCELLED);
    }
    assert_true(f.kv_bytes <= f.kv_budget);
    assert_int_equal(in_use(m), before);
}

UNIT_TEST(random_schedules) {
    for (int i = 0; i < test_cases(TEST_SLOW ? 6 : 30, 1000); i++) run_schedule(i);
}

/* Several requests that do not fit at once, each of which does. */
UNIT_TEST(setting_back) {
    for (int m = 0; m < N_MODELS; m++) {
        if (!test_takes_today(m, 2)) continue;
        const size_t page = ht_cache_bytes(models[m], 256, 512);
        ht_engine *e = open_engine(m, OPTIONS_AT(ht_engine_options, with.kv_bytes = 3 * page));
        asked a[6] = {0};
        for (int i = 0; i < 6; i++) {
            a[i].q = &questions[m][i % 2 ? 9 : 2]; /* of 256 and 300 tokens, and more to come */
            assert_works(submit, e, m, &a[i]);
        }
        ht_engine_wait(e, 0);
        for (int i = 0; i < 6; i++) {
            check_answer(&a[i], "with little memory");
            assert_int_equal(a[i].status, HT_OK);
        }
        assert_true(ht_engine_get_statistics(e).kv_bytes <= 3 * page);
        ht_engine_close(e);
    }
}

static void collect_end(const ht_answer_report *report, void *user) {
    asked *all = user;
    note_answer(report, &all[report->answer]);
}

/* Several answers share their prompt, and answer i is that of seed + i. */
UNIT_TEST(answers_of_one_prompt) {
    enum { N = 5 };
    for (int m = 0; m < N_MODELS; m++)
        for (int cached = 0; cached < 2; cached++) {
            if (!test_takes_today(m + cached, 2)) continue;
            question alone[N];
            asked a[N] = {0};
            for (int i = 0; i < N; i++) {
                alone[i] = questions[m][5];
                alone[i].max_tokens = 12;
                alone[i].sampler.temperature = 1;
                alone[i].sampler.seed = 40 + (uint64_t)i;
                answer_alone(m, &alone[i]);
                a[i].q = &alone[i];
            }
            ht_engine *e = open_engine(m, OPTIONS_AT(ht_engine_options, with.prefix_bytes = cached ? SIZE_MAX : 0));
            const ht_generate_options o = options_of(&alone[0]);
            const ht_request r = OPTIONS(ht_request, with.ids = alone->ids, with.n_ids = alone->n, with.options = &o,
                                         with.n = N, with.end = collect_end, with.user = a);
            assert_works(ht_engine_submit, e, &r, NULL);
            ht_engine_wait(e, 0);
            int64_t computed = 0;
            for (int i = 0; i < N; i++) {
                check_answer(&a[i], "of one prompt");
                assert_int_equal(a[i].status, HT_OK);
                computed += a[i].metrics.prompt_tokens;
            }
            assert_int_equal(computed, (int64_t)alone->n + N - 1);
            ht_engine_close(e);
        }
}

UNIT_TEST(warming) {
    ht_engine *e = open_engine(0, NULL);
    ht_reuse reuse;
    const question *q = &questions[0][6];
    const ht_request r = OPTIONS(ht_request, with.ids = q->ids, with.n_ids = 500);
    assert_works(ht_engine_warm, e, &r, &reuse);
    assert_int_equal(reuse.computed, 500);
    assert_int_equal(reuse.end, HT_REUSE_NEW);
    asked a = {.q = q};
    assert_works(submit, e, 0, &a);
    ht_engine_wait(e, a.ticket);
    check_answer(&a, "after warming");
    assert_int_equal(a.reuse.reused, 500);
    assert_int_equal(a.reuse.end, HT_REUSE_ENDS);
    ht_engine_close(e);
}

/* ---- one request's affairs ---- */

UNIT_TEST(refusals) {
    const size_t page = ht_cache_bytes(models[0], 256, 512);
    ht_engine *e = open_engine(0, OPTIONS_AT(ht_engine_options, with.kv_bytes = 2 * page, with.queue = 2));
    ht_error err = {0};
    ht_ticket ticket = 9;
    asked a = {.q = &questions[0][8]};
    assert_int_equal(submit(e, 0, &a, &err), HT_ERR_LIMIT); /* of 700 tokens, where 512 fit */
    assert_non_null(strstr(err.message, "700"));
    assert_non_null(strstr(err.message, "512"));
    assert_int_equal(a.ticket, 0);
    ht_request r = OPTIONS(ht_request, with.ids = a.q->ids, with.n_ids = 4, with.n = 3);
    assert_fails(HT_ERR_BUSY, "2 may wait", ht_engine_submit, e, &r, &ticket);
    r.n = 0;
    assert_int_equal(ht_engine_submit(e, &r, &ticket, &err), HT_ERR_ARGUMENT);
    r.n = 1;
    r.text = "too";
    assert_int_equal(ht_engine_submit(e, &r, &ticket, &err), HT_ERR_ARGUMENT);
    r.text = NULL;
    r.n_ids = 0;
    assert_int_equal(ht_engine_submit(e, &r, &ticket, &err), HT_ERR_ARGUMENT);
    r.n_ids = 4;
    r.ids = (int32_t[]){1, 2, TINY_VOCAB, 3};
    assert_int_equal(ht_engine_submit(e, &r, &ticket, &err), HT_ERR_ARGUMENT);
    const ht_sampler_options wild = OPTIONS(ht_sampler_options, with.top_p = 3);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.sampler = &wild);
    r.ids = a.q->ids;
    r.options = &o;
    assert_int_equal(ht_engine_submit(e, &r, &ticket, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ticket, 0);
    r.options = NULL;
    r.adapters = &adapters[1]; /* of another model */
    r.n_adapters = 1;
    assert_int_equal(ht_engine_submit(e, &r, &ticket, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_engine_get_statistics(e).submitted, 0);
    ht_engine_close(e);
    assert_int_equal(ht_engine_open(models[0], OPTIONS_AT(ht_engine_options, with.kv_bytes = 100), &e, &err),
                     HT_ERR_LIMIT);
    assert_int_equal(ht_engine_open(models[0], OPTIONS_AT(ht_engine_options, with.sequences = 0), &e, &err),
                     HT_ERR_ARGUMENT);
    assert_int_equal(ht_engine_open(models[0], OPTIONS_AT(ht_engine_options, with.step_tokens = -1), &e, &err),
                     HT_ERR_ARGUMENT);
}

UNIT_TEST(steps_are_as_long_as_the_device_has_them) {
    ht_engine *e = open_engine(0, NULL);
    assert_int_equal(e->o.step_tokens, models[0]->device->step_rows);
    ht_engine_close(e);
    e = open_engine(0, OPTIONS_AT(ht_engine_options, with.step_tokens = 7));
    assert_int_equal(e->o.step_tokens, 7);
    ht_engine_close(e);
}

/* Answers end with LENGTH where the engine's memory does. */
UNIT_TEST(memory_ends_an_answer) {
    const size_t page = ht_cache_bytes(models[0], 256, 512);
    ht_engine *e = open_engine(0, OPTIONS_AT(ht_engine_options, with.kv_bytes = page));
    question q = questions[0][1];
    q.max_tokens = 4000;
    asked a = {.q = &q};
    const ht_generate_options o = options_of(&q);
    ht_request r = request_for(&a, 0, &o);
    int32_t ids[250];
    tiny_ids(ids, 250, 3);
    for (int i = 0; i < 250; i++) ids[i] += ids[i] == NAN_TOKEN;
    r.ids = ids;
    r.n_ids = 250;
    a.engine = e;
    assert_works(ht_engine_submit, e, &r, &a.ticket);
    ht_engine_wait(e, 0);
    assert_int_equal(a.status, HT_OK);
    assert_int_equal(a.metrics.finish, HT_FINISH_LENGTH);
    assert_int_equal(a.metrics.generated_tokens, 6);
    ht_engine_close(e);
}

UNIT_TEST(a_nan_ends_its_request_alone) {
    ht_engine *e = open_engine(0, NULL);
    question bad = questions[0][1];
    bad.ids[bad.n - 1] = NAN_TOKEN;
    asked a[3] = {{.q = &questions[0][2]}, {.q = &bad}, {.q = &questions[0][3]}};
    for (int i = 0; i < 3; i++) assert_works(submit, e, 0, &a[i]);
    ht_engine_wait(e, 0);
    check_answer(&a[0], "beside a NaN");
    check_answer(&a[2], "beside a NaN");
    assert_true(a[0].status == HT_OK && a[2].status == HT_OK);
    assert_int_equal(a[1].status, HT_ERR_INTERNAL);
    assert_int_equal(ht_engine_get_statistics(e).failed, 1);
    ht_engine_close(e);
}

/* What answers side by side count together. */
typedef struct late {
    _Atomic int ends, cancelled, generated;
    char message[200]; /* of the first that failed */
} late;

static void note_late(const ht_answer_report *report, void *user) {
    late *l = user;
    l->generated += (int)report->metrics.generated_tokens;
    if (report->status == HT_ERR_CANCELLED && atomic_fetch_add(&l->cancelled, 1) == 0)
        snprintf(l->message, sizeof l->message, "%s", report->message);
    l->ends++;
}

/* Requests with deadlines: work for minutes, and one whose time has passed while it waits. Returns whether some was
 * done. */
static bool run_until(double deadline) {
    enum { N = 200 };
    ht_engine *e = open_engine(0, OPTIONS_AT(ht_engine_options, with.sequences = 1));
    question q = questions[0][1];
    q.max_tokens = 3000;
    late first = {0}, second = {0};
    char message[80];
    const ht_generate_options o = options_of(&q);
    ht_request r = OPTIONS(ht_request, with.ids = q.ids, with.n_ids = q.n, with.options = &o, with.n = N,
                           with.deadline = deadline, with.end = note_late, with.user = &first);
    assert_works(ht_engine_submit, e, &r, NULL);
    r.user = &second;
    r.n = 1;
    r.deadline = 1e-6;
    assert_works(ht_engine_submit, e, &r, NULL);
    ht_engine_wait(e, 0);
    assert_int_equal(first.ends, N);
    assert_true(first.cancelled > 0);
    snprintf(message, sizeof message, "the deadline of %g seconds has passed", deadline);
    assert_non_null(strstr(first.message, message));
    assert_true(second.ends == 1 && second.cancelled == 1 && second.generated == 0);
    ht_engine_close(e);
    return first.generated > 0;
}

/* A busy machine needs longer for the first token. */
UNIT_TEST(deadlines) {
    double deadline = 0.2;
    while (!run_until(deadline) && deadline < 60) deadline *= 2;
    assert_true(deadline < 60);
}

/* ---- for long ---- */

enum { SMALL = 8, SMALL_QUEUE = 12 };
typedef struct soaked {
    const question *q;
    bool cancelled;
} soaked;
static _Atomic int64_t n_right, n_cancelled, n_wrong, n_tokens;

static void count_end(const ht_answer_report *report, void *user) {
    const soaked *a = user;
    const int64_t n = report->metrics.generated_tokens, common = n < a->q->n_answer ? n : a->q->n_answer;
    bool right = !memcmp(report->token ? report->token : a->q->answer, a->q->answer, (size_t)common * sizeof(int32_t));
    if (!a->cancelled) right = right && report->status == HT_OK && n == a->q->n_answer;
    if (a->cancelled) right = right && (report->status == HT_ERR_CANCELLED || report->status == HT_OK);
    n_right += right && report->status == HT_OK;
    n_cancelled += right && report->status == HT_ERR_CANCELLED;
    n_wrong += !right;
    n_tokens += n;
}

/* Waits while the queue is full, and counts how often. */
static void submit_soaked(ht_engine *e, const soaked *a, int64_t *refused) {
    ht_generate_options o = options_of(a->q);
    ht_ticket ticket;
    ht_status status;
    if (a->cancelled) o.max_tokens = 4000;
    const ht_request r = OPTIONS(ht_request, with.ids = a->q->ids, with.n_ids = a->q->n, with.options = &o,
                                 with.end = count_end, with.user = (void *)a);
    while ((status = ht_engine_submit(e, &r, &ticket, NULL)) == HT_ERR_BUSY) {
        ++*refused;
        ht_engine_wait(e, 0);
    }
    assert_int_equal(status, HT_OK);
    if (a->cancelled) ht_engine_cancel(e, ticket);
}

/* Bytes that are in use when nothing is under way, but for keys and values. */
static size_t without_cache(ht_engine *e) {
    ht_engine_wait(e, 0);
    return in_use(1) - ht_engine_get_statistics(e).kv_bytes;
}

/* Of tiny requests a tenth is cancelled, and a tenth more than the queue takes. */
UNIT_TEST(many_requests) {
    const int n = test_cases(TEST_SLOW ? 100 : 200, 20000);
    question small[SMALL];
    soaked one[2][SMALL];
    for (int i = 0; i < SMALL; i++) {
        small[i] = questions[1][1];
        small[i].n = 1 + (size_t)i * 2;
        small[i].ids[0] = 20 + i;
        small[i].max_tokens = 1 + i;
        answer_alone(1, &small[i]);
        for (int cancelled = 0; cancelled < 2; cancelled++) one[cancelled][i] = (soaked){&small[i], cancelled};
    }
    const size_t before = in_use(1), page = ht_cache_bytes(models[1], 256, 512);
    const ht_engine_options eo = OPTIONS(ht_engine_options, with.sequences = 4, with.queue = SMALL_QUEUE,
                                         with.kv_bytes = 8 * page, with.prefix_bytes = 4 * page);
    ht_engine *e = open_engine(1, &eo);
    ht_memory_reset_peak(models[1]->device);
    int64_t refused = 0;
    size_t early = 0;
    n_right = n_cancelled = n_wrong = n_tokens = 0;
    for (int i = 0; i < n; i++) {
        if (i % 10 == 7) {
            const ht_request r = OPTIONS(ht_request, with.text = "hello", with.n = SMALL_QUEUE + 1);
            assert_int_equal(ht_engine_submit(e, &r, NULL, NULL), HT_ERR_BUSY);
            refused += SMALL_QUEUE + 1;
        } else {
            submit_soaked(e, &one[i % 10 == 3][i % SMALL], &refused);
        }
        if (i == n / 4) early = without_cache(e);
    }
    ht_engine_wait(e, 0);
    const ht_engine_statistics f = ht_engine_get_statistics(e);
    assert_int_equal(n_wrong, 0);
    assert_true(n_cancelled > 0 && n_cancelled <= n / 10); /* a thread that is held up cancels what has ended */
    assert_int_equal(n_right + n_cancelled, n - n / 10);
    assert_int_equal(f.submitted, n_right + n_cancelled);
    assert_int_equal(f.ended, n_right);
    assert_int_equal(f.cancelled, n_cancelled);
    assert_int_equal(f.failed, 0);
    assert_int_equal(f.refused, refused);
    assert_int_equal(f.generated_tokens, n_tokens);
    assert_int_equal(f.running + f.waiting, 0);
    assert_int_equal(f.kv_bytes, f.prefix_bytes);
    assert_int_equal(without_cache(e), early);
    assert_true(ht_memory_get(models[1]->device).peak_bytes <= early + f.kv_budget);
    ht_engine_close(e);
    assert_int_equal(in_use(1), before);
}

/* Whether all requests so far have the answers of a session alone. */
static void check_all(ht_engine *e, const asked *a, int n, int *n_cancelled_of) {
    ht_engine_wait(e, 0);
    for (int i = 0; i < n; i++) {
        check_answer(&a[i], "of mixed requests");
        assert_true(a[i].status == HT_OK || a[i].status == HT_ERR_CANCELLED);
        *n_cancelled_of += a[i].status == HT_ERR_CANCELLED;
    }
}

/* Requests of a recurrent model with little memory: long and short, some cancelled or refused on the way. */
UNIT_TEST(mixed_requests) {
    enum { AT_ONCE = 12 };
    const int n = test_cases(TEST_SLOW ? 40 : 120, 2000), m = RECURRENT;
    const size_t before = in_use(m), page = ht_cache_bytes(models[m], 256, 512);
    const ht_engine_options o = OPTIONS(ht_engine_options, with.sequences = 5, with.kv_bytes = 9 * page,
                                        with.prefix_bytes = 5 * page, with.step_tokens = 100);
    ht_engine *e = open_engine(m, &o);
    asked a[AT_ONCE] = {0};
    int under_way = 0, cancelled = 0;
    random_state = 63;
    for (int i = 0; i < n; i++) {
        a[under_way] = (asked){.q = &questions[m][draw(QUESTIONS)],
                               .refuse_at = draw(9) ? 0 : 1 + (int)draw(10),
                               .cancel_at = draw(9) ? 0 : 1 + (int)draw(10)};
        assert_works(submit, e, m, &a[under_way]);
        if (++under_way < AT_ONCE && i + 1 < n) continue;
        check_all(e, a, under_way, &cancelled);
        under_way = 0;
    }
    const ht_engine_statistics f = ht_engine_get_statistics(e);
    assert_true(f.reused_tokens > 0 && f.prefix_evicted > 0 && cancelled > 0);
    assert_int_equal(f.failed, 0);
    assert_int_equal(f.kv_bytes, f.prefix_bytes);
    ht_engine_close(e);
    assert_int_equal(in_use(m), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_as_alone),
        cmocka_unit_test(random_schedules),
        cmocka_unit_test(setting_back),
        cmocka_unit_test(answers_of_one_prompt),
        cmocka_unit_test(warming),
        cmocka_unit_test(refusals),
        cmocka_unit_test(steps_are_as_long_as_the_device_has_them),
        cmocka_unit_test(memory_ends_an_answer),
        cmocka_unit_test(a_nan_ends_its_request_alone),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(many_requests),
        cmocka_unit_test(mixed_requests),
    };
    return cmocka_run_group_tests(tests, make_questions, free_questions);
}
