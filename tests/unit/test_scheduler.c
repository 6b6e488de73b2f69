/* Steps that sequences share: company does not change bits, and what ends one leaves the others alone; slots; and generation
 * past a context that slides. */
#include "generate/session_internal.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6 };

/* ---- jobs ---- */

enum { JOBS = 5, LENGTH = 90 };

static ht_model *model;

static int load_model(void **state) {
    scratch_make();
    *state = model = tiny_load(&(tiny_options){.nan_token = 7});
    return 0;
}

typedef struct sequence {
    ht_session *s;
    int32_t ids[LENGTH];
    float alone[TINY_VOCAB], last[TINY_VOCAB];
} sequence;

static void open_sequence(sequence *q, uint64_t seed) {
    q->s = tiny_session(model, 64);
    tiny_ids(q->ids, LENGTH, seed);
    for (int i = 0; i < LENGTH; i++) q->ids[i] += q->ids[i] == 7; /* not the one whose embedding is no number */
    float *rows = tiny_rows(LENGTH);
    tiny_forward(q->s, q->ids, LENGTH, false, rows);
    memcpy(q->alone, rows + (LENGTH - 1) * TINY_VOCAB, sizeof q->alone);
    free(rows);
    ht_session_reset(q->s);
    assert_int_equal(ht_session_reserve_tokens(q->s, LENGTH, NULL), HT_OK);
    memcpy(q->s->token, q->ids, sizeof q->ids);
}

static ht_step_job *ask(sequence *q, int64_t end) {
    assert_int_equal(ht_session_prepare(q->s, end, LENGTH - 1, NULL), HT_OK);
    q->s->job.logits = q->last;
    return &q->s->job;
}

/* Prompts that one thread asks for, of different lengths, until all are done. */
UNIT_TEST(jobs_in_company) {
    sequence q[JOBS];
    ht_step_job *jobs[JOBS];
    for (int i = 0; i < JOBS; i++) open_sequence(&q[i], (uint64_t)i);
    const int64_t before = ht_scheduler_get_stats(model->scheduler).steps;
    for (int left = JOBS; left > 0;) {
        int n = 0;
        for (int i = 0; i < JOBS; i++)
            if (q[i].s->cache->length < LENGTH)
                jobs[n++] = ask(&q[i], LENGTH - 17 * i > q[i].s->cache->length ? LENGTH - 17 * i : LENGTH);
        left = n;
        if (n) ht_scheduler_run(model->scheduler, jobs, n);
        for (int i = 0; i < n; i++) {
            assert_int_equal(jobs[i]->status, HT_OK);
        }
    }
    const int64_t steps = ht_scheduler_get_stats(model->scheduler).steps - before;
    assert_true(steps < JOBS * 3); /* they went together: alone each takes two steps of at most 64 rows, and one more */
    for (int i = 0; i < JOBS; i++) {
        assert_memory_equal(q[i].last, q[i].alone, sizeof q->alone);
        ht_session_free(q[i].s);
    }
}

static ht_status refuse(void *user, const ht_logits_rows *logits, ht_error *err) {
    (void)user, (void)logits;
    if (err) snprintf(err->message, sizeof err->message, "refused");
    return HT_ERR_INTERNAL;
}

/* What one of them makes of its logits is its own affair. */
UNIT_TEST(one_fails_among_others) {
    sequence q[JOBS];
    ht_step_job *jobs[JOBS];
    for (int i = 0; i < JOBS; i++) {
        open_sequence(&q[i], (uint64_t)i);
        tiny_forward(q[i].s, q[i].ids, LENGTH - 1, false, NULL);
        jobs[i] = ask(&q[i], LENGTH);
    }
    jobs[2]->logits = NULL;
    jobs[2]->consume = refuse;
    ht_scheduler_run(model->scheduler, jobs, JOBS);
    assert_string_equal(jobs[2]->err.message, "refused");
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i]->status, i == 2 ? HT_ERR_INTERNAL : HT_OK);
        if (i != 2) assert_memory_equal(q[i].last, q[i].alone, sizeof q->alone);
        ht_session_free(q[i].s);
    }
}

/* A job that is cancelled while it waits ends and has computed nothing; the others go on, one of them in a step of its own. */
UNIT_TEST(cancelling_one_of_several) {
    sequence q[3];
    ht_cancel cancel = {0};
    ht_step_job *jobs[3];
    for (int i = 0; i < 3; i++) {
        open_sequence(&q[i], (uint64_t)i);
        tiny_forward(q[i].s, q[i].ids, LENGTH - 1, false, NULL);
        jobs[i] = ask(&q[i], LENGTH);
    }
    jobs[1]->cancel = &cancel;
    jobs[2]->alone = true;
    jobs[2]->logits = NULL;
    ht_cancel_request(&cancel);
    const int64_t before = ht_scheduler_get_stats(model->scheduler).steps;
    ht_scheduler_run(model->scheduler, jobs, 3);
    assert_int_equal(ht_scheduler_get_stats(model->scheduler).steps - before, 2);
    assert_int_equal(jobs[1]->status, HT_ERR_CANCELLED);
    assert_int_equal(q[1].s->cache->length, LENGTH - 1);
    assert_true(jobs[0]->status == HT_OK && jobs[2]->status == HT_OK);
    assert_memory_equal(q[0].last, q[0].alone, sizeof q->alone);
    assert_memory_equal(jobs[2]->output, q[2].alone, sizeof q->alone);
    ht_scheduler_return_output(model->scheduler, jobs[2]);
    for (int i = 0; i < 3; i++) ht_session_free(q[i].s);
}

/* ---- prefill budget ---- */

UNIT_TEST(pace_keeps_its_bound) {
    ht_prefill_budget p = {0};
    assert_int_equal(ht_prefill_budget_rows(&p, 2, 0, 512), 512); /* nobody is kept waiting */
    assert_true(ht_prefill_budget_rows(&p, 2, 1, 512) < 32);      /* nothing is known */
    /* A row of a prompt adds a hundredth of what a token takes, then, further on, a twentieth. */
    for (int cost = 100; cost >= 20; cost -= 80) {
        int64_t rows = 0;
        for (int i = 0; i < 40; i++) {
            ht_prefill_budget_learn(&p, 1, 0, 1);
            rows = ht_prefill_budget_rows(&p, 2, 1, 512);
            assert_true(rows >= 1);
            ht_prefill_budget_learn(&p, 1, rows, 1 + (double)rows / cost);
        }
        const double factor = 1 + (double)rows / cost;
        assert_true(factor > 1.5 && factor <= 2);
    }
    assert_true(ht_prefill_budget_rows(&p, 2, 40, 512) >= 1); /* more than was ever seen */
    /* Tokens take longer and longer: from time to time one is computed alone, and prompts get what it says. */
    int without = 0;
    for (int i = 0; i < 400; i++) {
        const double base = 1 + 0.002 * i;
        const int64_t rows = ht_prefill_budget_rows(&p, 2, 1, 512);
        without += rows == 0;
        ht_prefill_budget_learn(&p, 1, rows, base + (double)rows / 100);
        if (i > 200) assert_true(base + (double)rows / 100 <= 2 * base);
        if (i > 200 && rows) assert_true((double)rows / 100 > 0.4 * base);
    }
    assert_true(without >= 400 / 40 && without <= 400 / 20);
    assert_int_equal(ht_prefill_budget_rows(&p, 1, 1, 512), 512);
}

/* ---- sessions ---- */

enum { PROMPT = 20, TOKENS = 12 };

typedef struct conversation {
    ht_model *model;
    int32_t prompt[PROMPT], token[PROMPT + TOKENS];
    ht_status status;
} conversation;

static void *converse(void *user) {
    conversation *c = user;
    ht_error err = {0};
    ht_session *s = NULL;
    c->status = ht_session_new(c->model, NULL, &s, &err);
    ht_generate_options how = OPTIONS(ht_generate_options, with.max_tokens = TOKENS, with.ignore_eos = true);
    if (!c->status) c->status = ht_generate(s, c->prompt, PROMPT, &how, NULL, NULL, NULL, &err);
    if (!c->status) memcpy(c->token, ht_session_tokens(s), sizeof c->token);
    ht_session_free(s);
    return NULL;
}

UNIT_TEST(sessions_in_threads) {
    for (int32_t slots = 1; slots <= 4; slots *= 2) {
        ht_model_options o = OPTIONS(ht_model_options, with.slots = slots);
        ht_model *m;
        assert_works(ht_model_load, tiny_write(&(tiny_options){0}), &o, &m);
        assert_int_equal(ht_model_slots(m), slots);
        conversation c[THREADS];
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            c[i] = (conversation){.model = m};
            tiny_ids(c[i].prompt, PROMPT, (uint64_t)(i % 2)); /* two kinds */
            assert_int_equal(pthread_create(&threads[i], NULL, converse, &c[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(c[i].status, HT_OK);
            assert_memory_equal(c[i].token, c[i % 2].token, sizeof c->token);
        }
        ht_model_free(m);
    }
}

typedef struct nested {
    ht_session *other;
    int calls;
} nested;

static bool ask_another(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)logits, (void)first, (void)n_rows, (void)vocab;
    nested *n = user;
    n->calls += ht_session_forward(n->other, &(int32_t){5}, 1, NULL, NULL, NULL, NULL) == HT_OK;
    return true;
}

UNIT_TEST(call_within_a_call) {
    ht_model_options o = OPTIONS(ht_model_options, with.slots = 1);
    ht_model *m;
    ht_session *s;
    nested n = {0};
    assert_works(ht_model_load, tiny_write(&(tiny_options){0}), &o, &m);
    assert_works(ht_session_new, m, NULL, &s);
    assert_works(ht_session_new, m, NULL, &n.other);
    assert_works(ht_session_forward, s, (int32_t[]){1, 2, 3}, 3, NULL, ask_another, &n);
    assert_int_equal(n.calls, 1);
    ht_session_free(s);
    ht_session_free(n.other);
    ht_model_free(m);
}

/* ---- options ---- */

UNIT_TEST(options) {
    ht_error err = {0};
    const char *path = tiny_write(&(tiny_options){0});
    ht_model *m;
    for (int slots = 0; slots <= 3; slots++) {
        assert_int_equal(ht_model_load(path, OPTIONS_AT(ht_model_options, with.slots = slots), &m, &err), HT_OK);
        assert_int_equal(ht_model_slots(m), slots ? slots : 64);
        ht_model_free(m);
    }
    assert_int_equal(ht_model_load(path, OPTIONS_AT(ht_model_options, with.slots = -1), &m, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_model_load(path, &(ht_model_options){.slots = 1}, &m, &err), HT_ERR_ARGUMENT);
    assert_true(!m && strstr(err.message, "ht_model_options_init"));
    assert_int_equal(ht_model_load(path, OPTIONS_AT(ht_model_options, with.kv_dtype = HT_DTYPE_NONE), &m, &err),
                     HT_ERR_ARGUMENT);
}

/* ---- a context that slides ---- */

enum { CONTEXT = 64, LONG = 1500 };

static void slide(const ht_model_options *o, const int32_t *ids, int n, int32_t chunk, float *last, size_t *bytes) {
    ht_model *m;
    ht_session *s;
    /* One layer: keys and values depend on their own token alone, so what is forgotten leaves no trace. */
    assert_works(ht_model_load, "tests/golden/tiny/llama-llama3-q8_0.gguf", o, &m);
    assert_int_equal(ht_model_context(m), o->sliding ? INT32_MAX : CONTEXT);
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = chunk), &s);
    assert_works(ht_session_forward, s, ids, (size_t)n - 1, NULL, NULL, NULL);
    assert_works(ht_session_forward_together, &s, &ids[n - 1], 1, NULL, last);
    *bytes = ht_session_cache_bytes(s);
    ht_session_free(s);
    ht_model_free(m);
}

UNIT_TEST(sliding_context) {
    enum { VOCAB = 61 };
    int32_t ids[LONG];
    for (int i = 0; i < LONG; i++) ids[i] = (i * i + 7 * i) % VOCAB;
    float fresh[VOCAB], whole[VOCAB], pieces[VOCAB];
    size_t bytes, half;
    ht_model_options o = OPTIONS(ht_model_options, with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32,
                                 with.context = CONTEXT, with.sliding = true);
    slide(&o, ids, LONG, 512, whole, &bytes);
    slide(&o, ids, LONG, 7, pieces, &bytes);
    assert_memory_equal(whole, pieces, sizeof whole);
    slide(&o, ids, LONG / 2, 7, pieces, &half);
    assert_true(half == bytes); /* the cache does not grow any more */
    slide(&o, ids + LONG - CONTEXT, CONTEXT, 512, pieces, &bytes);
    o.sliding = false;
    slide(&o, ids + LONG - CONTEXT, CONTEXT, 512, fresh, &bytes);
    assert_memory_equal(pieces, fresh, sizeof fresh); /* before the context is full there is no difference */
    double worst = 0, spread = 0;
    for (int i = 0; i < VOCAB; i++) {
        worst = fmax(worst, fabs((double)whole[i] - (double)fresh[i]));
        spread = fmax(spread, fabs((double)fresh[i]));
    }
    print_message("after %d tokens: off by %g from the last %d alone, logits up to %g\n", LONG, worst, CONTEXT, spread);
    assert_true(worst < 1e-3 * spread);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(jobs_in_company, load_model, tiny_teardown),
        cmocka_unit_test_setup_teardown(one_fails_among_others, load_model, tiny_teardown),
        cmocka_unit_test_setup_teardown(cancelling_one_of_several, load_model, tiny_teardown),
        cmocka_unit_test(pace_keeps_its_bound),
        cmocka_unit_test_setup_teardown(sessions_in_threads, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(call_within_a_call, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(options, scratch_start, scratch_finish),
        cmocka_unit_test(sliding_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
