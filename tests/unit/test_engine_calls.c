/* Calls of an engine and of its callbacks: slow readers hold up nobody, callbacks may submit, closing waits for calls, priorities;
 * beside sessions; texts and conversations. */
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
UNIT_TEST(slow_callbacks) {
    enum { SLOW = 5 };
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    ht_engine *e = open_engine(0, NULL);
    question q = questions[0][1];
    q.max_tokens = 30;
    const ht_generate_options o = options_of(&q);
    for (int i = 0; i < SLOW; i++) {
        const ht_request r = OPTIONS(ht_request, with.ids = q.ids, with.n_ids = q.n, with.options = &o,
                                     with.piece = wait_at_gate, with.user = &g);
        assert_works(ht_engine_submit, e, &r, NULL);
    }
    while (atomic_load(&g.blocked) < SLOW) sched_yield();
    asked a[QUESTIONS] = {0};
    for (int i = 0; i < QUESTIONS; i++) {
        a[i].q = &questions[0][i];
        assert_works(submit, e, 0, &a[i]);
    }
    for (int i = 0; i < QUESTIONS; i++) {
        ht_engine_wait(e, a[i].ticket);
        check_answer(&a[i], "beside slow readers");
    }
    assert_int_equal(g.blocked, SLOW);
    open_gate(&g);
    ht_engine_close(e);
}

/* The length of a prompt is told while its request lives, as it was submitted. */
UNIT_TEST(prompt_tokens) {
    enum { N = 3 };
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    ht_engine *e = open_engine(0, NULL);
    ht_ticket ticket[N];
    for (int i = 0; i < N; i++) {
        const question *q = &questions[0][i];
        const ht_generate_options o = options_of(q);
        const ht_request r = OPTIONS(ht_request, with.ids = q->ids, with.n_ids = q->n, with.options = &o,
                                     with.piece = wait_at_gate, with.user = &g);
        assert_int_equal(ht_engine_submit(e, &r, &ticket[i], NULL), HT_OK);
    }
    for (int i = 0; i < N; i++) assert_int_equal(ht_engine_prompt_tokens(e, ticket[i]), (int64_t)questions[0][i].n);
    assert_int_equal(ht_engine_prompt_tokens(e, 0), 0);
    open_gate(&g);
    for (int i = 0; i < N; i++) {
        ht_engine_wait(e, ticket[i]);
        assert_int_equal(ht_engine_prompt_tokens(e, ticket[i]), 0);
    }
    ht_engine_close(e);
}

static uint64_t rounds(ht_engine *e) {
    pthread_mutex_lock(&e->lock);
    const uint64_t n = e->round;
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* An answer that has ended by its deadline, and whose reader blocks, is nothing that the engine's thread looks after. */
UNIT_TEST(the_engine_sleeps_beside_a_blocked_reader) {
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

UNIT_TEST(submitting_from_callbacks) {
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
UNIT_TEST(closing_beside_calls) {
    for (int i = 0; i < test_cases(TEST_SLOW ? 12 : 30, 1000); i++) {
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

UNIT_TEST(closing_beside_callbacks) {
    const size_t before = in_use(0);
    for (int i = 0; i < test_cases(TEST_SLOW ? 40 : 100, 1000); i++) {
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
UNIT_TEST(priorities) {
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

UNIT_TEST(beside_sessions) {
    enum { THREADS = 4 };
    ht_engine *e = open_engine(0, NULL);
    asked a[QUESTIONS] = {0};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, generate_alone, &questions[0][3 + 2 * i]), 0);
    for (int i = 0; i < QUESTIONS; i++) {
        a[i].q = &questions[0][i];
        assert_works(submit, e, 0, &a[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        void *same;
        pthread_join(threads[i], &same);
        assert_non_null(same);
    }
    ht_engine_close(e); /* ends what is under way */
    for (int i = 0; i < QUESTIONS; i++) check_answer(&a[i], "beside sessions");
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

UNIT_TEST(texts_and_conversations) {
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
        assert_works(ht_engine_submit, e, &r, NULL);
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
        cmocka_unit_test(slow_callbacks),
        cmocka_unit_test(prompt_tokens),
        cmocka_unit_test(the_engine_sleeps_beside_a_blocked_reader),
        cmocka_unit_test(submitting_from_callbacks),
        cmocka_unit_test(closing_beside_calls),
        cmocka_unit_test(closing_beside_callbacks),
        cmocka_unit_test(priorities),
        cmocka_unit_test(beside_sessions),
        cmocka_unit_test(texts_and_conversations),
    };
    return cmocka_run_group_tests(tests, make_questions, free_questions);
}
