/* The engine: every answer has the bits it has alone, whatever comes, goes, is set back or shared beside it; what ends one
 * request leaves the others alone; nothing is left behind. */
#include "generate/engine_internal.h"
#include "generate/session_internal.h"
#include "support/adapters.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MODELS = 2, QUESTIONS = 14, MOST_TOKENS = 40, MOST_PROMPT = 700, WINDOW = 300, NAN_TOKEN = 7 };

static ht_model *models[N_MODELS]; /* of one whose cache grows, and of one that slides */
static ht_adapter *adapters[N_MODELS];

/* A question with the answer that a session alone gives. */
typedef struct question {
    int32_t ids[MOST_PROMPT];
    size_t n;
    bool adapted;
    ht_sampler_options sampler;
    int32_t max_tokens;
    int32_t answer[MOST_TOKENS];
    int64_t n_answer;
} question;
static question questions[N_MODELS][QUESTIONS];

static ht_generate_options options_of(const question *q) {
    ht_generate_options o = DEFAULTS(ht_generate_options);
    o.max_tokens = q->max_tokens;
    o.ignore_eos = true;
    o.sampler = &q->sampler;
    return o;
}

static void answer_alone(int model, question *q) {
    ht_error err = {0};
    ht_session *s = tiny_session(models[model], 512);
    if (q->adapted) assert_int_equal(ht_session_set_adapters(s, &adapters[model], NULL, 1, &err), HT_OK);
    const ht_generate_options o = options_of(q);
    if (ht_generate(s, q->ids, q->n, &o, NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    q->n_answer = ht_session_length(s) - (int64_t)q->n;
    memcpy(q->answer, ht_session_tokens(s) + q->n, (size_t)q->n_answer * sizeof *q->answer);
    ht_session_free(s);
}

/* Prompts of which some begin alike, at pages and within them. */
static void make_questions(int model) {
    static const int lengths[QUESTIONS] = {1, 20, 300, 300, 310, 520, 600, 40, 700, 256, 257, 64, 513, 30};
    int32_t common[MOST_PROMPT];
    tiny_ids(common, MOST_PROMPT, 1);
    for (int i = 0; i < MOST_PROMPT; i++) common[i] += common[i] == NAN_TOKEN;
    for (int i = 0; i < QUESTIONS; i++) {
        question *q = &questions[model][i];
        const int shared = i % 3 == 2 ? 0 : lengths[i] * (i % 4) / 4;
        q->n = (size_t)lengths[i];
        tiny_ids(q->ids, lengths[i], (uint64_t)(100 + i));
        for (int k = 0; k < lengths[i]; k++) q->ids[k] += q->ids[k] == NAN_TOKEN;
        memcpy(q->ids, common, (size_t)shared * sizeof *common);
        q->adapted = i % 5 == 4;
        q->sampler = OPTIONS(ht_sampler_options, with.temperature = i % 2 ? 0.9f : 0, with.top_k = i % 3 ? 0 : 20,
                             with.repeat_penalty = i % 4 ? 1 : 1.2f, with.seed = (uint64_t)i);
        q->max_tokens = 1 + i * 37 % MOST_TOKENS;
        answer_alone(model, q);
    }
}

static int setup(void **state) {
    (void)state;
    scratch_make();
    models[0] = tiny_load(&(tiny_options){.nan_token = NAN_TOKEN});
    models[1] = tiny_load(&(tiny_options){.window = WINDOW, .type = HT_W_Q8_0});
    for (int m = 0; m < N_MODELS; m++) {
        adapters[m] = test_adapter_for(models[m], 4, 2, 11);
        make_questions(m);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        ht_adapter_free(adapters[m]);
        ht_model_free(models[m]);
    }
    scratch_remove();
    return 0;
}

/* ---- requests of the tests ---- */

typedef struct asked {
    const question *q;
    ht_engine *engine;
    ht_ticket ticket;
    _Atomic int pieces, ends;
    int refuse_at, cancel_at; /* pieces; 0: never */
    ht_status status;
    ht_metrics metrics;
    ht_reuse reuse;
    int32_t set_back;
    int32_t token[MOST_TOKENS];
    char message[200];
    bool wrong; /* a callback found so: it cannot fail the test on a thread of the engine's */
} asked;

static bool on_piece(const ht_answer_piece *piece, int32_t answer, void *user) {
    asked *a = user;
    (void)answer;
    if (piece->part != HT_ANSWER_TEXT || piece->text[piece->n] || !piece->n || a->ends) a->wrong = true;
    const int n = atomic_fetch_add(&a->pieces, 1) + 1;
    if (n == a->cancel_at) ht_engine_cancel(a->engine, a->ticket);
    return n != a->refuse_at;
}

static void on_end(const ht_answer_report *report, void *user) {
    asked *a = user;
    a->status = report->status;
    a->metrics = report->metrics;
    a->reuse = report->reuse;
    a->set_back = report->set_back;
    snprintf(a->message, sizeof a->message, "%s", report->message);
    if (report->metrics.generated_tokens > MOST_TOKENS)
        a->wrong = true;
    else if (report->token)
        memcpy(a->token, report->token, (size_t)report->metrics.generated_tokens * sizeof *a->token);
    atomic_fetch_add(&a->ends, 1);
}

static ht_request request_for(asked *a, int model, const ht_generate_options *o) {
    return OPTIONS(ht_request, with.ids = a->q->ids, with.n_ids = a->q->n, with.options = o,
                   with.adapters = &adapters[model], with.n_adapters = a->q->adapted, with.piece = on_piece,
                   with.end = on_end, with.user = a);
}

/* The ticket is written before any callback may read it: submitting and the first piece are on different threads. */
static ht_status submit(ht_engine *e, int model, asked *a, ht_error *err) {
    const ht_generate_options o = options_of(a->q);
    const ht_request r = request_for(a, model, &o);
    a->engine = e;
    return ht_engine_submit(e, &r, &a->ticket, err);
}

/* What was handed over is what the session alone gave, or its beginning when it was ended early. */
static void check_answer(const asked *a, const char *when) {
    const int64_t n = a->metrics.generated_tokens;
    assert_int_equal(a->ends, 1);
    assert_false(a->wrong);
    if (n > a->q->n_answer || memcmp(a->token, a->q->answer, (size_t)n * sizeof *a->token) != 0)
        fail_msg("%s: %lld tokens that are not those of the session alone (%s)", when, (long long)n, a->message);
    if (a->status == HT_OK && a->metrics.finish != HT_FINISH_CALLBACK) assert_int_equal(n, a->q->n_answer);
    if (a->status == HT_OK) assert_int_equal(a->reuse.reused + a->metrics.prompt_tokens, a->q->n);
}

static ht_engine *open_engine(int model, const ht_engine_options *o) {
    ht_error err = {0};
    ht_engine *e;
    if (ht_engine_open(models[model], o, &e, &err)) fail_msg("%s", err.message);
    return e;
}

/* ---- bits ---- */

static void answers_are_as_alone(void **state) {
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        ht_engine *e = open_engine(m, NULL);
        for (int again = 0; again < 2; again++) {
            asked a[QUESTIONS] = {0};
            ht_error err = {0};
            for (int i = 0; i < QUESTIONS; i++) {
                a[i].q = &questions[m][i];
                if (submit(e, m, &a[i], &err)) fail_msg("%s", err.message);
            }
            ht_engine_wait(e, 0);
            for (int i = 0; i < QUESTIONS; i++) {
                check_answer(&a[i], again ? "again" : "at first");
                assert_int_equal(a[i].status, HT_OK);
                if (again && a[i].q->n > 20) assert_true(a[i].reuse.reused > 0);
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

/* Memory of the device that is in use, in bytes. */
static size_t in_use(int model) { return ht_memory_get(models[model]->device).active_bytes; }

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
                with.prefix_bytes = draw(4) ? SIZE_MAX : draw(2) * page * 2, with.pace = 1 + draw(3));
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

static void random_schedules(void **state) {
    (void)state;
    for (int i = 0; i < test_cases(TEST_SLOW ? 10 : 40, 1000); i++) run_schedule(i);
}

/* Several requests that do not fit at once, each of which does. */
static void setting_back(void **state) {
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        const size_t page = ht_cache_bytes(models[m], 256, 512);
        ht_engine *e = open_engine(m, OPTIONS_AT(ht_engine_options, with.kv_bytes = 3 * page));
        asked a[6] = {0};
        ht_error err = {0};
        for (int i = 0; i < 6; i++) {
            a[i].q = &questions[m][i % 2 ? 9 : 2]; /* of 256 and 300 tokens, and more to come */
            if (submit(e, m, &a[i], &err)) fail_msg("%s", err.message);
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
    on_end(report, &all[report->answer]);
}

/* Several answers share their prompt, and answer i is that of seed + i. */
static void answers_of_one_prompt(void **state) {
    (void)state;
    enum { N = 5 };
    for (int m = 0; m < N_MODELS; m++)
        for (int cached = 0; cached < 2; cached++) {
            question alone[N];
            asked a[N] = {0};
            ht_error err = {0};
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
            if (ht_engine_submit(e, &r, NULL, &err)) fail_msg("%s", err.message);
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

static void warming(void **state) {
    (void)state;
    ht_engine *e = open_engine(0, NULL);
    ht_error err = {0};
    ht_reuse reuse;
    const question *q = &questions[0][6];
    const ht_request r = OPTIONS(ht_request, with.ids = q->ids, with.n_ids = 500);
    assert_int_equal(ht_engine_warm(e, &r, &reuse, &err), HT_OK);
    assert_int_equal(reuse.computed, 500);
    assert_int_equal(reuse.end, HT_REUSE_NEW);
    asked a = {.q = q};
    assert_int_equal(submit(e, 0, &a, &err), HT_OK);
    ht_engine_wait(e, a.ticket);
    check_answer(&a, "after warming");
    assert_int_equal(a.reuse.reused, 500);
    assert_int_equal(a.reuse.end, HT_REUSE_ENDS);
    ht_engine_close(e);
}

/* ---- one request's affairs ---- */

static void refusals(void **state) {
    (void)state;
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
    assert_int_equal(ht_engine_submit(e, &r, &ticket, &err), HT_ERR_BUSY);
    assert_non_null(strstr(err.message, "2 may wait"));
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
}

/* Answers end with LENGTH where the engine's memory does. */
static void memory_ends_an_answer(void **state) {
    (void)state;
    const size_t page = ht_cache_bytes(models[0], 256, 512);
    ht_engine *e = open_engine(0, OPTIONS_AT(ht_engine_options, with.kv_bytes = page));
    ht_error err = {0};
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
    assert_int_equal(ht_engine_submit(e, &r, &a.ticket, &err), HT_OK);
    ht_engine_wait(e, 0);
    assert_int_equal(a.status, HT_OK);
    assert_int_equal(a.metrics.finish, HT_FINISH_LENGTH);
    assert_int_equal(a.metrics.generated_tokens, 6);
    ht_engine_close(e);
}

static void a_nan_ends_its_request_alone(void **state) {
    (void)state;
    ht_engine *e = open_engine(0, NULL);
    ht_error err = {0};
    question bad = questions[0][1];
    bad.ids[bad.n - 1] = NAN_TOKEN;
    asked a[3] = {{.q = &questions[0][2]}, {.q = &bad}, {.q = &questions[0][3]}};
    for (int i = 0; i < 3; i++) assert_int_equal(submit(e, 0, &a[i], &err), HT_OK);
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

/* Of work for minutes, some is done; of what waits when its time has passed, nothing. */
static void deadlines(void **state) {
    (void)state;
    enum { N = 200 };
    ht_engine *e = open_engine(0, OPTIONS_AT(ht_engine_options, with.sequences = 1));
    ht_error err = {0};
    question q = questions[0][1];
    q.max_tokens = 3000;
    late first = {0}, second = {0};
    const ht_generate_options o = options_of(&q);
    ht_request r = OPTIONS(ht_request, with.ids = q.ids, with.n_ids = q.n, with.options = &o, with.n = N,
                           with.deadline = 0.2, with.end = note_late, with.user = &first);
    assert_int_equal(ht_engine_submit(e, &r, NULL, &err), HT_OK);
    r.user = &second;
    r.n = 1;
    r.deadline = 1e-6;
    assert_int_equal(ht_engine_submit(e, &r, NULL, &err), HT_OK);
    ht_engine_wait(e, 0);
    assert_int_equal(first.ends, N);
    assert_true(first.cancelled > 0 && first.generated > 0);
    assert_non_null(strstr(first.message, "the deadline of 0.2 seconds has passed"));
    assert_true(second.ends == 1 && second.cancelled == 1 && second.generated == 0);
    ht_engine_close(e);
}

/* ---- callbacks ---- */

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
    _Atomic int blocked;
} gate;

static bool wait_at_gate(const ht_answer_piece *piece, int32_t answer, void *user) {
    gate *g = user;
    (void)piece, (void)answer;
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->blocked, 1);
    while (!g->open) pthread_cond_wait(&g->opened, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return true;
}

static void open_gate(gate *g) {
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->opened);
    pthread_mutex_unlock(&g->lock);
}

/* Readers that block for good hold up nobody: the others are answered meanwhile. */
static void slow_callbacks(void **state) {
    (void)state;
    enum { SLOW = 5 };
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    ht_engine *e = open_engine(0, NULL);
    ht_error err = {0};
    question q = questions[0][1];
    q.max_tokens = 30;
    const ht_generate_options o = options_of(&q);
    for (int i = 0; i < SLOW; i++) {
        const ht_request r = OPTIONS(ht_request, with.ids = q.ids, with.n_ids = q.n, with.options = &o,
                                     with.piece = wait_at_gate, with.user = &g);
        assert_int_equal(ht_engine_submit(e, &r, NULL, &err), HT_OK);
    }
    while (atomic_load(&g.blocked) < SLOW) sched_yield();
    asked a[QUESTIONS] = {0};
    for (int i = 0; i < QUESTIONS; i++) {
        a[i].q = &questions[0][i];
        assert_int_equal(submit(e, 0, &a[i], &err), HT_OK);
    }
    for (int i = 0; i < QUESTIONS; i++) {
        ht_engine_wait(e, a[i].ticket);
        check_answer(&a[i], "beside slow readers");
    }
    assert_int_equal(g.blocked, SLOW);
    open_gate(&g);
    ht_engine_close(e);
}

static uint64_t rounds(ht_engine *e) {
    pthread_mutex_lock(&e->lock);
    const uint64_t n = e->round;
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* An answer that has ended by its deadline, and whose reader blocks, is nothing that the engine's thread looks after. */
static void the_engine_sleeps_beside_a_blocked_reader(void **state) {
    (void)state;
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    ht_engine *e = open_engine(1, OPTIONS_AT(ht_engine_options, with.sequences = 1));
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 3000, with.ignore_eos = true);
    const ht_request r = OPTIONS(ht_request, with.text = "hello", with.options = &o, with.n = 100, with.deadline = 0.02,
                                 with.piece = wait_at_gate, with.user = &g);
    assert_int_equal(ht_engine_submit(e, &r, NULL, NULL), HT_OK);
    while (ht_engine_get_statistics(e).cancelled == 0 || ht_engine_get_statistics(e).running > 0) sched_yield();
    const uint64_t before = rounds(e);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    assert_true(rounds(e) - before < 100); /* one that does not sleep makes thousands */
    open_gate(&g);
    ht_engine_close(e);
}

typedef struct chain {
    ht_engine *engine;
    const question *q;
    _Atomic int left;
} chain;

/* A callback may submit. */
static void submit_another(const ht_answer_report *report, void *user) {
    chain *c = user;
    if (report->status) return; /* the count then stays, and the test does not end well */
    if (atomic_fetch_sub(&c->left, 1) <= 1) return;
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 2);
    const ht_request r = OPTIONS(ht_request, with.ids = c->q->ids, with.n_ids = c->q->n, with.end = submit_another,
                                 with.user = c, with.options = &o);
    (void)ht_engine_submit(c->engine, &r, NULL, NULL);
}

static void submitting_from_callbacks(void **state) {
    (void)state;
    ht_engine *e = open_engine(0, NULL);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 2);
    chain c = {.engine = e, .q = &questions[0][7], .left = 20};
    const ht_request r = OPTIONS(ht_request, with.ids = c.q->ids, with.n_ids = c.q->n, with.end = submit_another,
                                 with.user = &c, with.options = &o);
    assert_int_equal(ht_engine_submit(e, &r, NULL, NULL), HT_OK);
    while (atomic_load(&c.left) > 0 && ht_engine_get_statistics(e).failed == 0) sched_yield();
    ht_engine_wait(e, 0);
    assert_int_equal(ht_engine_get_statistics(e).ended, 20);
    ht_engine_close(e);
}

/* ---- closing beside other calls ---- */

enum { CALLERS = 4 };
typedef struct caller {
    ht_engine *engine;
    ht_ticket ticket; /* 0: warms */
    ht_status status;
    _Atomic int *done;
} caller;

static void *call_engine(void *user) {
    caller *c = user;
    const ht_request r = OPTIONS(ht_request, with.ids = questions[1][8].ids, with.n_ids = questions[1][8].n);
    if (c->ticket)
        ht_engine_wait(c->engine, c->ticket);
    else
        c->status = ht_engine_warm(c->engine, &r, NULL, NULL);
    atomic_fetch_add(c->done, 1);
    return NULL;
}

/* Whether all callers are in the engine, or have been. */
static bool have_called(ht_engine *e, _Atomic int *done) {
    const int before = atomic_load(done);
    pthread_mutex_lock(&e->lock);
    const int inside = e->n_calls;
    pthread_mutex_unlock(&e->lock);
    return before + inside == CALLERS;
}

/* Those that wait in an engine which is closed come out of it. */
static void closing_beside_calls(void **state) {
    (void)state;
    for (int i = 0; i < test_cases(30, 1000); i++) {
        ht_engine *e = open_engine(1, OPTIONS_AT(ht_engine_options, with.sequences = 1 + i % 3, with.step_tokens = 16));
        const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 3000, with.ignore_eos = true);
        const ht_request r = OPTIONS(ht_request, with.text = "hello", with.options = &o, with.n = 100);
        ht_ticket ticket;
        _Atomic int done = 0;
        caller callers[CALLERS];
        pthread_t threads[CALLERS];
        assert_int_equal(ht_engine_submit(e, &r, &ticket, NULL), HT_OK);
        for (int k = 0; k < CALLERS; k++) {
            callers[k] = (caller){.engine = e, .ticket = k % 2 ? ticket : 0, .done = &done};
            assert_int_equal(pthread_create(&threads[k], NULL, call_engine, &callers[k]), 0);
        }
        while (!have_called(e, &done)) sched_yield();
        ht_engine_close(e);
        for (int k = 0; k < CALLERS; k++) pthread_join(threads[k], NULL);
        for (int k = 0; k < CALLERS; k += 2)
            assert_true(callers[k].status == HT_OK || callers[k].status == HT_ERR_CANCELLED);
    }
}

typedef struct persistent {
    ht_engine *engine;
    _Atomic int ends, submitted;
    _Atomic bool other;
} persistent;

/* Submits another at every end, until that is refused. */
static void submit_always(const ht_answer_report *report, void *user) {
    persistent *p = user;
    if (report->status != HT_OK && report->status != HT_ERR_CANCELLED) p->other = true;
    p->ends++;
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 2);
    const ht_request r = OPTIONS(ht_request, with.ids = questions[0][7].ids, with.n_ids = questions[0][7].n,
                                 with.end = submit_always, with.user = p, with.options = &o);
    ht_error err = {0};
    const ht_status status = ht_engine_submit(p->engine, &r, NULL, &err);
    p->submitted += status == HT_OK;
    if (status && status != HT_ERR_CANCELLED) p->other = true;
}

static void closing_beside_callbacks(void **state) {
    (void)state;
    const size_t before = in_use(0);
    for (int i = 0; i < test_cases(100, 1000); i++) {
        persistent p = {.engine = open_engine(0, NULL)};
        const ht_request r = OPTIONS(ht_request, with.ids = questions[0][7].ids, with.n_ids = 2,
                                     with.end = submit_always, with.user = &p);
        for (int k = 0; k < 1 + i % 8; k++) p.submitted += ht_engine_submit(p.engine, &r, NULL, NULL) == HT_OK;
        for (int pause = i * 37 % 40; pause > 0; pause--) sched_yield();
        ht_engine_close(p.engine);
        assert_false(p.other);
        assert_int_equal(p.ends, p.submitted);
    }
    assert_int_equal(in_use(0), before);
}

typedef struct order {
    int number[8];
    _Atomic int n;
} order;
typedef struct numbered {
    order *in;
    int number;
} numbered;

static void note_end(const ht_answer_report *report, void *user) {
    const numbered *n = user;
    (void)report;
    n->in->number[atomic_fetch_add(&n->in->n, 1)] = n->number;
}

/* The highest priority first, and of these the first. They are long, so that one has ended, and said so, well before the next. */
static void priorities(void **state) {
    (void)state;
    enum { N = 4, LONG = 1200 };
    static const int32_t priority[N] = {0, 3, -1, 3};
    static const int expected[N] = {1, 3, 0, 2};
    ht_engine *e = open_engine(0, OPTIONS_AT(ht_engine_options, with.sequences = 1));
    order in = {0};
    numbered n[N];
    ht_ticket first;
    const question *q = &questions[0][1];
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = LONG, with.ignore_eos = true);
    ht_request r = OPTIONS(ht_request, with.ids = q->ids, with.n_ids = q->n, with.options = &o, with.n = 200);
    assert_int_equal(ht_engine_submit(e, &r, &first, NULL), HT_OK); /* takes the place until all others wait */
    while (ht_engine_get_statistics(e).running == 0) sched_yield();
    r.n = 1;
    r.end = note_end;
    for (int i = 0; i < N; i++) {
        n[i] = (numbered){&in, i};
        r.user = &n[i];
        r.priority = priority[i];
        assert_int_equal(ht_engine_submit(e, &r, NULL, NULL), HT_OK);
    }
    ht_engine_cancel(e, first);
    ht_engine_wait(e, 0);
    assert_memory_equal(in.number, expected, sizeof expected);
    ht_engine_close(e);
}

/* Sessions and an engine on one model, at once. */
static void *generate_alone(void *user) {
    const question *q = user;
    ht_session *s = tiny_session(models[0], 64);
    const ht_generate_options o = options_of(q);
    ht_error err = {0};
    if (q->adapted) (void)ht_session_set_adapters(s, &adapters[0], NULL, 1, &err);
    bool same = ht_generate(s, q->ids, q->n, &o, NULL, NULL, NULL, &err) == HT_OK;
    same = same && memcmp(ht_session_tokens(s) + q->n, q->answer, (size_t)q->n_answer * sizeof *q->answer) == 0;
    ht_session_free(s);
    return same ? user : NULL;
}

static void beside_sessions(void **state) {
    (void)state;
    enum { THREADS = 4 };
    ht_engine *e = open_engine(0, NULL);
    asked a[QUESTIONS] = {0};
    pthread_t threads[THREADS];
    ht_error err = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, generate_alone, &questions[0][3 + 2 * i]), 0);
    for (int i = 0; i < QUESTIONS; i++) {
        a[i].q = &questions[0][i];
        assert_int_equal(submit(e, 0, &a[i], &err), HT_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        void *same;
        pthread_join(threads[i], &same);
        assert_non_null(same);
    }
    ht_engine_close(e); /* ends what is under way */
    for (int i = 0; i < QUESTIONS; i++) check_answer(&a[i], "beside sessions");
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
static void many_requests(void **state) {
    (void)state;
    const int n = test_cases(200, 20000);
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

/* ---- text and conversations ---- */

typedef struct text {
    char bytes[4096];
    size_t n;
    ht_status status;
} text;

static bool add_text(const ht_answer_piece *piece, int32_t answer, void *user) {
    text *t = user;
    (void)answer;
    if (piece->part == HT_ANSWER_CALL) return true;
    memcpy(t->bytes + t->n, piece->text, piece->n + 1);
    t->n += piece->n;
    return true;
}

static bool add_piece(const ht_answer_piece *piece, void *user) { return add_text(piece, 0, user); }

static bool add_plain(const char *bytes, size_t n, void *user) {
    return add_text(&(ht_answer_piece){.part = HT_ANSWER_TEXT, .text = bytes, .n = n}, 0, user);
}

static void end_text(const ht_answer_report *report, void *user) { ((text *)user)->status = report->status; }

static void texts_and_conversations(void **state) {
    (void)state;
    ht_error err = {0};
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 40, with.ignore_eos = true);
    text alone[2] = {0}, together[2] = {0};
    ht_chat *chat;
    assert_int_equal(ht_chat_new(&chat, &err), HT_OK);
    assert_int_equal(ht_chat_add(chat, "user", "Hello there", &err), HT_OK);
    for (int i = 0; i < 2; i++) {
        ht_session *s = tiny_session(models[0], 512);
        const ht_status status = i ? ht_generate_chat(s, chat, &o, add_piece, &alone[i], NULL, &err)
                                   : ht_generate_text(s, "Once upon a time", &o, add_plain, &alone[i], NULL, &err);
        if (status) fail_msg("%s", err.message);
        ht_session_free(s);
    }
    ht_engine *e = open_engine(0, NULL);
    for (int i = 0; i < 2; i++) {
        ht_request r = OPTIONS(ht_request, with.options = &o, with.piece = add_text, with.end = end_text,
                               with.user = &together[i]);
        if (i)
            r.chat = chat;
        else
            r.text = "Once upon a time";
        if (ht_engine_submit(e, &r, NULL, &err)) fail_msg("%s", err.message);
    }
    ht_chat_free(chat); /* the engine has a hold on it */
    ht_engine_wait(e, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(together[i].status, HT_OK);
        assert_true(alone[i].n > 0);
        assert_string_equal(together[i].bytes, alone[i].bytes);
    }
    ht_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_as_alone),
        cmocka_unit_test(random_schedules),
        cmocka_unit_test(setting_back),
        cmocka_unit_test(answers_of_one_prompt),
        cmocka_unit_test(warming),
        cmocka_unit_test(refusals),
        cmocka_unit_test(memory_ends_an_answer),
        cmocka_unit_test(a_nan_ends_its_request_alone),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(slow_callbacks),
        cmocka_unit_test(the_engine_sleeps_beside_a_blocked_reader),
        cmocka_unit_test(submitting_from_callbacks),
        cmocka_unit_test(closing_beside_calls),
        cmocka_unit_test(closing_beside_callbacks),
        cmocka_unit_test(priorities),
        cmocka_unit_test(beside_sessions),
        cmocka_unit_test(many_requests),
        cmocka_unit_test(texts_and_conversations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
