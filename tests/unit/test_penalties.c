/* Penalties of what an answer has already, and biases, in whole answers: against plain arithmetic on logits, in sessions that go
 * on, with guesses, with grammars, and in an engine that sets answers back. What ended an answer. */
#include "generate/cache.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/engine.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 24, ANSWER = 40, MOST = 2 * (PROMPT + ANSWER) };

static ht_model *model;

static int make_model(void **state) {
    scratch_make();
    *state = model = tiny_load(&(tiny_options){0});
    return 0;
}

static void generate(ht_session *s, const int32_t *prompt, size_t n, const ht_generate_options *o,
                     ht_metrics *metrics) {
    assert_works(ht_generate, s, prompt, n, o, NULL, NULL, metrics);
}

/* ---- arithmetic ---- */

static const ht_logit_bias some[] = {{40, 1.5f}, {3, -2}, {7, 0.25f}, {0, -100}};

/* The most likely token by what the interface of OpenAI says, in double precision. */
static int32_t plain_pick(const ht_sampler_options *o, const float *logits, const int32_t *generated, int n) {
    int32_t best = 0;
    double highest = -INFINITY;
    for (int32_t id = 0; id < TINY_VOCAB; id++) {
        double x = (double)logits[id];
        int count = 0;
        for (int i = 0; i < o->n_logit_bias; i++)
            if (o->logit_bias[i].id == id) x = (double)(float)(x + (double)o->logit_bias[i].bias);
        for (int i = 0; i < n; i++) count += generated[i] == id;
        if (count) x = (double)(float)(x - (count * (double)o->frequency_penalty + (double)o->presence_penalty));
        if (x <= highest) continue;
        highest = x;
        best = id;
    }
    return best;
}

/* Checks n tokens behind `first` of a session's, which one call has generated. */
static void check_call(const ht_sampler_options *o, const int32_t *tokens, const float *rows, int first, int n) {
    for (int i = 0; i < n; i++) {
        const float *row = rows + (size_t)(first + i - 1) * TINY_VOCAB;
        assert_int_equal(tokens[first + i], plain_pick(o, row, tokens + first, i));
    }
}

/* Two calls on a session: each counts what it has generated itself, neither the prompt nor the other's answer. */
UNIT_TEST(as_plain_arithmetic_has_it) {
    int32_t prompt[PROMPT], tokens[MOST], plain[ANSWER];
    static const float pairs[][2] = {{0, 0}, {0.6f, 0}, {0, 0.4f}, {1.5f, 0.7f}, {-0.5f, 0}, {0.2f, -0.3f}, {2, 1e30f}};
    int differ = 0;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
        for (int biased = 0; biased < 2; biased++) {
            const ht_sampler_options sampler =
                OPTIONS(ht_sampler_options, with.presence_penalty = pairs[p][0], with.frequency_penalty = pairs[p][1],
                        with.logit_bias = biased ? some : NULL, with.n_logit_bias = biased ? 4 : 0);
            const ht_generate_options o =
                OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true, with.sampler = &sampler);
            ht_session *s = tiny_session(model, 16);
            tiny_ids(prompt, PROMPT, 3);
            generate(s, prompt, PROMPT, &o, NULL);
            if (!p && !biased) memcpy(plain, ht_session_tokens(s) + PROMPT, sizeof plain);
            differ += memcmp(plain, ht_session_tokens(s) + PROMPT, sizeof plain) != 0;
            generate(s, prompt, PROMPT, &o, NULL);
            assert_int_equal(ht_session_length(s), MOST);
            memcpy(tokens, ht_session_tokens(s), sizeof tokens);
            ht_session_free(s);
            float *rows = tiny_rows(MOST);
            s = tiny_session(model, 512);
            tiny_forward(s, tokens, MOST, true, rows);
            check_call(&sampler, tokens, rows, PROMPT, ANSWER);
            check_call(&sampler, tokens, rows, 2 * PROMPT + ANSWER, ANSWER);
            ht_session_free(s);
            free(rows);
        }
    assert_true(differ > 8); /* of 14 */
}

/* ---- everywhere the same ---- */

enum { WAYS = 8, LONG = 236 };

/* Samplers of some kinds; `pages` of tokens are near their end in the prompts. */
static ht_sampler_options sampler_of(int way) {
    return OPTIONS(ht_sampler_options, with.temperature = way % 2 ? 0.8f : 0, with.seed = (uint64_t)way,
                   with.top_k = way % 4 == 3 ? 30 : 0, with.repeat_penalty = way % 3 ? 1 : 1.2f,
                   with.presence_penalty = way % 4 ? 0.7f : -0.4f, with.frequency_penalty = way % 5 ? 0.3f : 0,
                   with.logit_bias = some, with.n_logit_bias = way % 3 == 1 ? 4 : 0,
                   with.order = way == 6 ? "top_p,repeat_penalty" : NULL, with.top_p = way == 6 ? 0.9f : 0);
}

typedef struct answered {
    int32_t token[ANSWER];
    ht_metrics metrics;
    ht_status status;
    int32_t preempted;
} answered;

static void take_end(const ht_answer_report *r, void *user) {
    answered *a = user;
    a->status = r->status;
    a->metrics = r->metrics;
    a->preempted = r->preempted;
    if (r->metrics.generated_tokens <= ANSWER && r->metrics.generated_tokens)
        memcpy(a->token, r->token, (size_t)r->metrics.generated_tokens * sizeof *r->token);
}

static void alone(int way, int32_t chunk, bool lookup, ht_model *draft, const int32_t *prompt, int32_t *out) {
    const ht_sampler_options sampler = sampler_of(way);
    const ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true, with.sampler = &sampler,
                with.lookup = lookup, with.draft = draft, with.draft_tokens = lookup || draft ? 4 : 0);
    ht_session *s = tiny_session(model, chunk);
    ht_metrics metrics;
    generate(s, prompt, LONG, &o, &metrics);
    if (draft) assert_true(metrics.accepted_tokens == metrics.guessed_tokens && metrics.guessed_tokens > ANSWER / 2);
    memcpy(out, ht_session_tokens(s) + LONG, ANSWER * sizeof *out);
    ht_session_free(s);
}

/* With little memory answers are set back in their middle, and computed again. */
static void in_engines(bool lookup, int32_t sequences, size_t kv_bytes, int32_t prompt[WAYS][LONG],
                       int32_t want[WAYS][ANSWER]) {
    static answered got[WAYS];
    ht_logit_bias lent[WAYS][4];
    ht_engine *e;
    const ht_engine_options how =
        OPTIONS(ht_engine_options, with.sequences = sequences, with.kv_bytes = kv_bytes, with.prefix_bytes = 0);
    assert_works(ht_engine_open, model, &how, &e);
    memset(got, 0, sizeof got);
    for (int way = 0; way < WAYS; way++) {
        memcpy(lent[way], some, sizeof some);
        ht_sampler_options sampler = sampler_of(way);
        sampler.logit_bias = lent[way];
        const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true,
                                              with.sampler = &sampler, with.lookup = lookup);
        const ht_request r = OPTIONS(ht_request, with.ids = prompt[way], with.n_ids = LONG, with.options = &o,
                                     with.end = take_end, with.user = &got[way]);
        ht_ticket ticket;
        assert_works(ht_engine_submit, e, &r, &ticket);
    }
    memset(lent, 0, sizeof lent); /* requests have their own */
    ht_engine_wait(e, 0);
    const int64_t preempted = ht_engine_get_statistics(e).preempted;
    ht_engine_close(e);
    for (int way = 0; way < WAYS; way++) {
        assert_int_equal(got[way].status, HT_OK);
        assert_memory_equal(got[way].token, want[way], sizeof want[way]);
        assert_true(got[way].metrics.stop == -1 && got[way].metrics.stop_id == -1);
    }
    assert_true(kv_bytes ? preempted > 0 : preempted == 0);
}

UNIT_TEST(the_same_everywhere) {
    static int32_t prompt[WAYS][LONG], want[WAYS][ANSWER];
    int32_t other[ANSWER];
    for (int way = 0; way < WAYS; way++) {
        tiny_ids(prompt[way], LONG, (uint64_t)(20 + way));
        alone(way, 512, false, NULL, prompt[way], want[way]);
        for (int how = 0; how < 3; how++) {
            alone(way, how == 1 ? 512 : 16, how > 0, how == 2 ? model : NULL, prompt[way], other);
            assert_memory_equal(other, want[way], sizeof other);
        }
        alone(way, 64, false, model, prompt[way], other);
        assert_memory_equal(other, want[way], sizeof other);
    }
    in_engines(false, 1, 0, prompt, want);
    in_engines(false, WAYS, 0, prompt, want);
    in_engines(true, WAYS, 0, prompt, want);
    in_engines(false, WAYS, 4 * ht_cache_bytes(model, 256, 512), prompt, want);
}

/* ---- grammars ---- */

static int32_t id_of(const char *text) {
    int32_t *ids, id;
    size_t n;
    assert_int_equal(ht_tokenizer_encode(ht_model_tokenizer(model), text, strlen(text), 0, &ids, &n, NULL), HT_OK);
    assert_int_equal(n, 1);
    id = *ids;
    ht_ids_free(ids);
    return id;
}

static bool append(const char *text, size_t n, void *user) {
    strncat(user, text, n);
    return true;
}

UNIT_TEST(biases_choose_among_what_a_grammar_allows) {
    static const struct {
        const char *pattern, *biased;
        float bias;
        const char *answer;
    } cases[] = {{"[abc]", "a", 100, "a"},  {"[abc]", "b", 100, "b"}, {"[abc]", "c", 100, "c"},
                 {"[ab]", "c", 100, NULL},  {"a", "a", -100, "a"},    {"[ab]", "a", -100, "b"},
                 {"[ab]", "b", -3e38f, "a"}};
    char unbiased[16] = "";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_grammar *g;
        ht_metrics metrics;
        assert_works(ht_grammar_from_regex, model, cases[i].pattern, strlen(cases[i].pattern), &g);
        const ht_logit_bias bias = {id_of(cases[i].biased), cases[i].bias};
        ht_sampler_options sampler = DEFAULTS(ht_sampler_options);
        const ht_generate_options o = OPTIONS(ht_generate_options, with.sampler = &sampler, with.grammar = g);
        for (int biased = 0; biased < 2; biased++) {
            char text[16] = "";
            int32_t prompt[4];
            tiny_ids(prompt, 4, 1);
            sampler.logit_bias = &bias;
            sampler.n_logit_bias = biased;
            ht_session *s = tiny_session(model, 16);
            assert_works(ht_generate, s, prompt, 4, &o, append, text, &metrics);
            assert_int_equal(metrics.finish, HT_FINISH_STOP);
            assert_true(metrics.stop == -1 && metrics.stop_id == -1); /* the text could only end */
            if (!biased) strcpy(unbiased, text);
            assert_string_equal(text, biased && cases[i].answer ? cases[i].answer : unbiased);
            ht_session_free(s);
        }
        ht_grammar_free(g);
    }
}

/* ---- what ended an answer ---- */

static bool take_piece(const ht_answer_piece *piece, int32_t answer, void *user) {
    (void)piece, (void)answer, (void)user;
    return true;
}

static bool refuse(const ht_answer_piece *piece, int32_t answer, void *user) {
    (void)piece, (void)answer, (void)user;
    return false;
}

static ht_metrics ask(ht_engine *e, const ht_generate_options *o, ht_engine_piece_fn *fn) {
    int32_t prompt[PROMPT];
    answered a = {0};
    tiny_ids(prompt, PROMPT, 3);
    const ht_request r = OPTIONS(ht_request, with.ids = prompt, with.n_ids = PROMPT, with.options = o, with.piece = fn,
                                 with.end = take_end, with.user = &a);
    ht_ticket ticket;
    assert_works(ht_engine_submit, e, &r, &ticket);
    ht_engine_wait(e, ticket);
    assert_int_equal(a.status, HT_OK);
    return a.metrics;
}

UNIT_TEST(an_engine_tells_what_ended_an_answer) {
    ht_engine *e;
    const char *const stops[] = {"never to be seen", "a", "b"};
    const ht_logit_bias to_b[] = {{id_of("b"), 100}}, to_end[] = {{TINY_EOS, 100}};
    ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.logit_bias = to_b, with.n_logit_bias = 1);
    const ht_generate_options o =
        OPTIONS(ht_generate_options, with.sampler = &sampler, with.stop = stops, with.n_stop = 3, with.max_tokens = 9);
    assert_works(ht_engine_open, model, NULL, &e);
    ht_metrics m = ask(e, &o, take_piece);
    assert_int_equal(m.finish, HT_FINISH_STOP);
    assert_int_equal(m.stop, 2);
    assert_int_equal(m.stop_id, -1);
    assert_int_equal(m.generated_tokens, 1);
    sampler.logit_bias = to_end;
    m = ask(e, &o, take_piece);
    assert_int_equal(m.finish, HT_FINISH_STOP);
    assert_int_equal(m.stop, -1);
    assert_int_equal(m.stop_id, TINY_EOS);
    assert_int_equal(m.generated_tokens, 0);
    sampler.logit_bias = to_b;
    ht_generate_options longer = o;
    longer.n_stop = 0;
    m = ask(e, &longer, take_piece);
    assert_int_equal(m.finish, HT_FINISH_LENGTH);
    assert_true(m.stop == -1 && m.stop_id == -1);
    longer.max_tokens = 200;
    m = ask(e, &longer, refuse);
    assert_int_equal(m.finish, HT_FINISH_CALLBACK);
    assert_true(m.stop == -1 && m.stop_id == -1);
    ht_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_plain_arithmetic_has_it),
        cmocka_unit_test(the_same_everywhere),
        cmocka_unit_test(biases_choose_among_what_a_grammar_allows),
        cmocka_unit_test(an_engine_tells_what_ended_an_answer),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_teardown);
}
