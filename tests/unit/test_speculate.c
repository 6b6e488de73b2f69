/* Speculation: whatever is guessed, the tokens are those of plain decoding, greedy or drawn; guesses that are right are fewer
 * steps; and what is drawn has the distribution that the logits say. */
#include "generate/speculate.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_MODELS = 4, PROMPT = 90, TOKENS = 60, PERIOD = 11, LONG_PROMPT = 240 };

static ht_model *models[N_MODELS], *coarse[N_MODELS]; /* the same weights, coarser: they often draw the same */
static int32_t prompt[LONG_PROMPT];                   /* most tests use PROMPT of them */

static int setup(void **state) {
    (void)state;
    scratch_make();
    models[0] = tiny_load(&(tiny_options){.type = HT_W_F32});
    models[1] = tiny_load(&(tiny_options){.window = 40});
    models[2] = tiny_load(&(tiny_options){.latent = true});
    models[3] = tiny_load(&(tiny_options){.recurrent = true});
    coarse[0] = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    coarse[1] = tiny_load(&(tiny_options){.window = 40, .type = HT_W_Q8_0});
    coarse[2] = tiny_load(&(tiny_options){.latent = true, .type = HT_W_Q8_0});
    coarse[3] = tiny_load(&(tiny_options){.recurrent = true, .type = HT_W_Q8_0});
    tiny_ids(prompt, PERIOD, 5);
    for (int i = PERIOD; i < LONG_PROMPT; i++) prompt[i] = prompt[i - PERIOD];
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        ht_model_free(models[m]);
        ht_model_free(coarse[m]);
    }
    scratch_remove();
    return 0;
}

typedef struct result {
    int32_t token[PROMPT + TOKENS];
    int64_t n;
    int64_t cached;
    ht_metrics metrics;
} result;

static result run(ht_session *s, const ht_generate_options *o) {
    result r = {0};
    assert_works(ht_generate, s, prompt, PROMPT, o, NULL, NULL, &r.metrics);
    r.n = ht_session_length(s);
    r.cached = s->cache->length;
    memcpy(r.token, ht_session_tokens(s), (size_t)r.n * sizeof *r.token);
    return r;
}

/* States go back to before the guesses. */
static void assert_same(const result *a, const result *b, bool goes_back, const char *what) {
    if (a->n != b->n || memcmp(a->token, b->token, (size_t)a->n * sizeof *a->token) != 0)
        fail_msg("%s: not the tokens of plain decoding", what);
    assert_int_equal(a->metrics.finish, b->metrics.finish);
    assert_int_equal(a->metrics.generated_tokens, b->metrics.generated_tokens);
    assert_true(a->cached == a->n || a->cached == a->n - 1 || (goes_back && a->cached >= PROMPT));
}

/* ---- bits ---- */

static void try_guesses(int m, ht_sampler_options sampler, int32_t guesses, bool lookup, ht_model *draft,
                        const ht_generate_options *plain, const result *want) {
    ht_generate_options o = *plain;
    char what[100];
    snprintf(what, sizeof what, "model %d, seed %d, %d guesses,%s%s", m, (int)sampler.seed, (int)guesses,
             lookup ? " lookup" : "", draft ? " draft" : "");
    o.lookup = lookup;
    o.draft = draft;
    o.draft_tokens = guesses;
    ht_session *s = tiny_session(models[m], guesses % 2 ? 512 : 16);
    const result got = run(s, &o);
    assert_same(&got, want, m == 3, what);
    /* The session goes on as any other. */
    ht_session *plain_session = tiny_session(models[m], 512);
    float *rows[2] = {tiny_rows((int)got.n + 1), tiny_rows((int)got.n + 1)};
    tiny_forward(s, &prompt[3], 1, false, rows[0]);
    tiny_forward(plain_session, got.token, (size_t)got.n, false, NULL);
    tiny_forward(plain_session, &prompt[3], 1, false, rows[1]);
    assert_memory_equal(rows[0] + got.n * TINY_VOCAB, rows[1] + got.n * TINY_VOCAB, TINY_VOCAB * sizeof(float));
    for (int i = 0; i < 2; i++) free(rows[i]);
    ht_session_free(plain_session);
    ht_session_free(s);
}

UNIT_TEST(the_same_tokens) {
    static const int32_t guesses[] = {0, 1, 2, 7, HT_DRAFT_TOKENS_MAX};
    for (int m = 0; m < N_MODELS; m++)
        for (int c = 0; c < test_cases(TEST_SLOW ? 3 : 8, 200); c++) {
            const ht_sampler_options sampler =
                OPTIONS(ht_sampler_options, with.temperature = c ? 0.3f * (float)(c % 4) : 0, with.seed = (uint64_t)c,
                        with.top_k = c % 3 ? 0 : 10, with.repeat_penalty = c % 5 == 1 ? 1.3f : 1,
                        with.frequency_penalty = c % 3 == 2 ? 0.5f : 0, with.presence_penalty = c % 4 == 1 ? -0.5f : 0);
            ht_generate_options plain = DEFAULTS(ht_generate_options);
            plain.max_tokens = 1 + c * 13 % TOKENS;
            plain.ignore_eos = c % 2;
            plain.sampler = &sampler;
            ht_session *s = tiny_session(models[m], 512);
            const result want = run(s, &plain);
            ht_session_free(s);
            for (size_t g = 0; g < sizeof guesses / sizeof *guesses; g++) {
                try_guesses(m, sampler, guesses[g], true, NULL, &plain, &want);
                try_guesses(m, sampler, guesses[g], false, coarse[m], &plain, &want);
                try_guesses(m, sampler, guesses[g], true, models[m], &plain, &want);
            }
        }
}

/* A draft model that is the model itself is always right: as few steps as there can be. */
UNIT_TEST(right_guesses_save_steps) {
    for (int m = 0; m < N_MODELS; m++) {
        const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 1, with.seed = 3);
        ht_generate_options o = DEFAULTS(ht_generate_options);
        o.max_tokens = TOKENS;
        o.ignore_eos = true;
        o.sampler = &sampler;
        o.draft = models[m];
        o.draft_tokens = 5;
        ht_session *s = tiny_session(models[m], 512);
        const result r = run(s, &o);
        assert_int_equal(r.metrics.generated_tokens, TOKENS);
        assert_int_equal(r.metrics.accepted_tokens, r.metrics.guessed_tokens);
        assert_int_equal(r.metrics.accepted_tokens, 49); /* 60: one of the prompt, nine steps of six, and one of five */
        ht_session_free(s);
    }
}

/* A step ends at a page end, where states are kept, and a session goes back there. */
UNIT_TEST(guesses_end_at_page_ends) {
    for (int i = 0; i < 5; i++) {
        const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 0.3f, with.seed = 3);
        const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = TOKENS, with.ignore_eos = true,
                                              with.sampler = &sampler, with.lookup = i % 2,
                                              with.draft = i > 2    ? models[3]
                                                           : i == 2 ? coarse[3]
                                                                    : NULL,
                                              with.draft_tokens = i == 3 ? HT_DRAFT_TOKENS_MAX : 4);
        static int32_t want[TOKENS];
        ht_session *s = tiny_session(models[3], 512);
        ht_metrics metrics;
        assert_works(ht_generate, s, prompt, LONG_PROMPT, &o, NULL, NULL, &metrics);
        if (i == 0) memcpy(want, ht_session_tokens(s) + LONG_PROMPT, sizeof want);
        assert_memory_equal(ht_session_tokens(s) + LONG_PROMPT, want, sizeof want);
        assert_true(metrics.guessed_tokens > 0 || i < 2);
        assert_int_equal(ht_cache_kept(s->cache, 280), 256);
        assert_works(ht_session_truncate, s, 280);
        float *rows[2] = {tiny_rows(281), tiny_rows(281)};
        ht_session *fresh = tiny_session(models[3], 512);
        tiny_forward(s, &prompt[3], 1, false, rows[0]);
        tiny_forward(fresh, prompt, LONG_PROMPT, false, NULL);
        tiny_forward(fresh, want, 40, false, NULL);
        tiny_forward(fresh, &prompt[3], 1, false, rows[1]);
        assert_memory_equal(rows[0] + 280 * TINY_VOCAB, rows[1] + 280 * TINY_VOCAB, TINY_VOCAB * sizeof(float));
        for (int k = 0; k < 2; k++) free(rows[k]);
        ht_session_free(fresh);
        ht_session_free(s);
    }
}

/* What is drawn at the end of a guess has the probabilities that the logits say, summed over what may come before. */
UNIT_TEST(the_same_distribution) {
    enum { DRAWS = 3000 };
    static double expected[TINY_VOCAB];
    static int count[TINY_VOCAB];
    memset(expected, 0, sizeof expected);
    memset(count, 0, sizeof count);
    ht_model *m = models[0];
    ht_session *s = tiny_session(m, 512);
    float *rows = tiny_rows(PROMPT + 1);
    tiny_forward(s, prompt, PROMPT, false, rows);
    double first[TINY_VOCAB], sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++) sum += first[i] = exp((double)rows[(PROMPT - 1) * TINY_VOCAB + i]);
    for (int32_t i = 0; i < TINY_VOCAB; i++) {
        assert_int_equal(ht_session_truncate(s, PROMPT, NULL), HT_OK);
        tiny_forward(s, &i, 1, false, rows);
        const float *second = rows + PROMPT * TINY_VOCAB;
        double all = 0;
        for (int k = 0; k < TINY_VOCAB; k++) all += exp((double)second[k]);
        for (int k = 0; k < TINY_VOCAB; k++)
            expected[k] += (double)DRAWS * first[i] / sum * exp((double)second[k]) / all;
    }
    ht_session_free(s);
    free(rows);
    int64_t guessed = 0, accepted = 0;
    s = tiny_session(m, 512);
    for (int i = 0; i < DRAWS; i++) {
        const ht_sampler_options sampler =
            OPTIONS(ht_sampler_options, with.temperature = 1, with.seed = 1000 + (uint64_t)i);
        ht_generate_options o = DEFAULTS(ht_generate_options);
        o.max_tokens = 4;
        o.ignore_eos = true;
        o.sampler = &sampler;
        o.draft = coarse[0];
        o.draft_tokens = 2;
        const result r = run(s, &o);
        count[r.token[PROMPT + 1]]++;
        guessed += r.metrics.guessed_tokens;
        accepted += r.metrics.accepted_tokens;
        assert_int_equal(ht_session_truncate(s, 0, NULL), HT_OK);
    }
    ht_session_free(s);
    double chi = 0, rest = DRAWS, rest_count = DRAWS;
    int degrees = 0;
    for (int k = 0; k < TINY_VOCAB; k++) {
        if (expected[k] < 8) continue;
        chi += (count[k] - expected[k]) * (count[k] - expected[k]) / expected[k];
        rest -= expected[k];
        rest_count -= count[k];
        degrees++;
    }
    if (rest > 8) chi += (rest_count - rest) * (rest_count - rest) / rest;
    print_message("%lld of %lld guesses were right; chi squared %.1f with %d degrees of freedom\n", (long long)accepted,
                  (long long)guessed, chi, degrees);
    assert_true(accepted > 0 && accepted < guessed && degrees > 20);
    assert_true(chi < degrees + 5 * sqrt(2.0 * degrees)); /* five deviations */
}

/* ---- in an engine, and what is refused ---- */

typedef struct ended {
    int32_t token[TOKENS];
    ht_metrics metrics;
    ht_status status;
} ended;

static void on_end(const ht_answer_report *report, void *user) {
    ended *e = user;
    e->status = report->status;
    e->metrics = report->metrics;
    if (report->token && report->metrics.generated_tokens <= TOKENS)
        memcpy(e->token, report->token, (size_t)report->metrics.generated_tokens * sizeof *e->token);
}

UNIT_TEST(in_an_engine) {
    enum { N = 6 };
    for (int m = 0; m < N_MODELS; m++) {
        ht_engine *e;
        result want[N];
        ended got[N] = {0};
        ht_sampler_options sampler[N];
        ht_generate_options o[N];
        assert_works(ht_engine_open, models[m], NULL, &e);
        for (int i = 0; i < N; i++) {
            sampler[i] = OPTIONS(ht_sampler_options, with.temperature = 0.2f * (float)i, with.seed = (uint64_t)i);
            o[i] = DEFAULTS(ht_generate_options);
            o[i].max_tokens = TOKENS - i;
            o[i].ignore_eos = true;
            o[i].sampler = &sampler[i];
            ht_session *s = tiny_session(models[m], 512);
            want[i] = run(s, &o[i]);
            ht_session_free(s);
            o[i].lookup = true;
            o[i].draft_tokens = i * 3;
            const ht_request r = OPTIONS(ht_request, with.ids = prompt, with.n_ids = PROMPT, with.options = &o[i],
                                         with.end = on_end, with.user = &got[i]);
            assert_works(ht_engine_submit, e, &r, NULL);
        }
        ht_engine_wait(e, 0);
        for (int i = 0; i < N; i++) {
            assert_int_equal(got[i].status, HT_OK);
            assert_int_equal(got[i].metrics.generated_tokens, TOKENS - i);
            assert_memory_equal(got[i].token, want[i].token + PROMPT, (size_t)(TOKENS - i) * sizeof(int32_t));
        }
        o[0].draft = coarse[m];
        const ht_request r = OPTIONS(ht_request, with.ids = prompt, with.n_ids = PROMPT, with.options = &o[0]);
        assert_fails(HT_ERR_UNSUPPORTED, "", ht_engine_submit, e, &r, NULL);
        ht_engine_close(e);
    }
}

UNIT_TEST(refusals) {
    ht_model *other;
    ht_session *s = tiny_session(models[0], 512);
    assert_works(ht_model_load, "tests/golden/tiny/llama-llama3-q8_0.gguf", NULL, &other);
    ht_generate_options o = DEFAULTS(ht_generate_options);
    o.draft = other;
    assert_fails(HT_ERR_ARGUMENT, "vocabulary of", ht_generate, s, prompt, PROMPT, &o, NULL, NULL, NULL);
    o.draft = NULL;
    o.lookup = true;
    o.draft_tokens = HT_DRAFT_TOKENS_MAX + 1;
    assert_fails(HT_ERR_ARGUMENT, "", ht_generate, s, prompt, PROMPT, &o, NULL, NULL, NULL);
    assert_int_equal(ht_session_length(s), 0);
    ht_session_free(s);
    ht_model_free(other);
}

/* ---- how many ---- */

/* Of a sequence that can be guessed many are guessed; one that cannot takes hardly longer than without guesses. */
UNIT_TEST(the_number_adapts) {
    enum { LENGTH = 200 };
    int32_t tokens[LENGTH];
    for (int repeats = 0; repeats < 2; repeats++) {
        ht_speculation *s;
        const ht_speculation_setup how = {.lookup = true};
        int64_t guessed = 0, steps = 0, n = 80;
        double seconds = 0;
        /* Without repeats the same three tokens come again and again, with others behind them. */
        for (int i = 0; i < LENGTH && !repeats; i++) tokens[i] = i % 4 == 3 ? LENGTH + i : i % 4;
        for (int i = 0; i < LENGTH && repeats; i++) tokens[i] = i % 40;
        assert_int_equal(ht_speculation_new(&how, &s, NULL), HT_OK);
        while (n < LENGTH - 20) {
            int32_t out[HT_DRAFT_TOKENS_MAX], k, right = 0;
            assert_int_equal(ht_speculation_guess(s, tokens, n, HT_DRAFT_TOKENS_MAX, NULL, out, &k, NULL), HT_OK);
            while (right < k && out[right] == tokens[n + right]) right++;
            ht_speculation_learn(s, k, right, 0, 1 + 0.15 * k);
            seconds += 1 + 0.15 * k;
            n += right + 1;
            guessed += k;
            steps++;
        }
        print_message("%lld guesses in %lld steps\n", (long long)guessed, (long long)steps);
        if (repeats)
            assert_true(guessed > 6 * steps);
        else
            assert_true(seconds < 1.01 * (double)(n - 80)); /* a second for each token */
        ht_speculation_free(s);
    }
}

/* Rows that are computed again after forced guesses are charged to no source: later lookups guess as many tokens. */
UNIT_TEST(forced_guesses_cost_lookups_nothing) {
    enum { LENGTH = 600, PART = 40, FORCED = 8 };
    static const double row = 0.15;
    int32_t tokens[LENGTH], out[HT_DRAFT_TOKENS_MAX], k = 0, again;
    for (int i = 0; i < LENGTH; i++) tokens[i] = i % PART;
    ht_speculation *s;
    assert_int_equal(ht_speculation_new(&(ht_speculation_setup){.lookup = true, .repeats = true}, &s, NULL), HT_OK);
    int64_t n = 2 * PART;
    for (int i = 0; i < 20; i++, n += k + 1) {
        assert_int_equal(ht_speculation_guess(s, tokens, n, HT_DRAFT_TOKENS_MAX, NULL, out, &k, NULL), HT_OK);
        ht_speculation_learn(s, k, k, 0, 1 + row * k);
    }
    assert_true(k > 1);
    for (int i = 0; i < 20; i++) {
        ht_speculation_learn(s, FORCED, 0, 0, 1 + row * FORCED);
        ht_speculation_learn(s, 0, 0, FORCED + 1, 1 + row * (FORCED + 1));
    }
    assert_int_equal(ht_speculation_guess(s, tokens, n, HT_DRAFT_TOKENS_MAX, NULL, out, &again, NULL), HT_OK);
    assert_int_equal(again, k);
    ht_speculation_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens),
        cmocka_unit_test(right_guesses_save_steps),
        cmocka_unit_test(guesses_end_at_page_ends),
        cmocka_unit_test(the_same_distribution),
        cmocka_unit_test(in_an_engine),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_number_adapts),
        cmocka_unit_test(forced_guesses_cost_lookups_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
