/* Logits are the same bits for every number of threads, every chunk size, and in company: two of the cross product, all of
 * it in a soak, on a tiny checkpoint of each family and on the real models with HEARTH_TEST_MODELS. And
 * evaluating the forward function eagerly gives the bits of the plan. Tokens are those that the logits of every step
 * give. */
#include "device/device.h"
#include "generate/sampler.h"
#include "support/golden.h"
#include "support/model_run.h"
#include "support/options.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int all_threads[] = {1, 2, 4};
static const int32_t all_chunks[] = {1, 37, 64, 512};
enum {
    N_THREADS = sizeof all_threads / sizeof *all_threads,
    N_CHUNKS = sizeof all_chunks / sizeof *all_chunks,
    STEPS = 8 /* that sessions take together after their prompts */
};

typedef struct prompt {
    const int32_t *ids;
    int64_t n;
    float *wanted; /* [n, vocab]: the first run's logits */
    bool known;
    int64_t seen; /* rows in the run at hand */
} prompt;

static char run_name[96]; /* what a message says was run */

static void take(prompt *p, const float *logits, int64_t first, int64_t n_rows, int64_t vocab) {
    assert_true(first >= 0 && first + n_rows <= p->n);
    size_t row_bytes = (size_t)vocab * sizeof *logits;
    for (int64_t i = 0; i < n_rows; i++) {
        float *row = p->wanted + (first + i) * vocab;
        if (!p->known)
            memcpy(row, logits + i * vocab, row_bytes);
        else if (memcmp(row, logits + i * vocab, row_bytes) != 0)
            fail_msg("%s: the logits of position %lld differ", run_name, (long long)(first + i));
    }
    p->seen += n_rows;
}

static bool take_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    take(user, logits, first, n_rows, vocab);
    return true;
}

static ht_session *open_session(ht_model *m, int32_t chunk) {
    ht_session *s;
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = chunk), &s);
    return s;
}

static void feed_apart(ht_model *m, int32_t chunk, prompt *p) {
    ht_session *s = open_session(m, chunk);
    p->seen = 0;
    assert_works(ht_session_forward, s, p->ids, (size_t)p->n, OPTIONS_AT(ht_forward_options, with.all_rows = true),
                 take_rows, p);
    assert_int_equal(p->seen, p->n);
    p->known = true;
    ht_session_free(s);
}

/* Rows of both prompts in every step, as long as both last. */
static void feed_together(const ht_model *m, int32_t chunk, prompt prompts[2], bool eager) {
    model_run runs[2];
    float *logits[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = model_run_open(m, prompts[i].n, chunk);
        runs[i].eager = eager;
        logits[i] = malloc((size_t)(prompts[i].n * m->vocab) * sizeof **logits);
        assert_non_null(logits[i]);
    }
    model_run_feed_two((model_run *const[]){&runs[0], &runs[1]},
                       (const int32_t *const[]){prompts[0].ids, prompts[1].ids},
                       (const int64_t[]){prompts[0].n, prompts[1].n}, logits);
    for (int i = 0; i < 2; i++) {
        take(&prompts[i], logits[i], 0, prompts[i].n, m->vocab);
        free(logits[i]);
        model_run_close(&runs[i]);
    }
}

/* Two sessions, each some way into its prompt and at another place, step by step together. */
static void step_together(ht_model *m, int32_t chunk, prompt prompts[2]) {
    int32_t vocab = ht_model_vocab_size(m);
    ht_session *s[2];
    float *logits = malloc(2 * (size_t)vocab * sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < 2; i++) {
        s[i] = open_session(m, chunk);
        int64_t begin = i ? prompts[1].n - STEPS : prompts[1].n / 2;
        assert_works(ht_session_forward, s[i], prompts[i].ids, (size_t)begin, NULL, NULL, NULL);
    }
    for (int step = 0; step < STEPS; step++) {
        int64_t at[2] = {ht_session_length(s[0]), ht_session_length(s[1])};
        int32_t next[2] = {prompts[0].ids[at[0]], prompts[1].ids[at[1]]};
        assert_works(ht_session_forward_together, s, next, 2, NULL, logits);
        for (int i = 0; i < 2; i++) take(&prompts[i], logits + (int64_t)i * vocab, at[i], 1, vocab);
    }
    free(logits);
    ht_session_free(s[0]);
    ht_session_free(s[1]);
}

static ht_model *load(const char *path, int threads) {
    ht_device *device;
    ht_model *m;
    assert_works(ht_device_open, "cpu", OPTIONS_AT(ht_device_options, with.n_threads = threads), &device);
    assert_works(ht_model_load, path, OPTIONS_AT(ht_model_options, with.device = device), &m);
    ht_device_free(device);
    return m;
}

/* Both prompts apart, together and step by step. */
static void check_combination(ht_model *m, int threads, int32_t chunk, prompt prompts[2]) {
    snprintf(run_name, sizeof run_name, "%d threads, chunks of %d, apart", threads, (int)chunk);
    for (int i = 0; i < 2; i++) feed_apart(m, chunk, &prompts[i]);
    snprintf(run_name, sizeof run_name, "%d threads, chunks of %d, together", threads, (int)chunk);
    feed_together(m, chunk, prompts, false);
    step_together(m, chunk, prompts);
    if (threads != 2) return;
    snprintf(run_name, sizeof run_name, "2 threads, chunks of %d, eager", (int)chunk);
    feed_together(m, chunk, prompts, true);
}

/* All twelve combinations in a soak; else two with different threads and chunks, other ones for the next `number`. */
static void check_threads_and_chunks(const char *path, int number, const int32_t *ids, int64_t n, int64_t n_second) {
    prompt prompts[2] = {{.ids = ids, .n = n}, {.ids = ids + n - n_second, .n = n_second}};
    for (int t = 0; t < N_THREADS; t++) {
        snprintf(run_name, sizeof run_name, "%d threads", all_threads[t]);
        ht_model *m = NULL;
        for (int k = 0; k < N_CHUNKS; k++) {
            if (!test_takes(t * N_CHUNKS + k + number, N_THREADS * N_CHUNKS / 2)) continue;
            if (!m) m = load(path, all_threads[t]);
            for (int i = 0; i < 2 && !prompts[i].wanted; i++) {
                prompts[i].wanted = malloc((size_t)(prompts[i].n * m->vocab) * sizeof(float));
                assert_non_null(prompts[i].wanted);
            }
            check_combination(m, all_threads[t], all_chunks[k], prompts);
        }
        ht_model_free(m);
    }
    free(prompts[0].wanted);
    free(prompts[1].wanted);
}

static const char *const tiny[] = {"llama-llama3-bf16",        "llama-q4_1.gguf",    "qwen2-sliding-f16",
                                   "qwen2-q4_0.gguf",          "gemma3-f32",         "gemma3-q5_1.gguf",
                                   "gemma2-f16-shards",        "gemma4-shared-bf16", "gemma4-q8_0.gguf",
                                   "gemma4-experts-q8_0.gguf", "qwen3-moe-f32"};
static const char *const real[] = {"smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"};
enum { N_TINY = sizeof tiny / sizeof *tiny, N_REAL = sizeof real / sizeof *real };

static void check_tiny(void **state) {
    char path[256];
    const char *const *name = *state;
    snprintf(path, sizeof path, "tests/golden/tiny/%s", *name);
    ht_model_info *info;
    assert_works(ht_model_info_read, path, &info);
    int32_t ids[560]; /* more than the largest chunk and than two pages of the cache, where the context is as long */
    int64_t n = info->context < 560 ? info->context : 560;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)((i * i * 7 + 3 * i + 5) % info->vocab);
    ht_model_info_free(info);
    check_threads_and_chunks(path, (int)(name - tiny), ids, n, n / 3);
}

typedef struct picked {
    ht_sampler *sampler;
    const ht_session *s;
    int32_t id;
} picked;

static bool pick(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)first, (void)n_rows;
    picked *p = user;
    const ht_logits_rows row = {.x = logits, .n = vocab};
    assert_works(ht_sampler_pick_row, p->sampler, &row, 0, ht_session_tokens(p->s), ht_session_length(p->s), &p->id);
    return true;
}

/* What is generated, where only the highest logits need to be there, against picking from all logits of every step. */
static void check_picks(ht_model *m, const int32_t *ids, const ht_sampler_options *o) {
    enum { PROMPT = 20 };
    const int N = test_cases(8, 400);
    snprintf(run_name, sizeof run_name, "temperature %g, top_k %d", (double)o->temperature, (int)o->top_k);
    ht_session *a = open_session(m, 512), *b = open_session(m, 512);
    const ht_generate_options how =
        OPTIONS(ht_generate_options, with.max_tokens = N, with.sampler = o, with.ignore_eos = true);
    assert_works(ht_generate, a, ids, PROMPT, &how, NULL, NULL, NULL);
    picked p = {.s = b};
    assert_works(ht_sampler_new, o, m->vocab, m->device->row_ops, &p.sampler);
    assert_works(ht_session_forward, b, ids, PROMPT, NULL, pick, &p);
    for (int i = 0; i < N; i++) {
        int32_t id = ht_session_tokens(a)[PROMPT + i];
        if (id != p.id) fail_msg("%s: token %d is %d, expected %d", run_name, i, (int)id, (int)p.id);
        assert_works(ht_session_forward, b, &p.id, 1, NULL, pick, &p);
    }
    ht_sampler_free(p.sampler);
    ht_session_free(a);
    ht_session_free(b);
}

/* The prompt of a real model, whose path goes to `path`; skips the test without models. */
static golden open_real(const char *name, char path[1024]) {
    const char *directory = getenv("HEARTH_TEST_MODELS");
    if (!directory || !*directory) {
        print_message("skipped: HEARTH_TEST_MODELS does not name a directory with %s.gguf\n", name);
        skip();
    }
    snprintf(path, 1024, "tests/golden/real/%s.json", name);
    golden g = golden_open(path);
    snprintf(path, 1024, "%s/%s.gguf", directory, name);
    return g;
}

static void check_real(int number) {
    enum { N_SECOND = 45 };
    const int n = test_cases(70, 140);
    char path[1024];
    golden g = open_real(real[number], path);
    assert_true(g.n >= n);
    check_threads_and_chunks(path, N_TINY + number, g.ids, n, N_SECOND);
    golden_close(&g);
}

static void check_real_picks(int number) {
    char path[1024];
    golden g = open_real(real[number], path);
    ht_model *m = load(path, 2);
    check_picks(m, g.ids, OPTIONS_AT(ht_sampler_options, (void)0));
    check_picks(m, g.ids, OPTIONS_AT(ht_sampler_options, with.repeat_penalty = 1.2f));
    check_picks(m, g.ids, OPTIONS_AT(ht_sampler_options, with.temperature = 0.9f, with.top_k = 40, with.seed = 7));
    ht_model_free(m);
    golden_close(&g);
}

/* The first model, or all of them in a soak. */
UNIT_TEST(real_models) {
    for (int i = 0; i < test_cases(1, N_REAL); i++) check_real(i);
}

UNIT_TEST(real_models_picks) {
    for (int i = 0; i < test_cases(1, N_REAL); i++) check_real_picks(i);
}

int main(void) {
    struct CMUnitTest tests[N_TINY + 2];
    for (int i = 0; i < N_TINY; i++)
        tests[i] = (struct CMUnitTest){tiny[i], check_tiny, NULL, NULL, (void *)(uintptr_t)&tiny[i]};
    tests[N_TINY] = (struct CMUnitTest)cmocka_unit_test(real_models_picks);
    tests[N_TINY + 1] = (struct CMUnitTest)cmocka_unit_test(real_models);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
