/* Probes: against the logits of the same tokens, against the layers evaluated eagerly, and that they change no bit of an answer. */
#include "device/device.h"
#include "generate/session_internal.h"
#include "models/taps.h"
#include "models/weights.h"
#include "support/adapters.h"
#include "support/checkpoints.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 21, ANSWER = 24, ALL = PROMPT + ANSWER, MOST_LAYERS = 16, MOST_USED = 8, LIKELIEST = 6 };

static const char *const checkpoints[] = {"llama-q4_1.gguf",     "qwen2-sliding-f16",  "qwen3-moe-f32",
                                          "gemma2-f32",          "gemma3-f32",         "gemma4-shared-bf16",
                                          "gemma4-experts-bf16", "mistral-sliding-f32"};
enum { N_CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

static ht_model *load(const char *name) { return tiny_checkpoint_load(name, 2, NULL); }

/* ---- what is observed ---- */

typedef struct seen {
    int n[HT_PROBE_ALL + 1]; /* of a kind */
    int32_t answer;
    int64_t last_position;
    ht_probe top[ANSWER], entropy[ANSWER], cache[ANSWER], memory[ANSWER];
    int32_t token[ANSWER];
    ht_probe logprob[ANSWER];
    ht_token_probability likeliest[ANSWER][LIKELIEST];
    float norm[ANSWER][MOST_LAYERS];
    int n_routes;
    int32_t layer[MOST_LAYERS], expert[ANSWER][MOST_LAYERS][MOST_USED];
    float weight[ANSWER][MOST_LAYERS][MOST_USED];
} seen;

static void keep(const ht_probe *p, void *user) {
    seen *s = user;
    const int64_t i = p->index;
    assert_true(i >= 0 && i < ANSWER);
    assert_int_equal(i, s->n[p->kind]++); /* each once for each token, in order */
    assert_int_equal(p->position, PROMPT + i);
    s->answer = p->answer;
    switch (p->kind) {
    case HT_PROBE_TOKEN: s->token[i] = p->token; break;
    case HT_PROBE_TOP: s->top[i] = *p; break;
    case HT_PROBE_ENTROPY: s->entropy[i] = *p; break;
    case HT_PROBE_CACHE: s->cache[i] = *p; break;
    case HT_PROBE_MEMORY: s->memory[i] = *p; break;
    case HT_PROBE_ROUTER:
        s->n_routes = p->n_routes;
        for (int32_t r = 0; r < p->n_routes; r++) {
            s->layer[r] = p->routes[r].layer;
            assert_true(p->routes[r].n <= MOST_USED);
            memcpy(s->expert[i][r], p->routes[r].expert, (size_t)p->routes[r].n * sizeof(int32_t));
            memcpy(s->weight[i][r], p->routes[r].weight, (size_t)p->routes[r].n * sizeof(float));
        }
        break;
    case HT_PROBE_RESIDUAL:
        assert_true(p->n_layers <= MOST_LAYERS);
        memcpy(s->norm[i], p->norms, (size_t)p->n_layers * sizeof(float));
        break;
    case HT_PROBE_LOGPROB:
        s->logprob[i] = *p;
        assert_int_equal(p->n_likeliest, LIKELIEST);
        memcpy(s->likeliest[i], p->likeliest, sizeof s->likeliest[i]);
        break;
    case HT_PROBE_ALL: fail();
    }
}

/* Generates from the prompt of a salt, with probes of these kinds; the tokens of prompt and answer. */
static void generate(ht_model *m, ht_adapter *adapter, unsigned kinds, float temperature, int salt, seen *into,
                     int32_t *all) {
    ht_session *s;
    int32_t *prompt = checkpoint_ids(m, PROMPT, salt);
    const ht_probe_options probes =
        OPTIONS(ht_probe_options, with.kinds = kinds, with.fn = keep, with.user = into, with.top_logprobs = LIKELIEST);
    const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = temperature, with.seed = 5);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true,
                                          with.sampler = &sampler, with.probes = &probes);
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = 8), &s);
    assert_works(ht_session_set_adapters, s, &adapter, NULL, adapter != NULL);
    assert_works(ht_generate, s, prompt, PROMPT, &o, NULL, NULL, NULL);
    assert_int_equal(ht_session_length(s), ALL);
    memcpy(all, ht_session_tokens(s), ALL * sizeof *all);
    ht_session_free(s);
    free(prompt);
}

/* ---- against logits ---- */

static bool copy_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    memcpy((float *)user + first * vocab, logits, (size_t)(n_rows * vocab) * sizeof *logits);
    return true;
}

static void check_top(const ht_probe *p, const float *row, int32_t vocab) {
    assert_int_equal(p->n_top, HT_PROBE_TOP_LOGITS);
    for (int32_t k = 0; k < p->n_top; k++) {
        const int32_t id = p->top_token[k];
        int32_t above = 0; /* those that come before it */
        for (int32_t i = 0; i < vocab; i++) above += row[i] > row[id] || (row[i] == row[id] && i < id);
        assert_int_equal(above, k);
        assert_memory_equal(&p->top_logit[k], &row[id], sizeof *row);
    }
}

static double entropy_of(const float *row, int32_t vocab) {
    double max = (double)row[0], sum = 0, h = 0;
    for (int32_t i = 1; i < vocab; i++) max = fmax(max, (double)row[i]);
    for (int32_t i = 0; i < vocab; i++) sum += exp((double)row[i] - max);
    for (int32_t i = 0; i < vocab; i++) {
        const double p = exp((double)row[i] - max) / sum;
        if (p > 0) h -= p * log(p);
    }
    return h;
}

static void check_logits(ht_model *m, const seen *s, const int32_t *all) {
    ht_session *session;
    float *rows = malloc((size_t)ALL * (size_t)m->vocab * sizeof *rows);
    assert_non_null(rows);
    assert_works(ht_session_new, m, NULL, &session);
    assert_works(ht_session_forward, session, all, ALL, OPTIONS_AT(ht_forward_options, with.all_rows = true), copy_rows,
                 rows);
    for (int i = 0; i < ANSWER; i++) {
        const float *row = rows + (int64_t)(PROMPT + i - 1) * m->vocab;
        assert_int_equal(s->token[i], all[PROMPT + i]);
        check_top(&s->top[i], row, m->vocab);
        const double wanted = entropy_of(row, m->vocab);
        assert_true(fabs(s->entropy[i].entropy - wanted) < 1e-5 * fmax(1, wanted));
    }
    ht_session_free(session);
    free(rows);
}

/* ---- against scores ---- */

static bool compare_scores(const ht_score_result *r, void *user) {
    const seen *s = user;
    assert_int_equal(r->status, HT_OK);
    assert_int_equal(r->continuations[0].n_tokens, ANSWER);
    for (int i = 0; i < ANSWER; i++) {
        const ht_token_score *t = &r->continuations[0].tokens[i];
        assert_int_equal(s->logprob[i].token, t->id);
        assert_memory_equal(&s->logprob[i].log_probability, &t->log_probability, sizeof t->log_probability);
        assert_int_equal(t->n_top, LIKELIEST);
        for (int k = 0; k < LIKELIEST; k++) {
            assert_int_equal(s->likeliest[i][k].id, t->top[k].id);
            assert_memory_equal(&s->likeliest[i][k].log_probability, &t->top[k].log_probability,
                                sizeof t->top[k].log_probability);
        }
    }
    return true;
}

/* The answer scored as a continuation of its prompt: the same bits. */
static void check_scores(ht_model *m, const seen *s, const int32_t *all) {
    const ht_continuation answer = {.ids = all + PROMPT, .n_ids = ANSWER};
    const ht_score_request request = {
        .prompt = {.ids = all, .n_ids = PROMPT}, .continuations = &answer, .n_continuations = 1};
    seen copy = *s;
    assert_works(ht_score, m, &request, 1, OPTIONS_AT(ht_score_options, with.top_k = LIKELIEST), compare_scores, &copy);
}

/* ---- against layers ---- */

typedef struct watcher {
    ht_observer observer;
    ht_array *stream[MOST_LAYERS]; /* after each layer */
} watcher;

static bool attends(ht_observer *o, ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int kv_layer,
                    const ht_attention *how, ht_array *result) {
    (void)o, (void)c, (void)q, (void)k, (void)v, (void)kv_layer, (void)how, (void)result;
    return true;
}

static ht_array *watch_layer(ht_observer *o, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                             ht_array *const *in) {
    watcher *w = (watcher *)o;
    return w->stream[index] = layer(c, model, index, in);
}

static const float *values_of(ht_scope *s, ht_array *a) {
    const void *data;
    assert_works(ht_array_data, s, a, &data);
    return data;
}

static double norm_of(const float *x, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    return sqrt(squares);
}

/* One eager step over all tokens, each an output row: streams by an observer, routes as the forward function gives them. */
static void check_layers(ht_model *m, const seen *s, const int32_t *all) {
    const ht_config *cfg = m->config;
    int32_t pos[ALL];
    for (int i = 0; i < ALL; i++) pos[i] = i;
    ht_cache *cache;
    assert_works(ht_cache_new, m, ALL, &cache);
    assert_works(ht_cache_reserve, cache, ALL);
    const ht_batch b = {.n_tok = ALL,
                        .n_seq = 1,
                        .n_out = ALL,
                        .id = all,
                        .pos = pos,
                        .seq_start = (int32_t[]){0, ALL},
                        .kv_len = (int32_t[]){ALL},
                        .out_row = pos};
    const ht_step step = {.batch = &b, .kv = &cache};
    ht_taps taps;
    assert_works(ht_taps_begin, &taps, cfg);
    watcher w = {.observer = {.attends = attends, .layer = watch_layer}};
    ht_scope *scope = ht_scope_new(m->stream);
    ht_ctx c = {.s = scope, .step = &step, .observer = &w.observer, .taps = &taps};
    (void)values_of(scope, cfg->family->forward(&c, ht_weights_decoder(m->weights)));
    for (int64_t l = 0; l < cfg->n_layers; l++) {
        const float *h = values_of(scope, w.stream[l]);
        for (int i = 0; i < ANSWER; i++) {
            const double wanted = norm_of(h + (PROMPT + i - 1) * cfg->hidden, cfg->hidden);
            assert_true(fabs((double)s->norm[i][l] - wanted) < 1e-5 * wanted);
        }
    }
    int r = 0; /* an observer takes the place of what adds streams to the taps: they hold routes alone */
    const int64_t used = cfg->experts_used;
    for (int64_t l = 0; l < cfg->n_layers; l++) {
        if (!cfg->layer[l].has_experts) continue;
        const float *ids = values_of(scope, taps.array[2 * r]), *weights = values_of(scope, taps.array[2 * r + 1]);
        assert_int_equal(s->layer[r], l);
        for (int i = 0; i < ANSWER; i++)
            for (int64_t k = 0; k < used; k++) {
                const int64_t at = (PROMPT + i - 1) * used + k;
                assert_int_equal(s->expert[i][r][k], (int32_t)ids[at]);
                assert_true(s->expert[i][r][k] >= 0 && s->expert[i][r][k] < cfg->n_experts);
                assert_memory_equal(&s->weight[i][r][k], &weights[at], sizeof *weights);
            }
        r++;
    }
    assert_int_equal(s->n_routes, r);
    assert_int_equal(s->n[HT_PROBE_ROUTER], r ? ANSWER : 0);
    assert_int_equal(taps.n, 2 * r);
    ht_scope_free(scope);
    ht_taps_free(&taps);
    ht_cache_free(cache);
}

static void check_fill(const ht_model *m, const seen *s) {
    for (int i = 0; i < ANSWER; i++) {
        const ht_probe *c = &s->cache[i], *b = &s->memory[i];
        assert_int_equal(c->positions, PROMPT + i);
        assert_int_equal(c->context, m->context);
        assert_true(c->cache_bytes > 0 && c->cache_budget == 0);
        assert_true(c->pressure == (double)c->positions / (double)c->context);
        assert_true(b->memory_bytes > 0 && b->memory_peak >= b->memory_bytes);
        assert_true(b->memory_limit ? b->pressure > 0 && b->pressure < 1 : b->pressure == 0);
    }
}

UNIT_TEST(values) {
    bool routed = false;
    for (size_t c = 0; c < N_CHECKPOINTS; c++) {
        ht_model *m = load(checkpoints[c]);
        int32_t all[ALL];
        seen s = {0};
        generate(m, NULL, HT_PROBE_ALL, c % 2 ? 1.0F : 0.0F, 3, &s, all);
        for (int kind = 1; kind < HT_PROBE_ALL; kind *= 2)
            if (kind != HT_PROBE_ROUTER) assert_int_equal(s.n[kind], ANSWER);
        check_logits(m, &s, all);
        check_layers(m, &s, all);
        check_fill(m, &s);
        check_scores(m, &s, all);
        routed = routed || s.n_routes;
        ht_model_free(m);
    }
    assert_true(routed);
}

/* ---- answers stay as they are ---- */

UNIT_TEST(answers_do_not_change) {
    for (size_t c = 0; c < 2 * N_CHECKPOINTS; c++) {
        ht_model *m = load(checkpoints[c / 2]);
        ht_adapter *adapter = c % 2 ? test_adapter_for(m, 2, 2, c) : NULL;
        int32_t plain[ALL], probed[ALL];
        for (int sampled = 0; sampled < 2; sampled++) {
            seen none = {0}, s = {0};
            generate(m, adapter, 0, (float)sampled, (int)c, &none, plain);
            generate(m, adapter, HT_PROBE_ALL, (float)sampled, (int)c, &s, probed);
            assert_memory_equal(plain, probed, sizeof plain);
            for (int kind = 0; kind <= HT_PROBE_ALL; kind++) assert_int_equal(none.n[kind], 0);
        }
        ht_adapter_free(adapter);
        ht_model_free(m);
    }
}

/* Each kind by itself says what it says among all, and nothing else comes. */
UNIT_TEST(kinds_by_themselves) {
    ht_model *m = load("qwen3-moe-f32");
    int32_t all[ALL];
    seen whole = {0};
    generate(m, NULL, HT_PROBE_ALL, 0, 3, &whole, all);
    for (unsigned kind = 1; kind < HT_PROBE_ALL; kind *= 2) {
        seen s = {0};
        generate(m, NULL, kind, 0, 3, &s, all);
        for (unsigned other = 1; other < HT_PROBE_ALL; other *= 2)
            assert_int_equal(s.n[other], other == kind ? ANSWER : 0);
        if (kind == HT_PROBE_TOKEN) assert_memory_equal(s.token, whole.token, sizeof s.token);
        if (kind == HT_PROBE_RESIDUAL) assert_memory_equal(s.norm, whole.norm, sizeof s.norm);
        if (kind == HT_PROBE_ROUTER) assert_memory_equal(s.expert, whole.expert, sizeof s.expert);
        if (kind == HT_PROBE_ROUTER) assert_memory_equal(s.weight, whole.weight, sizeof s.weight);
        for (int i = 0; i < ANSWER; i++) {
            if (kind == HT_PROBE_ENTROPY) assert_true(s.entropy[i].entropy == whole.entropy[i].entropy);
            if (kind == HT_PROBE_LOGPROB) assert_true(s.logprob[i].log_probability == whole.logprob[i].log_probability);
            if (kind == HT_PROBE_TOP)
                assert_memory_equal(s.top[i].top_logit, whole.top[i].top_logit, sizeof s.top[i].top_logit);
        }
    }
    ht_model_free(m);
}

/* What the first layers say is taken before the last ones are computed: streams of all layers do not wait in memory. */
UNIT_TEST(memory_of_a_step) {
    for (size_t c = 0; c < N_CHECKPOINTS; c++) {
        ht_model *m = load(checkpoints[c]);
        const ht_plan *plain, *tapped;
        assert_works(ht_model_plan, m, 0, &plain);
        assert_works(ht_model_plan, m, HT_PLAN_TAPS, &tapped);
        const double before = (double)ht_exec_bytes(plain, 512, 1), with = (double)ht_exec_bytes(tapped, 512, 1);
        const double stream = 512 * sizeof(float) * (double)m->config->hidden;
        print_message("%s: %.2f streams in memory, %.2f with taps\n", checkpoints[c], before / stream, with / stream);
        assert_true(before > stream);
        /* Inputs of layers that share keys are cut in another order, which has its own need of memory. */
        if (m->n_cache_layers == m->config->n_layers) assert_true(with < 1.25 * before);
        ht_model_free(m);
    }
}

/* ---- the engine ---- */

enum { REQUESTS = 8 };

typedef struct asked {
    seen s;
    int32_t answer[ANSWER];
    ht_status status;
} asked;

static void on_end(const ht_answer_report *r, void *user) {
    asked *a = user;
    a->status = r->status;
    if (!r->status && r->metrics.generated_tokens == ANSWER) memcpy(a->answer, r->token, sizeof a->answer);
    assert_true(!a->s.n[HT_PROBE_TOKEN] || a->s.n[HT_PROBE_TOKEN] == ANSWER); /* all came before */
}

static void keep_asked(const ht_probe *p, void *user) { keep(p, &((asked *)user)->s); }

/* Requests with probes and without in one step. */
UNIT_TEST(in_company) {
    static const char *const names[] = {"qwen3-moe-f32", "gemma4-experts-bf16", "llama-q4_1.gguf"};
    for (size_t c = 0; c < 3; c++) {
        ht_model *m = load(names[c]);
        ht_engine *e;
        asked *a = calloc(REQUESTS, sizeof *a);
        assert_non_null(a);
        assert_works(ht_engine_open, m, NULL, &e);
        for (int i = 0; i < REQUESTS; i++) {
            int32_t *prompt = checkpoint_ids(m, PROMPT, i);
            const ht_probe_options probes =
                OPTIONS(ht_probe_options, with.kinds = i % 3 ? HT_PROBE_ALL : 0, with.fn = keep_asked,
                        with.user = &a[i], with.top_logprobs = LIKELIEST);
            const ht_generate_options o =
                OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true, with.probes = &probes);
            const ht_request r = OPTIONS(ht_request, with.ids = prompt, with.n_ids = PROMPT, with.options = &o,
                                         with.end = on_end, with.user = &a[i]);
            ht_ticket ticket;
            assert_works(ht_engine_submit, e, &r, &ticket);
            free(prompt);
        }
        ht_engine_wait(e, 0);
        for (int i = 0; i < REQUESTS; i++) {
            int32_t all[ALL];
            seen alone = {0};
            generate(m, NULL, HT_PROBE_ALL, 0, i, &alone, all);
            assert_int_equal(a[i].status, HT_OK);
            assert_memory_equal(a[i].answer, all + PROMPT, sizeof a[i].answer);
            assert_int_equal(a[i].s.n[HT_PROBE_RESIDUAL], i % 3 ? ANSWER : 0);
            if (i % 3 == 0) continue;
            assert_memory_equal(a[i].s.token, alone.token, sizeof alone.token);
            assert_memory_equal(a[i].s.norm, alone.norm, sizeof alone.norm);
            assert_memory_equal(a[i].s.expert, alone.expert, sizeof alone.expert);
            assert_memory_equal(a[i].s.weight, alone.weight, sizeof alone.weight);
            assert_memory_equal(a[i].s.likeliest, alone.likeliest, sizeof alone.likeliest);
            for (int t = 0; t < ANSWER; t++) {
                assert_memory_equal(a[i].s.top[t].top_logit, alone.top[t].top_logit, sizeof alone.top[t].top_logit);
                assert_true(a[i].s.entropy[t].entropy == alone.entropy[t].entropy);
                assert_true(a[i].s.logprob[t].log_probability == alone.logprob[t].log_probability);
                assert_true(a[i].s.cache[t].cache_budget > 0 && a[i].s.cache[t].pressure > 0);
            }
        }
        ht_engine_close(e);
        free(a);
        ht_model_free(m);
    }
}

/* ---- what is refused ---- */

UNIT_TEST(refusals) {
    ht_model *m = load("llama-f32");
    ht_session *s;
    const int32_t ids[] = {1, 2, 3};
    assert_works(ht_session_new, m, NULL, &s);
    const ht_probe_options unknown = OPTIONS(ht_probe_options, with.kinds = 256, with.fn = keep);
    const ht_probe_options nobody = OPTIONS(ht_probe_options, with.kinds = HT_PROBE_TOKEN);
    const ht_probe_options many =
        OPTIONS(ht_probe_options, with.kinds = HT_PROBE_LOGPROB, with.fn = keep, with.top_logprobs = 21);
    const ht_probe_options *const wrong[] = {&unknown, &nobody, &many};
    static const char *const says[] = {"of which 0x100 are none", "no function to take them",
                                       "top_logprobs is 21, expected 0 to 20"};
    ht_engine *e;
    assert_works(ht_engine_open, m, NULL, &e);
    for (int i = 0; i < 3; i++) {
        const ht_generate_options o = OPTIONS(ht_generate_options, with.probes = wrong[i]);
        assert_fails(HT_ERR_ARGUMENT, says[i], ht_generate, s, ids, 3, &o, NULL, NULL, NULL);
        const ht_request r = OPTIONS(ht_request, with.ids = ids, with.n_ids = 3, with.options = &o);
        ht_ticket ticket;
        assert_fails(HT_ERR_ARGUMENT, says[i], ht_engine_submit, e, &r, &ticket);
    }
    ht_engine_close(e);
    ht_session_free(s);
    ht_model_free(m);
    assert_string_equal(ht_probe_name(HT_PROBE_ENTROPY), "entropy");
    assert_null(ht_probe_name((ht_probe_kind)3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(answers_do_not_change),
        cmocka_unit_test(kinds_by_themselves),
        cmocka_unit_test(memory_of_a_step),
        cmocka_unit_test(in_company),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, scratch_start, scratch_finish);
}
