/* Answers of a grammar: every one is a text of it or the beginning of one, alone and in an engine, with guesses and without. */
#include "grammar/grammar.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/engine.h>
#include <hearth/grammar.h>

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

typedef struct answer {
    char text[4 * MOST];
    size_t n;
    ht_finish finish;
    int64_t n_tokens, guessed, accepted;
} answer;

static bool take_text(const char *text, size_t n, void *user) {
    answer *a = user;
    assert_true(a->n + n < sizeof a->text);
    memcpy(a->text + a->n, text, n + 1);
    a->n += n;
    return true;
}

/* How far n ids are a text of the grammar; fails where they are not the beginning of one. */
static ht_ending ending_of(ht_grammar *g, const int32_t *ids, size_t n) {
    ht_matcher *m;
    ht_ending ending;
    bool allowed;
    assert_int_equal(ht_matcher_new(g, &m, NULL), HT_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ht_matcher_accept(m, ids[i], &allowed, NULL), HT_OK);
        assert_true(allowed);
    }
    assert_int_equal(ht_matcher_ending(m, &ending, NULL), HT_OK);
    ht_matcher_free(m);
    return ending;
}

static void ignore_probe(const ht_probe *probe, void *user) {
    (void)probe;
    (void)user;
}

/* With probes nothing is guessed. */
static answer generate(ht_model *model, ht_grammar *g, uint64_t seed, float temperature, bool lookup, bool probed) {
    answer a = {.n = 0};
    int32_t prompt[8];
    ht_metrics metrics;
    ht_session *s = tiny_session(model, 32);
    const ht_sampler_options sampler =
        OPTIONS(ht_sampler_options, with.temperature = temperature, with.seed = seed,
                with.top_k = seed % 3 == 1 ? 5 : 0, with.repeat_penalty = seed % 3 == 2 ? 1.3f : 1);
    const ht_probe_options probes = OPTIONS(ht_probe_options, with.kinds = HT_PROBE_TOKEN, with.fn = ignore_probe);
    const ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = MOST, with.sampler = &sampler, with.grammar = g,
                with.lookup = lookup, with.probes = probed ? &probes : NULL);
    tiny_ids(prompt, 8, seed);
    assert_works(ht_generate, s, prompt, 8, &o, take_text, &a, &metrics);
    a.finish = metrics.finish;
    a.n_tokens = metrics.generated_tokens;
    a.guessed = metrics.guessed_tokens;
    a.accepted = metrics.accepted_tokens;
    assert_int_equal(ht_session_length(s), 8 + a.n_tokens);
    const ht_ending ending = ending_of(g, ht_session_tokens(s) + 8, (size_t)a.n_tokens);
    if (a.finish == HT_FINISH_STOP) assert_int_not_equal(ending, HT_ENDING_NOT);
    if (ending == HT_ENDING_MUST) assert_int_equal(a.finish, HT_FINISH_STOP);
    ht_session_free(s);
    return a;
}

static const char *const patterns[] = {"(yes|no)", "[a-c]{3}-\\d+", "(?:ab)*c?", "\\p{L}{2,9}!", "(.|\\n){60,}"};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

UNIT_TEST(answers) {
    ht_model *model = tiny_load(&(tiny_options){0});
    int n_ended = 0;
    for (int i = 0; i < N_PATTERNS; i++) {
        ht_grammar *g = tiny_regex(model, patterns[i]);
        for (uint64_t seed = 0; seed < 6; seed++) {
            const answer plain = generate(model, g, seed, seed ? 1.5f : 0, false, true);
            const answer forced = generate(model, g, seed, seed ? 1.5f : 0, false, false);
            const answer guessed = generate(model, g, seed, seed ? 1.5f : 0, true, false);
            assert_int_equal(plain.guessed, 0);
            assert_string_equal(plain.text, forced.text);
            assert_string_equal(plain.text, guessed.text);
            assert_int_equal(plain.finish, forced.finish);
            assert_int_equal(plain.finish, guessed.finish);
            n_ended += plain.finish == HT_FINISH_STOP;
            if (i == 0) assert_true(!strcmp(plain.text, "yes") || !strcmp(plain.text, "no"));
        }
        ht_grammar_free(g);
    }
    assert_in_range(n_ended, 10, 29);
    ht_model_free(model);
}

/* What a grammar leaves no choice about is computed in fewer steps than it has tokens. */
UNIT_TEST(forced_text) {
    ht_model *model = tiny_load(&(tiny_options){0});
    ht_grammar *g = tiny_regex(model, "[ab](0123456789){4}[cd]");
    int64_t accepted = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        const answer plain = generate(model, g, seed, 1.5f, false, true);
        const answer forced = generate(model, g, seed, 1.5f, false, false);
        assert_string_equal(plain.text, forced.text);
        assert_int_equal(plain.n_tokens, forced.n_tokens);
        assert_true(forced.guessed >= forced.accepted);
        accepted += forced.accepted;
    }
    assert_true(accepted >= 6 * 8);
    ht_grammar_free(g);
    ht_model_free(model);
}

typedef struct shared {
    int32_t token[4][MOST];
    int64_t n[4];
    ht_finish finish[4];
} shared;

static void take_end(const ht_answer_report *r, void *user) {
    shared *all = user;
    if (r->status) fail_msg("%s", r->message);
    all->n[r->answer] = r->metrics.generated_tokens;
    all->finish[r->answer] = r->metrics.finish;
    if (r->metrics.generated_tokens)
        memcpy(all->token[r->answer], r->token, (size_t)r->metrics.generated_tokens * sizeof *r->token);
}

/* Four answers of each request side by side, while memory for all of them is short: each is the one that is given alone. */
UNIT_TEST(engine_answers) {
    ht_model *model = tiny_load(&(tiny_options){0});
    ht_engine *e;
    static shared got[N_PATTERNS];
    const ht_engine_options how = OPTIONS(ht_engine_options, with.sequences = 6, with.kv_bytes = (size_t)1 << 20);
    assert_works(ht_engine_open, model, &how, &e);
    int32_t prompt[8];
    tiny_ids(prompt, 8, 1);
    for (int i = 0; i < N_PATTERNS; i++) {
        ht_grammar *g = tiny_regex(model, patterns[i]);
        const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 1.2f, with.seed = 40);
        const ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = MOST, with.sampler = &sampler, with.grammar = g);
        const ht_request r = OPTIONS(ht_request, with.ids = prompt, with.n_ids = 8, with.options = &o, with.n = 4,
                                     with.end = take_end, with.user = &got[i]);
        ht_ticket ticket;
        assert_works(ht_engine_submit, e, &r, &ticket);
        ht_grammar_free(g); /* the request holds it */
    }
    ht_engine_wait(e, 0);
    ht_engine_close(e);
    for (int i = 0; i < N_PATTERNS; i++) {
        ht_grammar *g = tiny_regex(model, patterns[i]);
        for (int k = 0; k < 4; k++) {
            const ht_ending ending = ending_of(g, got[i].token[k], (size_t)got[i].n[k]);
            if (got[i].finish[k] == HT_FINISH_STOP) assert_int_not_equal(ending, HT_ENDING_NOT);
            const ht_sampler_options sampler =
                OPTIONS(ht_sampler_options, with.temperature = 1.2f, with.seed = 40 + (uint64_t)k);
            const ht_generate_options o =
                OPTIONS(ht_generate_options, with.max_tokens = MOST, with.sampler = &sampler, with.grammar = g);
            ht_session *s = tiny_session(model, 32);
            assert_works(ht_generate, s, prompt, 8, &o, NULL, NULL, NULL);
            assert_int_equal(ht_session_length(s) - 8, got[i].n[k]);
            assert_memory_equal(ht_session_tokens(s) + 8, got[i].token[k], (size_t)got[i].n[k] * sizeof(int32_t));
            ht_session_free(s);
        }
        ht_grammar_free(g);
    }
    ht_model_free(model);
}

UNIT_TEST(other_models) {
    ht_model *model = tiny_load(&(tiny_options){0}), *other = tiny_load(&(tiny_options){0});
    ht_grammar *g = tiny_regex(other, "a");
    ht_session *s = tiny_session(model, 32);
    const int32_t ids[] = {1, 2};
    const ht_generate_options o = OPTIONS(ht_generate_options, with.grammar = g);
    assert_fails(HT_ERR_ARGUMENT, "another model", ht_generate, s, ids, 2, &o, NULL, NULL, NULL);
    assert_int_equal(ht_session_length(s), 0);
    ht_session_free(s);
    ht_grammar_free(g);
    ht_model_free(model);
    ht_model_free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(forced_text, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(engine_answers, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(other_models, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
