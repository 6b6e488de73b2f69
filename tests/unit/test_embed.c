/* Embeddings: against float32 transformers (tests/golden/make_embed.py), against the logits that the head makes of them, alone and
 * in company to the bit, and what is refused. */
#include "formats/json.h"
#include "generate/session_internal.h"
#include "models/decoder.h"
#include "models/weights.h"
#include "support/adapters.h"
#include "support/checkpoints.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_model *load(const char *name, ht_precision precision, ht_dtype kv) {
    return tiny_checkpoint_load(name, 2, OPTIONS_AT(ht_model_options, with.precision = precision, with.kv_dtype = kv));
}

static ht_embeddings *embed(ht_model *m, const int32_t *const *ids, const size_t *n_ids, size_t n,
                            const ht_embed_options *o) {
    ht_embeddings *e;
    assert_works(ht_embed_ids, m, ids, n_ids, n, o, &e);
    assert_int_equal(e->n, n);
    assert_int_equal(e->hidden, m->config->hidden);
    return e;
}

static ht_embeddings *embed_one(ht_model *m, const int32_t *ids, size_t n, const ht_embed_options *o) {
    ht_embeddings *e = embed(m, &ids, &n, 1, o);
    if (e->n_failed) fail_msg("%s", e->embeddings[0].message);
    assert_int_equal(e->embeddings[0].n_tokens, n);
    return e;
}

static double length_of(const float *x, int32_t n) {
    double squares = 0;
    for (int32_t d = 0; d < n; d++) squares += (double)x[d] * (double)x[d];
    return sqrt(squares);
}

/* ---- golden ---- */

/* Sums in another order, in units of the largest value; decimals of the file are exact to 1e-6. */
static const double tolerance = 2e-5;

static double check_pooled(ht_model *m, const int32_t *ids, size_t n, ht_pooling pooling, const ht_json *wanted) {
    ht_embeddings *raw =
        embed_one(m, ids, n, OPTIONS_AT(ht_embed_options, with.pooling = pooling, with.normalize = false));
    ht_embeddings *unit = embed_one(m, ids, n, OPTIONS_AT(ht_embed_options, with.pooling = pooling));
    double largest = 0, most = 0;
    assert_int_equal(ht_json_array_size(wanted), raw->hidden);
    for (int32_t d = 0; d < raw->hidden; d++)
        largest = fmax(largest, fabs(ht_json_number_value(ht_json_array_get(wanted, (size_t)d))));
    const double length = length_of(raw->values, raw->hidden);
    assert_true(largest > 0 && fabs(length_of(unit->values, raw->hidden) - 1) < 1e-6);
    for (int32_t d = 0; d < raw->hidden; d++) {
        const double off = fabs((double)raw->values[d] - ht_json_number_value(ht_json_array_get(wanted, (size_t)d)));
        most = off > most || isnan(off) ? off : most;
        assert_true(fabs((double)unit->values[d] - (double)raw->values[d] / length) < 1e-6);
    }
    ht_embeddings_free(raw);
    ht_embeddings_free(unit);
    return most / largest;
}

UNIT_TEST(golden) {
    ht_json *document = json_file("tests/golden/embed.json");
    const ht_json *cases = ht_json_object_get(document, "cases");
    assert_true(ht_json_array_size(cases) > 20);
    for (size_t i = 0; i < ht_json_array_size(cases); i++) {
        const ht_json *c = ht_json_array_get(cases, i), *list = ht_json_object_get(c, "ids");
        const char *name = ht_json_string_value(ht_json_object_get(c, "checkpoint"));
        const size_t n = ht_json_array_size(list);
        int32_t *ids = json_ids(list);
        ht_model *m = load(name, HT_PRECISION_REFERENCE, HT_F32);
        const double last = check_pooled(m, ids, n, HT_POOLING_LAST, ht_json_object_get(c, "last"));
        const double mean = check_pooled(m, ids, n, HT_POOLING_MEAN, ht_json_object_get(c, "mean"));
        print_message("%s: off by %.2e (last) and %.2e (mean) of the largest value\n", name, last, mean);
        assert_true(last < tolerance && mean < tolerance);
        ht_model_free(m);
        free(ids);
    }
    ht_json_decref(document);
}

/* ---- the head ---- */

static bool copy_row(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)first;
    memcpy(user, logits + (n_rows - 1) * vocab, (size_t)vocab * sizeof *logits);
    return true;
}

/* The head's product with a hidden state, as logits. */
static void check_head(ht_model *m, const float *hidden, const float *logits) {
    const ht_decoder_weights *d = ht_weights_decoder(m->weights);
    ht_scope *s = ht_scope_new(m->stream);
    ht_ctx c = {.s = s};
    const void *values;
    ht_array *h = ht_array_from(s, hidden, HT_F32, (int64_t[]){1, m->config->hidden}, 2);
    ht_array *y = ht_linear(&c, h, &d->head);
    if (m->config->final_softcap > 0) y = ht_softcap(s, y, m->config->final_softcap);
    assert_works(ht_array_data, s, y, &values);
    assert_memory_equal(values, logits, (size_t)m->vocab * sizeof *logits);
    ht_scope_free(s);
}

/* Hidden states are those of which the logits of a session are made, to the bit, with adapters, too. */
UNIT_TEST(head_gives_the_logits) {
    static const char *const names[] = {"llama-f32",  "llama-q4_1.gguf",  "qwen2-sliding-f16",  "qwen3-moe-f32",
                                        "gemma2-f32", "gemma3-q5_1.gguf", "gemma4-shared-bf16", "gemma4-experts-bf16"};
    enum { N = 40 };
    for (size_t c = 0; c < 2 * sizeof names / sizeof *names; c++) {
        ht_model *m = load(names[c / 2], HT_PRECISION_HIGH, HT_F16);
        ht_adapter *adapter = c % 2 ? test_adapter_for(m, 3, 2, c) : NULL;
        int32_t *ids = checkpoint_ids(m, N, 3);
        float *logits = malloc((size_t)m->vocab * sizeof *logits);
        assert_non_null(logits);
        ht_session *s;
        assert_works(ht_session_new, m, NULL, &s);
        assert_works(ht_session_set_adapters, s, &adapter, NULL, adapter != NULL);
        assert_works(ht_session_forward, s, ids, N, NULL, copy_row, logits);
        ht_embeddings *e = embed_one(m, ids, N,
                                     OPTIONS_AT(ht_embed_options, with.normalize = false, with.adapters = &adapter,
                                                with.n_adapters = adapter != NULL));
        check_head(m, e->values, logits);
        ht_embeddings_free(e);
        ht_session_free(s);
        ht_adapter_free(adapter);
        free(logits);
        free(ids);
        ht_model_free(m);
    }
}

/* ---- company ---- */

/* Texts of many lengths: more than there are slots, some longer than a step. */
enum { N_TEXTS = 40, SLOTS = 16 };
static const int lengths[] = {1, 700, 3, 16, 17, 200, 1, 2, 513, 30, 90, 256, 257, 5};

typedef struct texts {
    int32_t *ids[N_TEXTS];
    size_t n[N_TEXTS];
} texts;

static texts make_texts(const ht_model *m) {
    texts t;
    const size_t n_lengths = sizeof lengths / sizeof *lengths;
    for (size_t i = 0; i < N_TEXTS; i++) {
        const int length = lengths[i % n_lengths];
        const int most = test_is_late() ? 30 : (int)m->context; /* plain kernels take their time */
        t.n[i] = (size_t)(length < most ? length : most);
        t.ids[i] = checkpoint_ids(m, (int)t.n[i], (int)i);
    }
    return t;
}

static void free_texts(texts *t) {
    for (int i = 0; i < N_TEXTS; i++) free(t->ids[i]);
}

static ht_model *load_slots(const char *name, int n_threads) {
    return tiny_checkpoint_load(name, n_threads, OPTIONS_AT(ht_model_options, with.slots = SLOTS));
}

static ht_embeddings *embed_texts(ht_model *m, const texts *t, ht_pooling pooling) {
    return embed(m, (const int32_t *const *)t->ids, t->n, N_TEXTS,
                 OPTIONS_AT(ht_embed_options, with.pooling = pooling));
}

/* A session's chunks are not a text's: the mean is made of rows that came in other chunks, on another number of threads. */
UNIT_TEST(company_changes_nothing) {
    static const char *const names[] = {"llama-q4_1.gguf", "gemma3-f32", "gemma4-shared-bf16", "qwen3-moe-f32"};
    for (size_t c = 0; c < sizeof names / sizeof *names; c++)
        for (int pooling = HT_POOLING_LAST; pooling <= HT_POOLING_MEAN; pooling++) {
            ht_model *m = load_slots(names[c], 2), *other = load_slots(names[c], 1);
            texts t = make_texts(m);
            ht_embeddings *all = embed_texts(m, &t, (ht_pooling)pooling);
            assert_int_equal(all->n_failed, 0);
            for (size_t i = 0; i < N_TEXTS; i++) {
                ht_embeddings *one = embed_one(other, t.ids[i], t.n[i],
                                               OPTIONS_AT(ht_embed_options, with.pooling = (ht_pooling)pooling));
                assert_ptr_equal(all->embeddings[i].values, all->values + i * (size_t)all->hidden);
                assert_memory_equal(all->embeddings[i].values, one->values, (size_t)all->hidden * sizeof(float));
                ht_embeddings_free(one);
            }
            ht_embeddings_free(all);
            free_texts(&t);
            ht_model_free(m);
            ht_model_free(other);
        }
}

enum { N_THREADS = 4, ANSWER = 60 };

typedef struct caller {
    pthread_t thread;
    ht_model *m;
    const texts *t;
    ht_embeddings *found;
    int32_t answer[ANSWER];
} caller;

static void *call(void *arg) {
    caller *c = arg;
    c->found = embed_texts(c->m, c->t, HT_POOLING_MEAN);
    return NULL;
}

static void generate(ht_model *m, const int32_t *ids, int32_t n, int32_t *out) {
    ht_session *s;
    assert_works(ht_session_new, m, NULL, &s);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true);
    assert_works(ht_generate, s, ids, (size_t)n, &o, NULL, NULL, NULL);
    memcpy(out, ht_session_tokens(s) + n, ANSWER * sizeof *out);
    ht_session_free(s);
}

static void *answer(void *arg) {
    caller *c = arg;
    generate(c->m, c->t->ids[3], 16, c->answer);
    return NULL;
}

/* Embeddings and answers under way at once, each as alone. */
UNIT_TEST(beside_answers) {
    ht_model *m = load_slots("llama-q4_1.gguf", 2);
    texts t = make_texts(m);
    int32_t alone[ANSWER];
    generate(m, t.ids[3], 16, alone);
    ht_embeddings *wanted = embed_texts(m, &t, HT_POOLING_MEAN);
    caller callers[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        callers[i] = (caller){.m = m, .t = &t};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, i % 2 ? call : answer, &callers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        if (i % 2)
            assert_memory_equal(callers[i].found->values, wanted->values,
                                N_TEXTS * (size_t)wanted->hidden * sizeof(float));
        else
            assert_memory_equal(callers[i].answer, alone, sizeof alone);
        ht_embeddings_free(callers[i].found);
    }
    ht_embeddings_free(wanted);
    free_texts(&t);
    ht_model_free(m);
}

/* ---- texts ---- */

UNIT_TEST(texts_are_their_ids) {
    ht_model *m = tiny_load(&(tiny_options){0});
    static const char *const given[] = {"hello world", "a", "hello <|im_end|>"};
    ht_embeddings *e;
    assert_works(ht_embed_text, m, given, 3, NULL, &e);
    assert_int_equal(e->n_failed, 0);
    for (size_t i = 0; i < 3; i++) {
        int32_t *ids;
        size_t n;
        assert_works(ht_tokenizer_encode, ht_model_tokenizer(m), given[i], strlen(given[i]),
                     HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, &ids, &n);
        ht_embeddings *one = embed_one(m, ids, n, NULL);
        assert_string_equal(e->embeddings[i].message, "");
        assert_int_equal(e->embeddings[i].n_tokens, n);
        assert_memory_equal(e->embeddings[i].values, one->values, (size_t)e->hidden * sizeof(float));
        ht_embeddings_free(one);
        ht_ids_free(ids);
    }
    ht_embeddings_free(e);
    assert_works(ht_embed_text, m, NULL, 0, NULL, &e);
    assert_int_equal(e->n, 0);
    ht_embeddings_free(e);
    ht_model_free(m);
}

/* ---- what fails ---- */

UNIT_TEST(failures_are_their_own) {
    enum { N = 6, CONTEXT = 64 };
    ht_model *m = tiny_load(&(tiny_options){.context = CONTEXT, .nan_token = 65});
    int32_t good[CONTEXT + 1], outside[] = {3, TINY_VOCAB}, nan[] = {70, 65, 71};
    tiny_ids(good, CONTEXT + 1, 1);
    for (int i = 0; i <= CONTEXT; i++) good[i] += good[i] == 65;
    const int32_t *const ids[N] = {good, NULL, outside, nan, good, good};
    static const size_t n_ids[N] = {CONTEXT, 0, 2, 3, CONTEXT + 1, 5};
    static const ht_status status[N] = {HT_OK, HT_ERR_ARGUMENT, HT_ERR_ARGUMENT, HT_ERR_INTERNAL, HT_ERR_LIMIT, HT_OK};
    static const char *const says[N] = {
        "", "the prompt is empty", "token id 288 at place 1", "not finite", "65 tokens does not fit the context of 64",
        ""};
    for (int pooling = HT_POOLING_LAST; pooling <= HT_POOLING_MEAN; pooling++) {
        const ht_embed_options o = OPTIONS(ht_embed_options, with.pooling = (ht_pooling)pooling);
        ht_embeddings *e = embed(m, ids, n_ids, N, &o);
        assert_int_equal(e->n_failed, 4);
        for (int i = 0; i < N; i++) {
            assert_int_equal(e->embeddings[i].status, status[i]);
            if (!strstr(e->embeddings[i].message, says[i])) fail_msg("\"%s\"", e->embeddings[i].message);
            for (int32_t d = 0; status[i] && d < e->hidden; d++) assert_true(e->values[i * e->hidden + d] == 0);
            if (status[i]) {
                assert_null(e->embeddings[i].values);
                continue;
            }
            ht_embeddings *one = embed_one(m, ids[i], n_ids[i], &o);
            assert_memory_equal(e->embeddings[i].values, one->values, (size_t)e->hidden * sizeof(float));
            ht_embeddings_free(one);
        }
        ht_embeddings_free(e);
    }
    ht_model_free(m);
}

static void refuse(ht_model *m, const ht_embed_options *o, ht_status status, const char *says) {
    const int32_t ids[] = {1, 2, 3};
    ht_embeddings *e = (ht_embeddings *)1;
    assert_fails(status, says, ht_embed_ids, m, (const int32_t *const[]){ids}, (const size_t[]){3}, 1, o, &e);
    assert_null(e);
}

UNIT_TEST(refusals) {
    ht_model *m = load("gemma4-shared-bf16", HT_PRECISION_HIGH, HT_F16);
    refuse(m, OPTIONS_AT(ht_embed_options, with.pooling = (ht_pooling)8), HT_ERR_ARGUMENT, "no pooling 8");
    refuse(m, OPTIONS_AT(ht_embed_options, with.dimensions = m->config->hidden + 1), HT_ERR_ARGUMENT,
           "dimensions, expected at most");
    refuse(m, OPTIONS_AT(ht_embed_options, with.dimensions = -1), HT_ERR_ARGUMENT, "-1 dimensions");
    refuse(m, OPTIONS_AT(ht_embed_options, with.prompt = "query"), HT_ERR_ARGUMENT, "prompts are for texts");
    refuse(m, OPTIONS_AT(ht_embed_options, with.n_adapters = -1), HT_ERR_ARGUMENT, "-1 adapters");
    ht_adapter *const none = NULL;
    refuse(m, OPTIONS_AT(ht_embed_options, with.adapters = &none, with.n_adapters = 1), HT_ERR_ARGUMENT,
           "adapter 0 of 1 is NULL");
    ht_cancel cancel = {0};
    ht_cancel_request(&cancel);
    refuse(m, OPTIONS_AT(ht_embed_options, with.cancel = &cancel), HT_ERR_CANCELLED, "cancelled after 0 of 1 text");
    ht_embeddings *e;
    assert_fails(HT_ERR_UNSUPPORTED, "", ht_embed_text, m, (const char *const[]){"a"}, 1, NULL, &e);
    assert_null(e);
    ht_model_free(m);
}

typedef struct seen {
    ht_cancel cancel;
    double last;
    int calls, most;
} seen;

static void on_progress(double done, void *user) {
    seen *s = user;
    assert_true(done >= s->last && done <= 1);
    s->last = done;
    if (++s->calls == s->most) ht_cancel_request(&s->cancel);
}

UNIT_TEST(progress_and_cancellation) {
    ht_model *m = load_slots("llama-f32", 2);
    texts t = make_texts(m);
    seen s = {0};
    const ht_embed_options o =
        OPTIONS(ht_embed_options, with.progress = on_progress, with.user = &s, with.cancel = &s.cancel);
    ht_embeddings *e = embed(m, (const int32_t *const *)t.ids, t.n, N_TEXTS, &o);
    assert_true(s.last == 1 && s.calls > 2);
    ht_embeddings_free(e);
    s = (seen){.most = 1};
    ht_error err = {0};
    assert_int_equal(ht_embed_ids(m, (const int32_t *const *)t.ids, t.n, N_TEXTS, &o, &e, &err), HT_ERR_CANCELLED);
    assert_null(e);
    assert_int_equal(s.calls, 1);
    assert_non_null(strstr(err.message, "of 40 texts"));
    free_texts(&t);
    ht_model_free(m);
}

/* Without a pooling of its own, a call has the checkpoint's. */
UNIT_TEST(pooling_of_the_checkpoint) {
    static const char *const names[] = {"last", "mean", "cls", ""};
    const int32_t ids[] = {3, 14, 15, 9, 26};
    const ht_embed_options usual = DEFAULTS(ht_embed_options);
    ht_model *m = load("llama-f32", HT_PRECISION_HIGH, HT_F16);
    const size_t bytes = (size_t)m->config->hidden * sizeof(float);
    ht_embeddings *first = embed_one(m, ids, 1, &usual);
    for (int i = 0; i < 4; i++) {
        m->config->pooling = names[i];
        const ht_pooling pooling = i < 3 ? (ht_pooling)i : HT_POOLING_LAST;
        assert_int_equal(ht_model_pooling(m), pooling);
        ht_embeddings *found = embed_one(m, ids, 5, &usual);
        ht_embeddings *wanted = embed_one(m, ids, 5, OPTIONS_AT(ht_embed_options, with.pooling = pooling));
        assert_memory_equal(found->values, wanted->values, bytes);
        assert_true((memcmp(found->values, first->values, bytes) == 0) == (pooling == HT_POOLING_CLS));
        ht_embeddings_free(found);
        ht_embeddings_free(wanted);
    }
    m->config->pooling = "rank";
    ht_embeddings *e;
    const int32_t *all = ids;
    const size_t n = 5;
    assert_int_equal(ht_model_pooling(m), HT_POOLING_MODEL);
    assert_fails(HT_ERR_UNSUPPORTED, "pooling is `rank`, which gives scores for reranking, not embeddings; choose",
                 ht_embed_ids, m, &all, &n, 1, &usual, &e);
    ht_embeddings_free(embed_one(m, ids, 5, OPTIONS_AT(ht_embed_options, with.pooling = HT_POOLING_MEAN)));
    ht_embeddings_free(first);
    ht_model_free(m);
}

/* ---- vectors of tokens, and what is made of them ---- */

/* The hidden states [n, hidden] of a text. */
static float *states_of(ht_model *m, const int32_t *ids, size_t n) {
    ht_embeddings *e =
        embed_one(m, ids, n, OPTIONS_AT(ht_embed_options, with.pooling = HT_POOLING_NONE, with.normalize = false));
    float *states = malloc(n * (size_t)e->hidden * sizeof *states);
    assert_non_null(states);
    memcpy(states, e->embeddings[0].values, n * (size_t)e->hidden * sizeof *states);
    assert_ptr_equal(e->embeddings[0].values, e->values);
    ht_embeddings_free(e);
    return states;
}

/* Every pooling is what its name says of the states of all tokens. */
UNIT_TEST(poolings) {
    enum { N = 9 };
    ht_model *m = load("qwen3-f32", HT_PRECISION_HIGH, HT_F16);
    int32_t *ids = checkpoint_ids(m, N, 4);
    float *states = states_of(m, ids, N);
    const int32_t hidden = (int32_t)m->config->hidden;
    for (int pooling = 0; ht_pooling_name((ht_pooling)pooling); pooling++) {
        if (pooling == HT_POOLING_MODEL || pooling == HT_POOLING_NONE) continue;
        ht_embeddings *e = embed_one(
            m, ids, N, OPTIONS_AT(ht_embed_options, with.pooling = (ht_pooling)pooling, with.normalize = false));
        for (int32_t d = 0; d < hidden; d++) {
            double sum = 0, weighted = 0, most = -INFINITY;
            for (int t = 0; t < N; t++) {
                const double x = (double)states[t * hidden + d];
                sum += x;
                weighted += (t + 1) * x;
                most = fmax(most, x);
            }
            const double wanted = pooling == HT_POOLING_LAST            ? (double)states[(N - 1) * hidden + d]
                                  : pooling == HT_POOLING_CLS           ? (double)states[d]
                                  : pooling == HT_POOLING_MEAN          ? sum / (double)N
                                  : pooling == HT_POOLING_MAX           ? most
                                  : pooling == HT_POOLING_MEAN_SQRT_LEN ? sum / sqrt((double)N)
                                                                        : weighted / (double)(N * (N + 1) / 2);
            assert_true(fabs((double)e->values[d] - wanted) < 1e-6 * fmax(1, fabs(wanted)));
        }
        ht_embeddings_free(e);
    }
    assert_null(ht_pooling_name((ht_pooling)-1));
    free(states);
    free(ids);
    ht_model_free(m);
}

/* Vectors of tokens lie one after the other, without those of texts that failed, and do not depend on other texts. */
UNIT_TEST(vectors_of_tokens) {
    ht_model *m = load_slots("llama-f32", 2);
    int32_t *a = checkpoint_ids(m, 5, 1), *b = checkpoint_ids(m, 300, 2);
    const int32_t *const ids[] = {a, NULL, b};
    const size_t n[] = {5, 0, 300};
    const ht_embed_options o = OPTIONS(ht_embed_options, with.pooling = HT_POOLING_NONE, with.dimensions = 10);
    ht_embeddings *all;
    assert_works(ht_embed_ids, m, ids, n, 3, &o, &all);
    assert_int_equal(all->hidden, 10);
    assert_int_equal(all->n_failed, 1);
    assert_ptr_equal(all->embeddings[2].values, all->values + 50);
    for (int i = 0; i < 3; i += 2) {
        ht_embeddings *one;
        assert_works(ht_embed_ids, m, &ids[i], &n[i], 1, &o, &one);
        assert_memory_equal(one->values, all->embeddings[i].values, n[i] * 10 * sizeof(float));
        for (size_t t = 0; t < n[i]; t++) assert_true(fabs(length_of(one->values + 10 * t, 10) - 1) < 1e-6);
        ht_embeddings_free(one);
    }
    ht_embeddings_free(all);
    free(a);
    free(b);
    ht_model_free(m);
}

/* Cut, then scaled. */
UNIT_TEST(dimensions) {
    const int32_t ids[] = {3, 14, 15, 9, 26};
    ht_model *m = load("llama-f32", HT_PRECISION_HIGH, HT_F16);
    ht_embeddings *whole = embed_one(m, ids, 5, OPTIONS_AT(ht_embed_options, with.normalize = false)), *cut;
    const int32_t *all = ids;
    const size_t n = 5;
    assert_works(ht_embed_ids, m, &all, &n, 1, OPTIONS_AT(ht_embed_options, with.dimensions = 7), &cut);
    assert_int_equal(cut->hidden, 7);
    const double length = length_of(whole->values, 7);
    for (int d = 0; d < 7; d++) assert_true(fabs((double)cut->values[d] - (double)whole->values[d] / length) < 1e-6);
    ht_embeddings_free(whole);
    ht_embeddings_free(cut);
    ht_model_free(m);
}

/* y = W x of a tensor of the file. */
static void multiply(const ht_checkpoint_files *c, const char *name, const double *x, double *y) {
    ht_stored_tensor t;
    assert_true(ht_checkpoint_find(c, name, &t));
    const int64_t rows = t.dims[0], k = t.dims[1];
    float *w = malloc((size_t)(rows * k) * sizeof *w);
    assert_non_null(w);
    assert_works(ht_tensor_read_f32, &t, rows * k, w);
    for (int64_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (int64_t i = 0; i < k; i++) y[r] += (double)w[r * k + i] * x[i];
    }
    free(w);
}

/* The dense layers of a GGUF file follow its pooling, which is read from it. */
UNIT_TEST(dense_layers_of_gguf) {
    const int32_t ids[] = {3, 14, 15, 9, 26};
    const int32_t *all = ids;
    const size_t n = 5;
    ht_model *plain = tiny_load(NULL), *m = tiny_load(&(tiny_options){.dense = true, .pooling = "mean"});
    double x[64], y[48], wanted[40];
    ht_embeddings *pooled =
        embed_one(plain, ids, 5, OPTIONS_AT(ht_embed_options, with.pooling = HT_POOLING_MEAN, with.normalize = false));
    for (int d = 0; d < 64; d++) x[d] = (double)pooled->values[d];
    ht_checkpoint_files *c = checkpoint_files(scratch_path("tiny.gguf"));
    multiply(c, "dense_2.weight", x, y);
    multiply(c, "dense_3.weight", y, wanted);
    ht_checkpoint_close(c);
    ht_embeddings *found;
    assert_works(ht_embed_ids, m, &all, &n, 1, OPTIONS_AT(ht_embed_options, with.normalize = false), &found);
    assert_int_equal(found->hidden, 40);
    for (int d = 0; d < 40; d++)
        assert_true(fabs((double)found->values[d] - wanted[d]) < 1e-4 * fmax(1, fabs(wanted[d])));
    ht_embeddings_free(found);
    /* They are not for the states of tokens. */
    ht_embeddings *tokens = embed_one(m, ids, 5, OPTIONS_AT(ht_embed_options, with.pooling = HT_POOLING_NONE));
    assert_int_equal(tokens->hidden, 64);
    ht_embeddings_free(tokens);
    ht_embeddings_free(pooled);
    ht_model_free(plain);
    ht_model_free(m);
}

/* ---- prompts ---- */

static ht_embeddings *embed_text(ht_model *m, const char *text, const ht_embed_options *o) {
    ht_embeddings *e;
    assert_works(ht_embed_text, m, &text, 1, o, &e);
    if (e->n_failed) fail_msg("%s", e->embeddings[0].message);
    return e;
}

/* A prompt comes before a text: the checkpoint's default one, the one of a name, or none. */
UNIT_TEST(prompts) {
    static const char
        file[] = "config_sentence_transformers.json",
        text[] = "{\"prompts\": {\"query\": \"the tin: \", \"plain\": \"\"}, \"default_prompt_name\": \"query\"}";
    static const struct {
        const char *name, *whole;
    } cases[] = {{NULL, "the tin: inn"}, {"query", "the tin: inn"}, {"plain", "inn"}, {"", "inn"}};
    scratch_write(file, text, sizeof text - 1);
    ht_model *m = tiny_load(&(tiny_options){.pooling = "mean"});
    remove(scratch_path(file));
    const char *of_first, *one = "inn";
    assert_string_equal(ht_model_prompt(m, 0, &of_first), "query");
    assert_string_equal(of_first, "the tin: ");
    assert_string_equal(ht_model_prompt(m, 1, NULL), "plain");
    assert_null(ht_model_prompt(m, 2, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_embeddings *found = embed_text(m, one, OPTIONS_AT(ht_embed_options, with.prompt = cases[i].name));
        ht_embeddings *wanted = embed_text(m, cases[i].whole, OPTIONS_AT(ht_embed_options, with.prompt = ""));
        assert_int_equal(found->embeddings[0].n_tokens, wanted->embeddings[0].n_tokens);
        assert_memory_equal(found->values, wanted->values, (size_t)found->hidden * sizeof(float));
        ht_embeddings_free(found);
        ht_embeddings_free(wanted);
    }
    ht_embeddings *e;
    assert_fails(HT_ERR_ARGUMENT, "no prompt `document`", ht_embed_text, m, &one, 1,
                 OPTIONS_AT(ht_embed_options, with.prompt = "document"), &e);
    ht_model_free(m);
}

/* Means leave the prompt out where the checkpoint says so. */
UNIT_TEST(prompts_that_pooling_leaves_out) {
    ht_model *m = tiny_load(NULL);
    ht_named_prompt prompt = {(char[]){"query"}, (char[]){"the tin: "}};
    int32_t *ids;
    size_t n, n_prompt;
    assert_works(ht_tokenizer_encode, m->tokenizer, prompt.text, strlen(prompt.text), HT_ENCODE_ADD_SPECIAL, &ids,
                 &n_prompt);
    ht_ids_free(ids);
    assert_works(ht_tokenizer_encode, m->tokenizer, "the tin: inn", 12, HT_ENCODE_ADD_SPECIAL, &ids, &n);
    assert_true(n_prompt > 0 && n_prompt < n);
    float *states = states_of(m, ids, n);
    m->modules = (ht_modules){.prompt = &prompt, .n_prompts = 1, .skips_prompt = true};
    ht_embeddings *e = embed_text(
        m, "inn",
        OPTIONS_AT(ht_embed_options, with.prompt = "query", with.normalize = false, with.pooling = HT_POOLING_MEAN));
    for (int d = 0; d < e->hidden; d++) {
        double sum = 0;
        for (size_t t = n_prompt; t < n; t++) sum += (double)states[t * (size_t)e->hidden + (size_t)d];
        assert_true(fabs((double)e->values[d] - sum / (double)(n - n_prompt)) < 1e-6 * fmax(1, fabs(sum)));
    }
    m->modules = (ht_modules){0};
    ht_embeddings_free(e);
    ht_ids_free(ids);
    free(states);
    ht_model_free(m);
}

/* sentence-transformers would make lower case; a tokenizer that keeps the case gives other tokens. */
UNIT_TEST(lower_case) {
    static const char file[] = "sentence_bert_config.json", text[] = "{\"do_lower_case\": true}";
    const char *one = "Inn";
    const int32_t ids[] = {4, 5};
    const size_t n = 2;
    ht_embeddings *e;
    scratch_write(file, text, sizeof text - 1);
    ht_model *m = tiny_load(NULL);
    remove(scratch_path(file));
    assert_fails(HT_ERR_UNSUPPORTED, "do_lower_case", ht_embed_text, m, &one, 1, NULL, &e);
    assert_works(ht_embed_ids, m, (const int32_t *const[]){ids}, &n, 1, NULL, &e);
    ht_embeddings_free(e);
    ht_model_free(m);
}

/* ---- texts that are too long ---- */

UNIT_TEST(truncation) {
    const char *const words[] = {"the tin on the table in the inn", "the"};
    ht_model *m = tiny_load(&(tiny_options){.context = 8});
    const ht_embed_options cut = OPTIONS(ht_embed_options, with.truncate = true);
    ht_embeddings *e, *wanted;
    assert_works(ht_embed_text, m, words, 2, NULL, &e);
    assert_int_equal(e->embeddings[0].status, HT_ERR_LIMIT);
    ht_embeddings_free(e);
    for (m->modules.max_tokens = 0; m->modules.max_tokens < 6; m->modules.max_tokens += 3) {
        const size_t most = m->modules.max_tokens ? (size_t)m->modules.max_tokens : 8;
        int32_t *ids;
        size_t n;
        assert_works(ht_tokenizer_encode, m->tokenizer, words[0], strlen(words[0]), HT_ENCODE_ADD_SPECIAL, &ids, &n);
        assert_true(n > 8);
        assert_works(ht_embed_text, m, words, 2, &cut, &e);
        assert_int_equal(e->n_failed, 0);
        assert_int_equal(e->embeddings[0].n_tokens, most);
        assert_true(e->embeddings[0].truncated && !e->embeddings[1].truncated);
        assert_works(ht_embed_ids, m, (const int32_t *const[]){ids}, &most, 1, NULL, &wanted);
        assert_memory_equal(e->values, wanted->values, (size_t)e->hidden * sizeof(float));
        ht_embeddings_free(wanted);
        assert_works(ht_embed_ids, m, (const int32_t *const[]){ids}, &n, 1, &cut, &wanted);
        assert_memory_equal(e->values, wanted->values, (size_t)e->hidden * sizeof(float));
        ht_embeddings_free(wanted);
        ht_embeddings_free(e);
        ht_ids_free(ids);
    }
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poolings),
        cmocka_unit_test(vectors_of_tokens),
        cmocka_unit_test(dimensions),
        cmocka_unit_test(dense_layers_of_gguf),
        cmocka_unit_test(prompts),
        cmocka_unit_test(prompts_that_pooling_leaves_out),
        cmocka_unit_test(lower_case),
        cmocka_unit_test(truncation),
        cmocka_unit_test(golden),
        cmocka_unit_test(head_gives_the_logits),
        cmocka_unit_test(pooling_of_the_checkpoint),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(beside_answers),
        cmocka_unit_test(texts_are_their_ids),
        cmocka_unit_test(failures_are_their_own),
        cmocka_unit_test(refusals),
        cmocka_unit_test(progress_and_cancellation),
    };
    return cmocka_run_group_tests(tests, scratch_start, scratch_finish);
}
