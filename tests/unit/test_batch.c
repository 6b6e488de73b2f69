/* Batches: the answers of single calls in the order of requests, whatever the window and the engine, and what ends them. */
#include "base/checked.h"
#include "models/model.h"
#include "support/adapters.h"
#include "support/chat.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 40, LONGEST = 120, TOKENS = 12, CONTEXT = 400 };

static ht_model *model;

static int load_model(void **state) {
    scratch_make();
    *state = model = tiny_load(&(tiny_options){.context = CONTEXT});
    return 0;
}

/* ---- requests ---- */

typedef struct question {
    int32_t ids[LONGEST];
    ht_sampler_options sampler;
    ht_generate_options options;
    ht_request request;
} question;

/* Sampled in their own ways; all begin with `shared` tokens of the same. */
static question *make_questions(int shared) {
    question *q = calloc(REQUESTS, sizeof *q);
    assert_non_null(q);
    for (int i = 0; i < REQUESTS; i++) {
        tiny_ids(q[i].ids, LONGEST, (uint64_t)i + 1);
        tiny_ids(q[i].ids, shared, 100);
        q[i].sampler = OPTIONS(ht_sampler_options, with.temperature = i % 3 ? 1 : 0, with.seed = (uint64_t)i);
        q[i].options = OPTIONS(ht_generate_options, with.max_tokens = 1 + i % TOKENS, with.sampler = &q[i].sampler,
                               with.ignore_eos = true);
        q[i].request = OPTIONS(ht_request, with.ids = q[i].ids, with.n_ids = (size_t)(shared + 1 + i % 20),
                               with.options = &q[i].options, with.n = i % 5 == 4 ? 3 : 1);
    }
    return q;
}

typedef struct text {
    char data[4096];
    size_t n;
} text;

static bool add_text(const char *piece, size_t n, void *user) {
    text *t = user;
    assert_true(t->n + n < sizeof t->data);
    memcpy(t->data + t->n, piece, n + 1);
    t->n += n;
    return true;
}

/* Answer `answer` of a request by itself. */
static int64_t answer_alone(const question *q, int32_t answer, ht_adapter *adapter, text *out, int32_t *token) {
    ht_session *s = tiny_session(model, 512);
    if (adapter) assert_int_equal(ht_session_set_adapters(s, &adapter, NULL, 1, NULL), HT_OK);
    ht_sampler_options sampler = q->sampler;
    ht_generate_options o = q->options;
    sampler.seed += (uint64_t)answer;
    o.sampler = &sampler;
    ht_metrics metrics;
    *out = (text){0};
    assert_int_equal(ht_generate(s, q->request.ids, q->request.n_ids, &o, add_text, out, &metrics, NULL), HT_OK);
    memcpy(token, ht_session_tokens(s) + q->request.n_ids, (size_t)metrics.generated_tokens * sizeof *token);
    ht_session_free(s);
    return metrics.generated_tokens;
}

typedef struct run {
    question *q;
    ht_adapter *adapter; /* of every request with an odd number */
    size_t next, handed_over, cancel_after, stop_after;
    ht_cancel cancel;
    int64_t most_apart; /* of `next` and `handed_over` */
    size_t cancelled, ended;
} run;

static ht_status give(size_t i, ht_request *request, void *user, ht_error *err) {
    run *r = user;
    (void)err;
    *request = r->q[i % REQUESTS].request;
    if (r->adapter && i % 2) {
        request->adapters = &r->adapter;
        request->n_adapters = 1;
    }
    if (i >= r->next) r->next = i + 1;
    if ((int64_t)(r->next - r->handed_over) > r->most_apart) r->most_apart = (int64_t)(r->next - r->handed_over);
    return HT_OK;
}

static bool check_answers(const ht_batch_result *result, void *user) {
    run *r = user;
    assert_int_equal(result->index, r->handed_over++);
    assert_int_equal(result->status, HT_OK);
    const question *q = &r->q[result->index % REQUESTS];
    assert_int_equal(result->n_answers, q->request.n);
    for (int32_t i = 0; i < result->n_answers; i++) {
        const ht_batch_answer *a = &result->answers[i];
        text alone;
        int32_t token[TOKENS];
        const int64_t n = answer_alone(q, i, result->index % 2 ? r->adapter : NULL, &alone, token);
        assert_int_equal(a->report->status, HT_OK);
        assert_int_equal(a->report->answer, i);
        assert_int_equal(a->report->metrics.generated_tokens, n);
        assert_memory_equal(a->report->token, token, (size_t)n * sizeof *token);
        assert_int_equal(a->n_text, alone.n);
        assert_string_equal(a->text, alone.data);
        assert_string_equal(a->thinking, "");
        assert_int_equal(a->n_calls, 0);
    }
    return true;
}

static void run_questions(int shared, const ht_engine_options *engine, int32_t window, ht_adapter *adapter) {
    run r = {.q = make_questions(shared), .adapter = adapter};
    const ht_batch_options o = OPTIONS(ht_batch_options, with.engine = engine, with.window = window, with.next = give);
    assert_works(ht_batch_generate, model, NULL, REQUESTS, &o, check_answers, &r);
    assert_int_equal(r.handed_over, REQUESTS);
    if (window) assert_true(r.most_apart <= ht_max_i64(window, 8)); /* the first eight are looked at beforehand */
    free(r.q);
}

UNIT_TEST(answers_of_single_calls) {
    run_questions(0, NULL, 0, NULL);
    run_questions(60, NULL, 0, NULL);
}

UNIT_TEST(small_windows_and_queues) {
    run_questions(0, NULL, 1, NULL);
    run_questions(30, NULL, 9, NULL);
    const ht_engine_options small = OPTIONS(ht_engine_options, with.sequences = 2, with.queue = 3);
    run_questions(30, &small, 20, NULL); /* submitting waits, as more would be busy */
}

UNIT_TEST(adapters_of_requests) {
    ht_adapter *adapter = test_adapter_for(model, 4, 1, 5);
    run_questions(40, NULL, 0, adapter);
    ht_adapter_free(adapter);
}

/* What the first requests have in common is computed once. */
static bool count_prompts(const ht_batch_result *result, void *user) {
    int64_t *computed = user;
    *computed += result->answers[0].report->metrics.prompt_tokens;
    return true;
}

UNIT_TEST(computes_what_is_shared_once) {
    question *q = make_questions(64);
    const ht_request *requests[REQUESTS];
    int64_t computed = 0, n = 0;
    for (int i = 0; i < REQUESTS; i++) {
        requests[i] = &q[i].request;
        q[i].request.n = 1;
        n += (int64_t)q[i].request.n_ids - 64;
    }
    assert_int_equal(ht_batch_generate(model, requests, REQUESTS, NULL, count_prompts, &computed, NULL), HT_OK);
    assert_true(computed <= n);
    free(q);
}

/* ---- conversations ---- */

static bool check_chat(const ht_batch_result *result, void *user) {
    (void)user;
    assert_int_equal(result->status, HT_OK);
    assert_int_equal(result->answers[0].report->status, HT_OK);
    assert_int_equal(result->answers[0].report->metrics.generated_tokens, 5);
    return true;
}

UNIT_TEST(conversations_and_texts) {
    ht_chat *chat = test_chat((test_message[]){{"user", "Why?"}}, 1);
    const ht_generate_options how = OPTIONS(ht_generate_options, with.max_tokens = 5, with.ignore_eos = true);
    const ht_request asked = OPTIONS(ht_request, with.chat = chat, with.options = &how),
                     read = OPTIONS(ht_request, with.text = "Once upon", with.options = &how);
    const ht_request *const requests[] = {&asked, &read};
    assert_int_equal(ht_batch_generate(model, requests, 2, NULL, check_chat, NULL, NULL), HT_OK);
    ht_chat_free(chat);
}

/* ---- failures ---- */

static ht_status give_bad(size_t i, ht_request *request, void *user, ht_error *err) {
    static int32_t ids[CONTEXT + 1];
    static const int32_t outside[] = {TINY_VOCAB};
    (void)user;
    request->ids = ids;
    request->n_ids = 3;
    switch (i) {
    case 1: request->n_ids = CONTEXT + 1; break;
    case 2: request->ids = outside, request->n_ids = 1; break;
    case 3: snprintf(err->message, sizeof err->message, "line 4 is torn"); return err->status = HT_ERR_FORMAT;
    case 4: request->n = 0; break;
    case 5: request->n = 1000; break; /* more than may wait */
    }
    return HT_OK;
}

static bool check_bad(const ht_batch_result *result, void *user) {
    static const ht_status wanted[] = {HT_OK,       HT_ERR_LIMIT, HT_ERR_ARGUMENT, HT_ERR_FORMAT, HT_ERR_ARGUMENT,
                                       HT_ERR_BUSY, HT_OK};
    size_t *n = user;
    assert_int_equal(result->index, (*n)++);
    assert_int_equal(result->status, wanted[result->index]);
    assert_int_equal(result->n_answers, result->status ? 0 : 1);
    if (result->index == 3) assert_string_equal(result->message, "line 4 is torn");
    if (result->status) assert_true(strlen(result->message) > 0);
    return true;
}

UNIT_TEST(failures_among_others) {
    size_t n = 0;
    const ht_batch_options o = OPTIONS(ht_batch_options, with.next = give_bad);
    assert_int_equal(ht_batch_generate(model, NULL, 7, &o, check_bad, &n, NULL), HT_OK);
    assert_int_equal(n, 7);
    assert_fails(HT_ERR_ARGUMENT, "", ht_batch_generate, model, NULL, 1, NULL, check_bad, &n);
    assert_works(ht_batch_generate, model, NULL, 0, NULL, check_bad, &n);
}

/* ---- ends ---- */

static bool count(const ht_batch_result *result, void *user) {
    run *r = user;
    assert_int_equal(result->index, r->handed_over++);
    for (int32_t i = 0; i < result->n_answers; i++) {
        const ht_batch_answer *a = &result->answers[i];
        r->cancelled += a->report->status == HT_ERR_CANCELLED;
        r->ended += a->report->status == HT_OK;
        assert_true(a->report->status == HT_OK || a->report->status == HT_ERR_CANCELLED);
        if (a->report->status) assert_true(strlen(a->report->message) > 0);
    }
    if (r->handed_over == r->cancel_after) ht_cancel_request(&r->cancel);
    return r->handed_over != r->stop_after;
}

UNIT_TEST(stopping_and_cancelling) {
    run r = {.q = make_questions(0), .cancel_after = 5};
    for (int i = 5; i < REQUESTS; i++) r.q[i].options.max_tokens = 300;
    ht_batch_options o = OPTIONS(ht_batch_options, with.next = give, with.cancel = &r.cancel, with.window = 16);
    assert_fails(HT_ERR_CANCELLED, "", ht_batch_generate, model, NULL, REQUESTS, &o, count, &r);
    assert_true(r.handed_over >= 5 && r.handed_over <= 5 + 16);
    assert_true(r.ended >= 5 && r.cancelled > 0);

    const size_t all = r.handed_over;
    r.handed_over = 0;
    assert_fails(HT_ERR_CANCELLED, "", ht_batch_generate, model, NULL, REQUESTS, &o, count, &r);
    assert_int_equal(r.handed_over, 0);
    assert_true(all > 0);

    o.cancel = NULL;
    r.stop_after = 3;
    assert_fails(HT_ERR_CANCELLED, "", ht_batch_generate, model, NULL, REQUESTS, &o, count, &r);
    assert_int_equal(r.handed_over, 3);
    free(r.q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_of_single_calls), cmocka_unit_test(small_windows_and_queues),
        cmocka_unit_test(adapters_of_requests),    cmocka_unit_test(computes_what_is_shared_once),
        cmocka_unit_test(conversations_and_texts), cmocka_unit_test(failures_among_others),
        cmocka_unit_test(stopping_and_cancelling),
    };
    return cmocka_run_group_tests(tests, load_model, tiny_teardown);
}
