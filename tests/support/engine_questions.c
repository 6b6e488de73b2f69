#include "support/engine_questions.h"

#include "models/model.h"
#include "support/adapters.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

ht_model *models[N_MODELS];
ht_adapter *adapters[N_MODELS];
question questions[N_MODELS][QUESTIONS];

ht_generate_options options_of(const question *q) {
    ht_generate_options o = DEFAULTS(ht_generate_options);
    o.max_tokens = q->max_tokens;
    o.ignore_eos = true;
    o.sampler = &q->sampler;
    return o;
}

void answer_alone(int model, question *q) {
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
static void make_some(int model) {
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
        for (int k = 60; k < lengths[i] && model == RECURRENT; k += 90) q->ids[k] = TINY_IM_END;
        q->adapted = i % 5 == 4;
        q->sampler = OPTIONS(ht_sampler_options, with.temperature = i % 2 ? 0.9f : 0, with.top_k = i % 3 ? 0 : 20,
                             with.repeat_penalty = i % 4 ? 1 : 1.2f, with.seed = (uint64_t)i,
                             with.presence_penalty = i % 7 == 2 ? 0.8f : 0,
                             with.frequency_penalty = i % 7 == 2 ? 0.3f
                                                      : i == 11  ? -0.2f
                                                                 : 0);
        q->max_tokens = 1 + i * 37 % MOST_TOKENS;
        answer_alone(model, q);
    }
}

int make_questions(void **state) {
    (void)state;
    scratch_make();
    models[0] = tiny_load(&(tiny_options){.nan_token = NAN_TOKEN});
    models[1] = tiny_load(&(tiny_options){.window = WINDOW, .type = HT_W_Q8_0});
    models[RECURRENT] = tiny_load(&(tiny_options){.recurrent = true, .type = HT_W_Q8_0});
    for (int m = 0; m < N_MODELS; m++) {
        adapters[m] = test_adapter_for(models[m], 4, 2, 11);
        make_some(m);
    }
    return 0;
}

int free_questions(void **state) {
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        ht_adapter_free(adapters[m]);
        ht_model_free(models[m]);
    }
    scratch_remove();
    return 0;
}

static bool on_piece(const ht_answer_piece *piece, int32_t answer, void *user) {
    asked *a = user;
    (void)answer;
    if (piece->part != HT_ANSWER_TEXT || piece->text[piece->n] || !piece->n || a->ends) a->wrong = true;
    const int n = atomic_fetch_add(&a->pieces, 1) + 1;
    if (n == a->cancel_at) ht_engine_cancel(a->engine, a->ticket);
    return n != a->refuse_at;
}

void note_answer(const ht_answer_report *report, void *user) {
    asked *a = user;
    a->status = report->status;
    a->metrics = report->metrics;
    a->reuse = report->reuse;
    a->preempted = report->preempted;
    snprintf(a->message, sizeof a->message, "%s", report->message);
    if (report->metrics.generated_tokens > MOST_TOKENS)
        a->wrong = true;
    else if (report->token)
        memcpy(a->token, report->token, (size_t)report->metrics.generated_tokens * sizeof *a->token);
    atomic_fetch_add(&a->ends, 1);
}

ht_request request_for(asked *a, int model, const ht_generate_options *o) {
    return OPTIONS(ht_request, with.ids = a->q->ids, with.n_ids = a->q->n, with.options = o,
                   with.adapters = &adapters[model], with.n_adapters = a->q->adapted, with.piece = on_piece,
                   with.end = note_answer, with.user = a);
}

ht_status submit(ht_engine *e, int model, asked *a, ht_error *err) {
    const ht_generate_options o = options_of(a->q);
    const ht_request r = request_for(a, model, &o);
    a->engine = e;
    return ht_engine_submit(e, &r, &a->ticket, err);
}

void check_answer(const asked *a, const char *when) {
    const int64_t n = a->metrics.generated_tokens;
    assert_int_equal(a->ends, 1);
    assert_false(a->wrong);
    if (n > a->q->n_answer || memcmp(a->token, a->q->answer, (size_t)n * sizeof *a->token) != 0)
        fail_msg("%s: %lld tokens that are not those of the session alone (%s)", when, (long long)n, a->message);
    if (a->status == HT_OK && a->metrics.finish != HT_FINISH_CALLBACK) assert_int_equal(n, a->q->n_answer);
    if (a->status == HT_OK) assert_int_equal(a->reuse.reused + a->metrics.prompt_tokens, a->q->n);
}

ht_engine *open_engine(int model, const ht_engine_options *o) {
    ht_error err = {0};
    ht_engine *e;
    if (ht_engine_open(models[model], o, &e, &err)) fail_msg("%s", err.message);
    return e;
}

size_t in_use(int model) { return ht_memory_get(models[model]->device).active_bytes; }
