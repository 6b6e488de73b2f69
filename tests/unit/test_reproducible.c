/* The real models give the same bits for every number of threads, every chunk size, and in company. Skipped without
 * HEARTH_TEST_MODELS. */
#include "support/golden.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rows {
    float *logits; /* [n, vocab] */
    int64_t n, seen;
    bool compare; /* against what is there, else fill */
    char what[64];
} rows;

static bool take_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    rows *r = user;
    assert_true(first >= 0 && first + n_rows <= r->n);
    for (int64_t i = 0; i < n_rows; i++) {
        float *row = r->logits + (first + i) * vocab;
        size_t bytes = (size_t)vocab * sizeof *row;
        if (!r->compare)
            memcpy(row, logits + i * vocab, bytes);
        else if (memcmp(row, logits + i * vocab, bytes) != 0)
            fail_msg("%s: the logits of position %lld differ", r->what, (long long)(first + i));
    }
    r->seen += n_rows;
    return true;
}

static ht_session *open_session(ht_model *m, int32_t chunk) {
    ht_session *s;
    ht_error err = {0};
    if (ht_session_open(m, &(ht_session_options){.chunk = chunk}, &s, &err)) fail_msg("%s", err.message);
    return s;
}

static void feed(ht_model *m, int32_t chunk, const int32_t *ids, rows *r) {
    ht_error err = {0};
    ht_session *s = open_session(m, chunk);
    r->seen = 0;
    if (ht_session_forward(s, ids, (size_t)r->n, true, take_rows, r, &err)) fail_msg("%s", err.message);
    assert_int_equal(r->seen, r->n);
    ht_session_close(&s);
}

/* Two sessions at different places step by step together. */
static void feed_together(ht_model *m, const int32_t *ids, rows *r) {
    enum { STEPS = 12 };
    ht_error err = {0};
    int32_t vocab = ht_model_vocab_size(m);
    ht_session *s[2] = {open_session(m, 0), open_session(m, 0)};
    float *logits = malloc(2 * (size_t)vocab * sizeof *logits);
    for (int i = 0; i < 2; i++)
        if (ht_session_forward(s[i], ids, i ? 70 : 5, false, NULL, NULL, &err)) fail_msg("%s", err.message);
    for (int step = 0; step < STEPS; step++) {
        int32_t next[2] = {ids[ht_session_length(s[0])], ids[ht_session_length(s[1])]};
        if (ht_session_forward_together(s, next, 2, logits, &err)) fail_msg("%s", err.message);
        for (int i = 0; i < 2; i++) take_rows(logits + (int64_t)i * vocab, ht_session_length(s[i]) - 1, 1, vocab, r);
    }
    free(logits);
    ht_session_close(&s[0]);
    ht_session_close(&s[1]);
}

static ht_model *load(const char *path, int threads) {
    ht_error err = {0};
    ht_device *device;
    ht_model *m;
    if (ht_device_open("cpu", &(ht_device_options){.n_threads = threads}, &device, &err)) fail_msg("%s", err.message);
    if (ht_model_load(path, &(ht_model_options){.device = device}, &m, &err)) fail_msg("%s", err.message);
    ht_device_release(device);
    return m;
}

static void check_model(void **state) {
    const char *name = *state, *directory = getenv("HEARTH_TEST_MODELS");
    if (!directory || !*directory) {
        print_message("skipped: HEARTH_TEST_MODELS does not name a directory with %s.gguf\n", name);
        skip();
    }
    static const struct {
        int threads;
        int32_t chunk;
    } runs[] = {{2, 512}, {2, 64}, {2, 37}, {2, 1}, {1, 512}, {4, 512}, {4, 1}};
    char path[1024];
    snprintf(path, sizeof path, "tests/golden/real/%s.json", name);
    golden g = golden_open(path);
    snprintf(path, sizeof path, "%s/%s.gguf", directory, name);
    rows r = {.n = g.n, .logits = malloc((size_t)(g.n * g.vocab) * sizeof(float))};
    assert_non_null(r.logits);
    ht_model *m = NULL;
    for (size_t i = 0, threads = 0; i < sizeof runs / sizeof *runs; i++) {
        if ((size_t)runs[i].threads != threads) {
            ht_model_close(&m);
            m = load(path, runs[i].threads);
            threads = (size_t)runs[i].threads;
        }
        snprintf(r.what, sizeof r.what, "%d threads, chunks of %d", runs[i].threads, (int)runs[i].chunk);
        feed(m, runs[i].chunk, g.ids, &r);
        r.compare = true;
    }
    snprintf(r.what, sizeof r.what, "two sessions together");
    feed_together(m, g.ids, &r);
    ht_model_close(&m);
    free(r.logits);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(check_model, (void *)(uintptr_t) "smollm2-135m"),
        cmocka_unit_test_prestate(check_model, (void *)(uintptr_t) "gemma3-270m"),
        cmocka_unit_test_prestate(check_model, (void *)(uintptr_t) "qwen2.5-coder-0.5b")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
