/* Adapters of sessions: the logits are those of a model whose weights were changed by B A; every session of a step has the bits it
 * has alone; sessions that do not fit are refused. */
#include "generate/session_internal.h"
#include "models/weights.h"
#include "support/adapters.h"
#include "support/checkpoints.h"
#include "support/model_run.h"
#include "support/multiply.h"
#include "support/options.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { N_IDS = 37, N_STEPS = 4, N_SESSIONS = 5, MOST_MATRICES = 4096 };

/* The second has products of products, both with adapters. */
static const char *const exact_models[] = {"llama-f32",      "../families/gemma3n", "mistral-head-dim-bf16",
                                           "qwen2-f32",      "qwen3-f32",           "gemma2-f32",
                                           "gemma3-f32",     "gemma4-f32",          "gemma4-shared-bf16",
                                           "qwen3-moe-f32",  "gemma4-experts-bf16", "gemma4-k-is-v-f16-shards",
                                           "llama-q4_1.gguf"};
static const char *const default_models[] = {"llama-q4_1.gguf",     "qwen2-q4_0.gguf",  "qwen3-moe-q4_1.gguf",
                                             "qwen3-moe-mlx4-bf16", "gemma3-q5_1.gguf", "gemma4-experts-q8_0.gguf",
                                             "gemma4-shared-bf16",  "llama-nvfp4.gguf", "qwen3-moe-nvfp4.gguf"};

static ht_model *load(const char *name, int threads, ht_precision precision, ht_dtype kv) {
    return tiny_checkpoint_load(name, threads,
                                OPTIONS_AT(ht_model_options, with.precision = precision, with.kv_dtype = kv));
}

/* ---- a model with changed weights ---- */

typedef struct changed {
    void *packed[MOST_MATRICES];
    int n;
} changed;

/* W + scale * B A in f32, in the matrix's place. */
static void change_matrix(const ht_model *m, ht_matrix *w, const ht_lora *l, int64_t expert, float scale, changed *c) {
    const int64_t rows = w->n_rows, k = w->k;
    float *dense = test_alloc((size_t)(rows * k) * sizeof *dense);
    for (int64_t r = 0; r < rows; r++) {
        assert_int_equal(w->ops->row(w, r, dense + r * k, NULL), HT_OK);
        for (int64_t col = 0; col < k; col++) {
            double sum = 0;
            for (int64_t i = 0; i < l->rank; i++)
                sum += (double)l->b[(expert * rows + r) * l->rank + i] * (double)l->a[(expert * l->rank + i) * k + col];
            dense[r * k + col] = (float)((double)dense[r * k + col] + (double)(scale * l->scale) * sum);
        }
    }
    *w = test_pack(m->device->matrix_ops(m->device, HT_W_F32, HT_PRECISION_REFERENCE), HT_W_F32, rows, k, dense);
    free(dense);
    assert_true(c->n < MOST_MATRICES);
    c->packed[c->n++] = w->packed;
}

static void change_model(ht_model *m, const ht_adapter *a, float scale, changed *c) {
    const ht_family *family = m->config->family;
    for (int64_t layer = 0; layer < m->config->n_layers; layer++) {
        char *base = (char *)ht_weights_decoder(m->weights)->layers + (size_t)layer * family->layer_bytes;
        for (const ht_tensor_spec *const *table = family->layer; *table; table++)
            for (const ht_tensor_spec *p = *table; p->gguf; p++) {
                void *at = base + p->offset;
                const ht_experts *experts = at;
                const ht_weight *weight = at;
                if (p->columns == HT_EXTENT_NONE || (p->expert ? !experts->slot : !weight->slot)) continue;
                const ht_lora *l = ht_adapter_find(a, p->expert ? experts->slot : weight->slot);
                if (!l) continue;
                for (int32_t e = 0; e < (p->expert ? experts->list.n : 1); e++)
                    change_matrix(m, p->expert ? experts->list.matrix[e] : weight->matrix, l, e, scale, c);
            }
    }
}

/* ---- sessions ---- */

static ht_session *open_session(ht_model *m, ht_adapter *const *adapters, const float *scales, int n, int64_t chunk) {
    ht_session *s;
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = chunk), &s);
    assert_works(ht_session_set_adapters, s, adapters, scales, n);
    return s;
}

static bool keep_logits(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    float *to = user;
    memcpy(to + first * vocab, logits, (size_t)(n_rows * vocab) * sizeof *to);
    return true;
}

static size_t logits_bytes(const ht_model *m, int64_t n) { return (size_t)n * (size_t)m->vocab * sizeof(float); }

/* Logits after each of the ids. */
static float *run(ht_session *s, const int32_t *ids, size_t n) {
    float *logits = test_alloc(logits_bytes(s->model, (int64_t)n));
    ht_forward_options options = OPTIONS(ht_forward_options, with.all_rows = true);
    assert_works(ht_session_forward, s, ids, n, &options, keep_logits, logits);
    return logits;
}

static float *run_new(ht_model *m, ht_adapter *const *adapters, const float *scales, int n, int64_t chunk,
                      const int32_t *ids) {
    ht_session *s = open_session(m, adapters, scales, n, chunk);
    float *logits = run(s, ids, N_IDS);
    ht_session_free(s);
    return logits;
}

static void make_ids(const ht_model *m, int32_t *ids, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(test_random(&seed) % (uint32_t)m->vocab);
}

/* ---- tests ---- */

static void check_values(const char *name) {
    static const float scales[2] = {1, -0.75f};
    ht_model *m = load(name, 2, HT_PRECISION_REFERENCE, HT_F32), *other = load(name, 2, HT_PRECISION_REFERENCE, HT_F32);
    ht_adapter *a[2] = {test_adapter_for(m, 3, 1, 5), test_adapter_for(m, 20, 3, 6)};
    int32_t ids[N_IDS];
    make_ids(m, ids, N_IDS, 7);
    const size_t bytes = logits_bytes(m, N_IDS);
    changed c = {.n = 0};
    float *base = run_new(m, NULL, NULL, 0, 512, ids), *last = base;
    for (int n = 1; n <= 2; n++) { /* the second adds up */
        change_model(other, a[n - 1], scales[n - 1], &c);
        float *got = run_new(m, a, scales, n, 512, ids), *want = run_new(other, NULL, NULL, 0, 512, ids);
        const double off = test_difference(got, want, bytes / sizeof *got),
                     moved = test_difference(got, last, bytes / sizeof *got);
        print_message("%s with %d adapters: off by %.1e of the largest logit, moved by %.1e\n", name, n, off, moved);
        assert_true(off < 2e-5);
        assert_true(moved > 1e-2);
        if (last != base) free(last);
        last = got;
        free(want);
    }
    free(last);
    free(base);
    for (int i = 0; i < 2; i++) ht_adapter_free(a[i]);
    ht_model_free(m);
    ht_model_free(other);
    for (int i = 0; i < c.n; i++) free(c.packed[i]);
}

UNIT_TEST(logits_are_those_of_changed_weights) {
    if (test_is_late()) skip(); /* the changed weights are in host memory */
    for (size_t i = 0; i < sizeof exact_models / sizeof *exact_models; i++)
        if (!TEST_SLOW || i % 4 == 0) check_values(exact_models[i]);
}

/* What session i of a step has: nothing, one adapter, the other, both, nothing. */
static ht_session *open_of(ht_model *m, ht_adapter *const a[2], int i) {
    static const float scale = 0.5f;
    if (i % 4 == 0) return open_session(m, NULL, NULL, 0, 512);
    if (i == 3) return open_session(m, a, NULL, 2, 512);
    return open_session(m, &a[i - 1], &scale, 1, 512);
}

/* Logits of N_STEPS steps after the prompt, [N_SESSIONS][N_STEPS][vocab]; together the sessions begin with number `first`. */
static void decode(ht_model *m, ht_adapter *const a[2], bool together, int first, float *logits) {
    ht_session *s[N_SESSIONS];
    const int64_t vocab = m->vocab;
    int32_t ids[N_SESSIONS][N_IDS + N_STEPS], now[N_SESSIONS];
    float *step = test_alloc(logits_bytes(m, N_SESSIONS));
    for (int i = 0; i < N_SESSIONS; i++) {
        const int of = (first + i) % N_SESSIONS;
        make_ids(m, ids[i], N_IDS + N_STEPS, 20 + (uint64_t)of);
        s[i] = open_of(m, a, of);
        free(run(s[i], ids[i], (size_t)(N_IDS - 3 * of)));
        /* As after generating: the first step has two rows of the session, and gives the logits of one. */
        if (of % 2) assert_works(ht_session_push, s[i], ids[i][0]);
    }
    for (int t = 0; t < N_STEPS; t++) {
        for (int i = 0; i < N_SESSIONS; i++) {
            const int of = (first + i) % N_SESSIONS;
            now[i] = ids[i][N_IDS + t];
            if (together) continue;
            assert_works(ht_session_forward, s[i], &now[i], 1, NULL, keep_logits,
                         logits + (of * N_STEPS + t) * vocab - s[i]->n_tokens * vocab);
        }
        if (!together) continue;
        assert_works(ht_session_forward_together, s, now, N_SESSIONS, NULL, step);
        for (int i = 0; i < N_SESSIONS; i++)
            memcpy(logits + ((first + i) % N_SESSIONS * N_STEPS + t) * vocab, step + i * vocab, logits_bytes(m, 1));
    }
    for (int i = 0; i < N_SESSIONS; i++) ht_session_free(s[i]);
    free(step);
}

static void check_steps(ht_model *m, ht_adapter *const a[2]) {
    const size_t bytes = logits_bytes(m, N_SESSIONS * N_STEPS);
    float *alone = test_alloc(bytes), *together = test_alloc(bytes);
    decode(m, a, false, 0, alone);
    for (int first = 0; first < 2; first++) { /* a session without adapters, and one with, lends its executor */
        decode(m, a, true, first, together);
        assert_memory_equal(together, alone, bytes);
    }
    free(alone);
    free(together);
}

/* Plans and eager evaluation, whole and in pieces, on one thread and on three. */
static void check_bits(const char *name) {
    float *first = NULL;
    int32_t ids[N_IDS];
    for (int threads = 1; threads <= 3; threads += 2) {
        ht_model *m = load(name, threads, HT_PRECISION_HIGH, HT_F16);
        ht_adapter *a[2] = {test_adapter_for(m, 4, 1, 8), test_adapter_for(m, 17, 2, 9)};
        const size_t bytes = logits_bytes(m, N_IDS);
        make_ids(m, ids, N_IDS, 10);
        float *whole = run_new(m, a, NULL, 2, 512, ids), *pieces = run_new(m, a, NULL, 2, 7, ids);
        assert_memory_equal(pieces, whole, bytes);
        if (first)
            assert_memory_equal(whole, first, bytes);
        else {
            ht_session *s = open_session(m, a, NULL, 2, 512);
            model_run eager = model_run_open(m, N_IDS, N_IDS);
            eager.eager = true;
            eager.lora = &s->adapters->set;
            model_run_feed(&eager, ids, N_IDS, pieces);
            assert_memory_equal(pieces, whole, bytes);
            model_run_close(&eager);
            ht_session_free(s);
            first = test_alloc(bytes);
            memcpy(first, whole, bytes);
        }
        check_steps(m, a);
        free(whole);
        free(pieces);
        for (int i = 0; i < 2; i++) ht_adapter_free(a[i]);
        ht_model_free(m);
    }
    free(first);
}

UNIT_TEST(bits_are_those_of_the_session_alone) {
    for (size_t i = 0; i < sizeof default_models / sizeof *default_models; i++)
        if (!TEST_SLOW || i % 3 == 2) check_bits(default_models[i]);
}

/* The adapters stay over a reset, and go when there are to be none; the session keeps them alive. */
UNIT_TEST(adapters_are_set_and_taken_off) {
    ht_model *m = load("llama-f32", 2, HT_PRECISION_HIGH, HT_F16);
    ht_adapter *a = test_adapter_for(m, 4, 1, 8);
    int32_t ids[N_IDS];
    make_ids(m, ids, N_IDS, 10);
    const size_t bytes = logits_bytes(m, N_IDS);
    ht_session *s = open_session(m, &a, NULL, 1, 512);
    ht_adapter_free(a);
    float *with = run(s, ids, N_IDS);
    ht_session_reset(s);
    float *again = run(s, ids, N_IDS);
    assert_memory_equal(again, with, bytes);
    ht_session_reset(s);
    assert_works(ht_session_set_adapters, s, NULL, NULL, 0);
    float *without = run(s, ids, N_IDS), *base = run_new(m, NULL, NULL, 0, 512, ids);
    assert_memory_equal(without, base, bytes);
    ht_session_free(s);
    ht_model_free(m);
    free(with);
    free(again);
    free(without);
    free(base);
}

typedef struct caller {
    pthread_t thread;
    ht_model *m;
    ht_adapter *a;
    const int32_t *ids;
    float *logits;
} caller;

static void *call(void *arg) {
    caller *c = arg;
    c->logits = run_new(c->m, &c->a, NULL, 1, 512, c->ids);
    return NULL;
}

/* What the first session with the adapter makes, the model's plan and the adapter's form, is made once. */
UNIT_TEST(several_threads_begin_at_once) {
    enum { N_CALLERS = 4 };
    ht_model *m = load("llama-f32", 2, HT_PRECISION_HIGH, HT_F16);
    ht_adapter *a = test_adapter_for(m, 4, 1, 8);
    caller callers[N_CALLERS];
    int32_t ids[N_IDS];
    make_ids(m, ids, N_IDS, 10);
    for (int i = 0; i < N_CALLERS; i++) {
        callers[i] = (caller){.m = m, .a = a, .ids = ids};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < N_CALLERS; i++) pthread_join(callers[i].thread, NULL);
    for (int i = 1; i < N_CALLERS; i++)
        assert_memory_equal(callers[i].logits, callers[0].logits, logits_bytes(m, N_IDS));
    for (int i = 0; i < N_CALLERS; i++) free(callers[i].logits);
    ht_adapter_free(a);
    ht_model_free(m);
}

static void refuse(ht_session *s, ht_adapter *a, float scale, const char *text) {
    assert_fails(HT_ERR_ARGUMENT, text, ht_session_set_adapters, s, &a, &scale, 1);
}

UNIT_TEST(what_does_not_fit_is_refused) {
    ht_model *m = load("llama-f32", 2, HT_PRECISION_HIGH, HT_F16),
             *other = load("qwen3-moe-f32", 2, HT_PRECISION_HIGH, HT_F16);
    ht_adapter *a = test_adapter_for(m, 4, 1, 8), *foreign = test_adapter_for(other, 4, 1, 8);
    int32_t ids[N_IDS];
    make_ids(m, ids, N_IDS, 10);
    ht_session *s = open_session(m, &a, NULL, 1, 512);
    float *with = run(s, ids, N_IDS);
    ht_session_reset(s);
    refuse(s, foreign, 1, "the adapter is for another model");
    refuse(s, NULL, 1, "adapter 0 of 1 is NULL");
    refuse(s, a, NAN, "expected a finite number");
    assert_fails(HT_ERR_ARGUMENT, "", ht_session_set_adapters, s, &a, NULL, -1);
    float *again = run(s, ids, N_IDS); /* nothing has changed */
    assert_memory_equal(again, with, logits_bytes(m, N_IDS));
    refuse(s, a, 1, "reset it before setting others");
    assert_fails(HT_ERR_ARGUMENT, "", ht_session_set_adapters, s, NULL, NULL, 0);
    free(with);
    free(again);
    ht_session_free(s);
    ht_adapter_free(a);
    ht_adapter_free(foreign);
    ht_model_free(m);
    ht_model_free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_changed_weights), cmocka_unit_test(bits_are_those_of_the_session_alone),
        cmocka_unit_test(adapters_are_set_and_taken_off),      cmocka_unit_test(several_threads_begin_at_once),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
