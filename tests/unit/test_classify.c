/* Classification and scores: the bits of sessions alone, labels against a straightforward computation, what is shared, and
 * what fails among others. */
#include "generate/scheduler.h"
#include "models/model.h"
#include "support/adapters.h"
#include "support/chat.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 900, PROMPTS = 60 /* in a soak */, LONGEST = 800, NAN_TOKEN = 7 };

static ht_model *model;

static int setup(void **state) {
    scratch_make();
    *state = model = tiny_load(&(tiny_options){.context = CONTEXT});
    return 0;
}

/* ---- a straightforward computation ---- */

/* Logits after every one of n ids, [n, TINY_VOCAB]; the caller frees them. */
static float *rows_alone(ht_model *m, const int32_t *ids, size_t n, ht_adapter *adapter) {
    ht_session *s = tiny_session(m, 512);
    if (adapter) assert_int_equal(ht_session_set_adapters(s, &adapter, NULL, 1, NULL), HT_OK);
    float *rows = tiny_rows((int)n);
    tiny_forward(s, ids, n, true, rows);
    ht_session_free(s);
    return rows;
}

static double log_probability(const float *x, int32_t id) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++) max = fmax(max, (double)x[i]);
    for (int i = 0; i < TINY_VOCAB; i++) sum += exp((double)x[i] - max);
    return (double)x[id] - max - log(sum);
}

static int32_t likeliest(const float *x) {
    int32_t best = 0;
    for (int32_t i = 1; i < TINY_VOCAB; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void check_close(double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-6 * (1 + fabs(wanted)))) fail_msg("%.12g, expected %.12g", found, wanted);
}

/* ---- prompts ---- */

typedef struct prompts {
    int n;
    int32_t ids[PROMPTS][LONGEST];
    ht_prompt prompt[PROMPTS];
} prompts;

/* Half of them begin as an earlier one does, to a place anywhere in it; some are the same. */
static prompts *make_prompts(uint64_t seed, int n_prompts) {
    prompts *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->n = n_prompts;
    srand((unsigned)seed);
    for (int i = 0; i < p->n; i++) {
        const int n = i % 7 == 3 ? 300 + rand() % (LONGEST - 300) : 1 + rand() % 60;
        tiny_ids(p->ids[i], n, seed * 1000 + (uint64_t)i);
        size_t length = (size_t)n;
        if (i && rand() % 2) {
            const ht_prompt *other = &p->prompt[rand() % i];
            const size_t same = (size_t)rand() % (other->n_ids + 1);
            memcpy(p->ids[i], other->ids, same * sizeof(int32_t));
            if (length < same) length = same;
        }
        for (size_t t = 0; t < length; t++) p->ids[i][t] += p->ids[i][t] == NAN_TOKEN;
        p->prompt[i] = (ht_prompt){.ids = p->ids[i], .n_ids = length};
    }
    return p;
}

/* Nodes of the tree of all tokens: what has to be computed. */
static int64_t count_positions(const prompts *p) {
    int64_t n = 0;
    for (int i = 0; i < p->n; i++) {
        size_t same = 0;
        for (int j = 0; j < i; j++) {
            size_t k = 0;
            while (k < p->prompt[i].n_ids && k < p->prompt[j].n_ids && p->ids[i][k] == p->ids[j][k]) k++;
            if (k > same) same = k;
        }
        n += (int64_t)(p->prompt[i].n_ids - same);
    }
    return n;
}

typedef struct check {
    ht_model *m;
    const ht_prompt *prompt;
    ht_adapter *adapter;
    size_t next;
    int64_t computed, alone; /* positions of classification, and of sessions to compare with */
} check;

static bool check_alone(const ht_classification *c, void *user) {
    check *k = user;
    assert_int_equal(c->index, k->next++);
    assert_int_equal(c->status, HT_OK);
    assert_string_equal(c->message, "");
    const ht_prompt *p = &k->prompt[c->index];
    assert_int_equal(c->prompt_tokens, p->n_ids);
    float *rows = rows_alone(k->m, p->ids, p->n_ids, k->adapter), *last = rows + (p->n_ids - 1) * TINY_VOCAB;
    assert_memory_equal(c->logits, last, TINY_VOCAB * sizeof(float));
    assert_int_equal(c->token, likeliest(last));
    check_close(c->log_probability, log_probability(last, c->token));
    assert_int_equal(c->label, -1);
    assert_null(c->labels);
    k->computed += c->computed_tokens;
    k->alone += (int64_t)p->n_ids;
    free(rows);
    return true;
}

static void check_all(const tiny_options *how, size_t kv_bytes) {
    ht_model *m = tiny_load(how);
    for (uint64_t seed = 1; seed <= (uint64_t)test_cases(1, 40); seed++) {
        prompts *p = make_prompts(seed, test_cases(test_is_late() ? 8 : 12, PROMPTS));
        check k = {.m = m, .prompt = p->prompt};
        const int64_t before = ht_scheduler_get_stats(m->scheduler).rows;
        const ht_classify_options o = OPTIONS(ht_classify_options, with.logits = true, with.kv_bytes = kv_bytes);
        assert_works(ht_classify, m, p->prompt, (size_t)p->n, &o, check_alone, &k);
        assert_int_equal(k.next, p->n);
        assert_int_equal(k.computed, count_positions(p)); /* each position of the tree once */
        assert_int_equal(ht_scheduler_get_stats(m->scheduler).rows - before - k.alone, count_positions(p));
        free(p);
    }
    ht_model_free(m);
}

UNIT_TEST(bits_of_sessions) { check_all(&(tiny_options){.context = CONTEXT}, 0); }

UNIT_TEST(bits_with_sliding_layers) { check_all(&(tiny_options){.window = 100, .context = CONTEXT}, 0); }

UNIT_TEST(bits_with_states) { check_all(&(tiny_options){.context = CONTEXT, .recurrent = true}, 0); }

UNIT_TEST(bits_without_memory_to_spare) { check_all(&(tiny_options){.context = CONTEXT}, 1); }

UNIT_TEST(bits_with_quantised_caches) {
    check_all(&(tiny_options){.context = CONTEXT, .type = HT_W_Q8_0, .kv = HT_I8}, 0);
}

/* ---- steps ---- */

static bool ignore(const ht_classification *c, void *user) {
    (void)user;
    return c->status == HT_OK;
}

/* Rows of a prefix that all have in common are computed once, and prompts go together in full steps. */
UNIT_TEST(shares_and_fills_steps) {
    enum { SHARED = 400, OWN = 10, N = 96 };
    static int32_t ids[N][SHARED + OWN];
    ht_prompt prompt[N];
    for (int i = 0; i < N; i++) {
        tiny_ids(ids[i], SHARED, 5);
        tiny_ids(ids[i] + SHARED, OWN, (uint64_t)i + 10);
        ids[i][SHARED] = i; /* they part here at the latest */
        prompt[i] = (ht_prompt){.ids = ids[i], .n_ids = SHARED + OWN};
    }
    const ht_scheduler_stats before = ht_scheduler_get_stats(model->scheduler);
    assert_int_equal(ht_classify(model, prompt, N, NULL, ignore, NULL, NULL), HT_OK);
    const ht_scheduler_stats after = ht_scheduler_get_stats(model->scheduler);
    assert_int_equal(after.rows - before.rows, SHARED + N * OWN);
    /* One for what is shared; then 51 prompts of 10 rows and a part of another in one of 512. */
    assert_int_equal(after.steps - before.steps, 1 + 2);
}

/* More prompts than are taken up at a time: what all of them have in common is computed in the first ones alone. */
typedef struct many {
    int32_t ids[203];
    size_t next;
    int64_t computed;
} many;

static ht_status give_one(size_t i, ht_prompt *prompt, void *user, ht_error *err) {
    many *s = user;
    (void)err;
    tiny_ids(s->ids, 200, 1);
    s->ids[200] = (int32_t)(i % 250);
    s->ids[201] = (int32_t)(i / 250);
    s->ids[202] = 1;
    *prompt = (ht_prompt){.ids = s->ids, .n_ids = 203};
    return HT_OK;
}

static bool count_computed(const ht_classification *c, void *user) {
    many *s = user;
    assert_int_equal(c->index, s->next++);
    assert_int_equal(c->status, HT_OK);
    s->computed += c->computed_tokens;
    return true;
}

UNIT_TEST(windows_share) {
    enum { N = 1100 }; /* two windows of at most 1,024 prompts */
    many s = {.next = 0};
    const ht_classify_options o = OPTIONS(ht_classify_options, with.next = give_one);
    assert_int_equal(ht_classify(model, NULL, N, &o, count_computed, &s, NULL), HT_OK);
    assert_int_equal(s.next, N);
    assert_true(s.computed <= 200 + N * 3);
    assert_true(s.computed >= N * 2);
}

enum { WINDOW = 1024, KEPT = 300, PART = 280 };

typedef struct parted {
    ht_model *m;
    int32_t ids[KEPT + 3];
    int64_t second; /* positions that the second window computed */
} parted;

/* All prompts of the first window begin with KEPT tokens, those of the second with PART of them. */
static ht_status give_parted(size_t i, ht_prompt *prompt, void *user, ht_error *err) {
    parted *s = user;
    const int n = i < WINDOW ? KEPT : PART;
    (void)err;
    tiny_ids(s->ids, KEPT, 1);
    s->ids[n] = (int32_t)(i % WINDOW % 250);
    s->ids[n + 1] = (int32_t)(i % WINDOW / 250);
    s->ids[n + 2] = 1;
    *prompt = (ht_prompt){.ids = s->ids, .n_ids = (size_t)n + 3};
    return HT_OK;
}

static bool check_parted(const ht_classification *c, void *user) {
    parted *s = user;
    assert_int_equal(c->status, HT_OK);
    if (c->index < WINDOW) return true;
    s->second += c->computed_tokens;
    ht_prompt prompt;
    (void)give_parted(c->index, &prompt, s, NULL);
    float *rows = rows_alone(s->m, prompt.ids, prompt.n_ids, NULL);
    assert_memory_equal(c->logits, rows + (prompt.n_ids - 1) * TINY_VOCAB, TINY_VOCAB * sizeof(float));
    free(rows);
    return true;
}

/* A window goes back in what the last one has kept, and a recurrent model to the page end before. */
UNIT_TEST(windows_go_back) {
    enum { SECOND = 8 };
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        parted s = {.m = tiny_load(&(tiny_options){.context = CONTEXT, .recurrent = recurrent})};
        const ht_classify_options o = OPTIONS(ht_classify_options, with.next = give_parted, with.logits = true);
        assert_works(ht_classify, s.m, NULL, WINDOW + SECOND, &o, check_parted, &s);
        assert_int_equal(s.second, (recurrent ? PART - 256 : 0) + SECOND * 3);
        ht_model_free(s.m);
    }
}

/* ---- adapters ---- */

UNIT_TEST(bits_with_adapters) {
    ht_adapter *adapter = test_adapter_for(model, 4, 1, 77);
    prompts *p = make_prompts(3, test_cases(6, PROMPTS));
    check k = {.m = model, .prompt = p->prompt, .adapter = adapter};
    const ht_classify_options o =
        OPTIONS(ht_classify_options, with.logits = true, with.adapters = &adapter, with.n_adapters = 1);
    assert_int_equal(ht_classify(model, p->prompt, (size_t)p->n, &o, check_alone, &k, NULL), HT_OK);
    assert_int_equal(k.next, p->n);
    free(p);
    ht_adapter_free(adapter);
}

/* ---- labels ---- */

static const char *const labels[] = {"he", " no", "in the", "x", "re than this"};
enum { LABELS = sizeof labels / sizeof *labels };

typedef struct expected {
    double log_probability[LABELS];
    int64_t n_tokens[LABELS];
} expected;

/* All encodings, and from where on they differ; the logits of each one alone. */
static expected label_alone(ht_model *m, const char *prompt, const ht_chat *chat) {
    const ht_tokenizer *t = ht_model_tokenizer(m);
    int32_t *own, *joined[LABELS];
    size_t n_own, n[LABELS];
    expected e = {0};
    if (chat)
        assert_int_equal(ht_chat_encode(m, chat, 0, &own, &n_own, NULL), HT_OK);
    else
        assert_int_equal(ht_tokenizer_encode(t, prompt, strlen(prompt), 3, &own, &n_own, NULL), HT_OK);
    size_t shared = n_own;
    for (int i = 0; i < LABELS; i++) {
        char *text = NULL, whole[512];
        if (chat) assert_int_equal(ht_chat_format(m, chat, &text, NULL), HT_OK);
        snprintf(whole, sizeof whole, "%s%s", chat ? text : prompt, labels[i]);
        ht_text_free(text);
        assert_int_equal(ht_tokenizer_encode(t, whole, strlen(whole), chat ? 2 : 3, &joined[i], &n[i], NULL), HT_OK);
        size_t same = 0;
        while (same < shared && same < n[i] && joined[i][same] == own[same]) same++;
        shared = same;
    }
    for (int i = 0; i < LABELS; i++) {
        float *rows = rows_alone(m, joined[i], n[i], NULL);
        for (size_t at = shared; at < n[i]; at++)
            e.log_probability[i] += log_probability(rows + (at - 1) * TINY_VOCAB, joined[i][at]);
        e.n_tokens[i] = (int64_t)(n[i] - shared);
        free(rows);
        ht_ids_free(joined[i]);
    }
    ht_ids_free(own);
    return e;
}

typedef struct labelled {
    ht_model *m;
    const ht_prompt *prompt;
    size_t n;
} labelled;

static bool check_labels(const ht_classification *c, void *user) {
    labelled *l = user;
    assert_int_equal(c->status, HT_OK);
    const expected e = label_alone(l->m, l->prompt[c->index].text, l->prompt[c->index].chat);
    double sum = 0, total = 0;
    int best = 0;
    for (int i = 0; i < LABELS; i++) sum += exp(e.log_probability[i]);
    for (int i = 0; i < LABELS; i++) {
        check_close(c->labels[i].log_probability, e.log_probability[i]);
        check_close(c->labels[i].probability, exp(e.log_probability[i]) / sum);
        assert_int_equal(c->labels[i].n_tokens, e.n_tokens[i]);
        total += c->labels[i].probability;
        if (c->labels[i].probability > c->labels[best].probability) best = i;
    }
    check_close(total, 1);
    assert_int_equal(c->label, best);
    l->n++;
    return true;
}

UNIT_TEST(labels_of_several_tokens) {
    ht_chat *chat = test_chat((test_message[]){{"user", "Is it so?"}}, 1);
    /* After a "t", "he" is no token of its own: "the" is one. */
    const ht_prompt prompt[] = {{.text = "is it t"},   {.text = "is it"}, {.text = "is it "},
                                {.text = "is it the"}, {.chat = chat},    {.text = "<|im_start|> i"}};
    labelled l = {.m = model, .prompt = prompt};
    const ht_classify_options o = OPTIONS(ht_classify_options, with.labels = labels, with.n_labels = LABELS);
    const size_t n = sizeof prompt / sizeof *prompt;
    assert_works(ht_classify, model, prompt, n, &o, check_labels, &l);
    assert_int_equal(l.n, n);
    assert_int_equal(label_alone(model, "is it t", NULL).n_tokens[0], 2); /* " " and "the" in the place of " t" */
    ht_chat_free(chat);
}

static bool check_ids_label(const ht_classification *c, void *user) {
    (void)user;
    assert_int_equal(c->status, HT_OK);
    assert_int_equal(c->labels[0].n_tokens, 2); /* "he" by itself: h, e */
    return true;
}

/* Ids are not put together with the text behind them. */
UNIT_TEST(labels_after_ids) {
    int32_t *ids;
    size_t n;
    assert_int_equal(ht_tokenizer_encode(ht_model_tokenizer(model), "is it t", 7, 0, &ids, &n, NULL), HT_OK);
    const ht_prompt prompt = {.ids = ids, .n_ids = n};
    const ht_classify_options o = OPTIONS(ht_classify_options, with.labels = labels, with.n_labels = LABELS);
    assert_int_equal(ht_classify(model, &prompt, 1, &o, check_ids_label, NULL, NULL), HT_OK);
    ht_ids_free(ids);
}

UNIT_TEST(bad_labels) {
    ht_error err = {0};
    const ht_prompt prompt = {.text = "a b"};
    const char *const bad[][2] = {{"yes", ""}, {"yes", "yes"}};
    for (int i = 0; i < 2; i++) {
        const ht_classify_options o = OPTIONS(ht_classify_options, with.labels = bad[i], with.n_labels = 2);
        assert_int_equal(ht_classify(model, &prompt, 1, &o, ignore, NULL, &err), HT_ERR_ARGUMENT);
    }
    assert_non_null(strstr(err.message, "labels 0 and 1 are both \"yes\""));
    assert_int_equal(ht_classify(model, NULL, 1, NULL, ignore, NULL, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_classify(model, NULL, 0, NULL, ignore, NULL, &err), HT_OK);
}

/* ---- failures ---- */

typedef struct outcome {
    size_t n;
    ht_status status[PROMPTS];
    char message[PROMPTS][200];
    size_t stop_after;
    ht_cancel cancel;
    size_t cancel_after;
} outcome;

static bool note(const ht_classification *c, void *user) {
    outcome *o = user;
    assert_int_equal(c->index, o->n);
    o->status[o->n] = c->status;
    snprintf(o->message[o->n++], sizeof *o->message, "%s", c->message);
    if (o->n == o->cancel_after) ht_cancel_request(&o->cancel);
    return o->n != o->stop_after;
}

static ht_status give_or_fail(size_t i, ht_prompt *prompt, void *user, ht_error *err) {
    (void)user;
    if (i == 1) {
        if (err) snprintf(err->message, sizeof err->message, "line 2 is torn");
        return err->status = HT_ERR_FORMAT;
    }
    prompt->text = "some text";
    return HT_OK;
}

UNIT_TEST(failures_among_others) {
    ht_model *m = tiny_load(&(tiny_options){.context = 100, .nan_token = NAN_TOKEN});
    static int32_t longer[101];
    tiny_ids(longer, 101, 1);
    for (int i = 0; i < 101; i++) longer[i] += longer[i] == NAN_TOKEN;
    const int32_t outside[] = {1, 2, TINY_VOCAB}, nan[] = {1, 2, NAN_TOKEN, 3}, good[] = {1, 2, 3};
    const ht_prompt prompt[] = {{.ids = good, .n_ids = 3},
                                {.ids = longer, .n_ids = 101},
                                {.ids = nan, .n_ids = 4},
                                {.ids = outside, .n_ids = 3},
                                {.text = ""},
                                {.ids = good, .n_ids = 3, .text = "both"},
                                {0},
                                {.ids = longer, .n_ids = 100},
                                {.ids = nan, .n_ids = 2}};
    const ht_status wanted[] = {HT_OK,           HT_ERR_LIMIT,    HT_ERR_INTERNAL,
                                HT_ERR_ARGUMENT, HT_ERR_ARGUMENT, HT_ERR_ARGUMENT,
                                HT_ERR_ARGUMENT, HT_OK,           HT_OK};
    const size_t n = sizeof prompt / sizeof *prompt;
    outcome o = {0};
    assert_int_equal(ht_classify(m, prompt, n, NULL, note, &o, NULL), HT_OK);
    assert_int_equal(o.n, n);
    for (size_t i = 0; i < n; i++)
        if (o.status[i] != wanted[i]) fail_msg("prompt %zu: %s", i, o.message[i]);
    assert_string_equal(o.message[1], "prompt of 101 tokens does not fit the context of 100");
    assert_non_null(strstr(o.message[2], "is nan"));
    assert_non_null(strstr(o.message[3], "outside the vocabulary of 288"));
    assert_string_equal(o.message[4], "the prompt is empty");
    o = (outcome){0};
    const ht_classify_options from = OPTIONS(ht_classify_options, with.next = give_or_fail);
    assert_int_equal(ht_classify(m, NULL, 3, &from, note, &o, NULL), HT_OK);
    assert_int_equal(o.n, 3);
    assert_int_equal(o.status[1], HT_ERR_FORMAT);
    assert_string_equal(o.message[1], "line 2 is torn");
    assert_int_equal(o.status[2], HT_OK);
    ht_model_free(m);
}

/* ---- ends ---- */

UNIT_TEST(stopping_and_cancelling) {
    prompts *p = make_prompts(9, PROMPTS);
    outcome o = {.stop_after = 3};
    assert_fails(HT_ERR_CANCELLED, "", ht_classify, model, p->prompt, (size_t)p->n, NULL, note, &o);
    assert_int_equal(o.n, 3);

    o = (outcome){.cancel_after = 2};
    ht_classify_options how = OPTIONS(ht_classify_options, with.cancel = &o.cancel);
    assert_fails(HT_ERR_CANCELLED, "", ht_classify, model, p->prompt, (size_t)p->n, &how, note, &o);
    assert_int_equal(o.n, p->n); /* all had been begun */
    assert_int_equal(o.status[0], HT_OK);
    size_t cancelled = 0;
    for (int i = 0; i < p->n; i++) cancelled += o.status[i] == HT_ERR_CANCELLED;
    assert_true(cancelled > 0 && cancelled <= (size_t)p->n - 2);

    ht_cancel_request(&o.cancel);
    o.n = 0;
    assert_fails(HT_ERR_CANCELLED, "", ht_classify, model, p->prompt, (size_t)p->n, &how, note, &o);
    assert_int_equal(o.n, 0);
    free(p);
}

static void show(double done, void *user) {
    outcome *o = user;
    assert_true(done >= 0 && done <= 1);
    o->stop_after = done >= 1 ? SIZE_MAX : o->stop_after;
}

UNIT_TEST(progress_comes_to_its_end) {
    prompts *p = make_prompts(4, test_cases(6, PROMPTS));
    outcome o = {0};
    const ht_classify_options how = OPTIONS(ht_classify_options, with.progress = show);
    assert_int_equal(ht_classify(model, p->prompt, (size_t)p->n, &how, note, &o, NULL), HT_OK);
    assert_true(o.stop_after == SIZE_MAX);
    free(p);
}

/* ---- scores ---- */

enum { TOP = 5 };

static bool check_scores(const ht_score_result *r, void *user) {
    const labelled *l = user;
    static const int32_t after[] = {4, 5, 6};
    assert_int_equal(r->status, HT_OK);
    assert_int_equal(r->n_continuations, 2);
    const ht_prompt *p = &l->prompt[r->index];
    for (int c = 0; c < 2; c++) {
        const ht_continuation_score *s = &r->continuations[c];
        const size_t n = p->n_ids + 3 - (size_t)c;
        int32_t *ids = calloc(n, sizeof *ids);
        memcpy(ids, p->ids, p->n_ids * sizeof *ids);
        memcpy(ids + p->n_ids, after + c, (n - p->n_ids) * sizeof *ids);
        float *rows = rows_alone(l->m, ids, n, NULL);
        double sum = 0;
        assert_int_equal(s->n_tokens, 3 - c);
        assert_int_equal(r->shared_tokens, p->n_ids);
        for (int64_t t = 0; t < s->n_tokens; t++) {
            const float *x = rows + (p->n_ids + (size_t)t - 1) * TINY_VOCAB;
            assert_int_equal(s->tokens[t].id, after[c + t]);
            check_close(s->tokens[t].log_probability, log_probability(x, after[c + t]));
            sum += log_probability(x, after[c + t]);
            assert_int_equal(s->tokens[t].n_top, TOP);
            assert_int_equal(s->tokens[t].top[0].id, likeliest(x));
            for (int k = 0; k < TOP; k++) {
                const ht_token_probability *top = &s->tokens[t].top[k];
                int before = 0;
                for (int32_t i = 0; i < TINY_VOCAB; i++)
                    before += x[i] > x[top->id] || (x[i] == x[top->id] && i < top->id);
                assert_int_equal(before, k);
                check_close(top->log_probability, log_probability(x, top->id));
            }
        }
        check_close(s->log_probability, sum);
        free(rows);
        free(ids);
    }
    return true;
}

UNIT_TEST(scores_of_continuations) {
    prompts *p = make_prompts(6, test_cases(6, PROMPTS));
    static const int32_t after[] = {4, 5, 6};
    const ht_continuation continuations[] = {{.ids = after, .n_ids = 3}, {.ids = after + 1, .n_ids = 2}};
    ht_score_request request[PROMPTS];
    for (int i = 0; i < p->n; i++) request[i] = (ht_score_request){p->prompt[i], continuations, 2};
    labelled l = {.m = model, .prompt = p->prompt};
    const ht_score_options o = OPTIONS(ht_score_options, with.top_k = TOP);
    assert_works(ht_score, model, request, (size_t)p->n, &o, check_scores, &l);
    free(p);
}

static bool check_top_all(const ht_score_result *r, void *user) {
    (void)user;
    assert_int_equal(r->status, HT_OK);
    assert_int_equal(r->continuations[0].tokens[0].n_top, TINY_VOCAB); /* there are no more */
    double sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++) sum += exp(r->continuations[0].tokens[0].top[i].log_probability);
    check_close(sum, 1);
    return true;
}

static bool check_refused(const ht_score_result *r, void *user) {
    static const char *const wanted[] = {"there is no continuation", "neither text and ids",   "both text and ids",
                                         "adds no tokens",           "outside the vocabulary", "follows nothing"};
    (void)user;
    assert_int_equal(r->status, HT_ERR_ARGUMENT);
    if (!strstr(r->message, wanted[r->index])) fail_msg("%s", r->message);
    return true;
}

UNIT_TEST(odd_scores) {
    const int32_t id = 5, outside = TINY_VOCAB;
    const ht_continuation whole = {.ids = &id, .n_ids = 1}, none = {0}, both = {.text = "a", .ids = &id, .n_ids = 1},
                          empty = {.text = ""}, bad = {.ids = &outside, .n_ids = 1}, he = {.text = "he"};
    const ht_score_request all = {{.text = "some"}, &whole, 1};
    const ht_score_options o = OPTIONS(ht_score_options, with.top_k = 1000),
                           more = OPTIONS(ht_score_options, with.top_k = 1001);
    assert_int_equal(ht_score(model, &all, 1, &o, check_top_all, NULL, NULL), HT_OK);
    assert_int_equal(ht_score(model, &all, 1, &more, check_top_all, NULL, NULL), HT_ERR_ARGUMENT);
    const ht_score_request refused[] = {{{.text = "some"}, NULL, 0},  {{.text = "some"}, &none, 1},
                                        {{.text = "some"}, &both, 1}, {{.text = "some"}, &empty, 1},
                                        {{.text = "some"}, &bad, 1},  {{.text = "t"}, &he, 1}};
    assert_int_equal(ht_score(model, refused, 6, NULL, check_refused, NULL, NULL), HT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_sessions),
        cmocka_unit_test(bits_with_sliding_layers),
        cmocka_unit_test(bits_with_states),
        cmocka_unit_test(bits_without_memory_to_spare),
        cmocka_unit_test(bits_with_quantised_caches),
        cmocka_unit_test(shares_and_fills_steps),
        cmocka_unit_test(windows_share),
        cmocka_unit_test(windows_go_back),
        cmocka_unit_test(bits_with_adapters),
        cmocka_unit_test(labels_of_several_tokens),
        cmocka_unit_test(labels_after_ids),
        cmocka_unit_test(bad_labels),
        cmocka_unit_test(failures_among_others),
        cmocka_unit_test(stopping_and_cancelling),
        cmocka_unit_test(progress_comes_to_its_end),
        cmocka_unit_test(scores_of_continuations),
        cmocka_unit_test(odd_scores),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
