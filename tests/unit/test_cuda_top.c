/* The highest logits as the CUDA device finds them, beside those that the host finds in whole rows, and the tokens that are drawn of
 * them. Where there is no CUDA driver there is nothing to test. */
#include "device/device.h"
#include "generate/logits_row.h"
#include "generate/sampler.h"
#include "support/gpu.h"
#include "support/kernels.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* ---- rows ---- */

enum { RANDOM, TIES, ZEROS, EQUAL, DENORMAL, RISING, KINDS };

static float element(int kind, int64_t i) {
    const float v = 4 * test_random_float(&seed);
    switch (kind) {
    case TIES: return floorf(v);
    case ZEROS: return v < 1 ? (i % 3 ? 0.0f : -0.0f) : -v;
    case EQUAL: return -3;
    case DENORMAL: return v < 0 ? -1e38f : (float)(i % 7) * 1e-40f;
    case RISING: return (float)i;
    default: return v;
    }
}

typedef struct found {
    float *value;
    int32_t *id;
} found;

/* The k highest of each row, found by the device. */
static found find(const float *x, int64_t rows, int64_t n, int32_t k) {
    ht_device *d = beside_device[GPU];
    ht_error err = {0};
    ht_mark failed;
    const size_t bytes = (size_t)(rows * n) * sizeof *x, out = (size_t)(rows * k) * sizeof(float);
    void *there = test_room_on(d, bytes), *scratch = test_room_on(d, d->top->scratch(rows, n, k)),
         *value = test_room_on(d, out), *id = test_room_on(d, out);
    must(ht_memory_write(d->memory, there, x, bytes, &err), &err);
    const unsigned turn = d->begin(d);
    const ht_top_search search = {there, rows, n, k, scratch, value, id};
    must(d->top->run(d, &search, &err), &err);
    must(ht_device_wait(d, &failed, &err), &err);
    d->end(d, turn);
    const found f = {malloc(out), malloc(out)};
    must(ht_memory_read(d->memory, f.value, value, out, &err), &err);
    must(ht_memory_read(d->memory, f.id, id, out, &err), &err);
    ht_memory_free(d->memory, there, bytes);
    ht_memory_free(d->memory, scratch, d->top->scratch(rows, n, k));
    ht_memory_free(d->memory, value, out);
    ht_memory_free(d->memory, id, out);
    return f;
}

static int by_id(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

static void compare(const float *x, int64_t n, int32_t k, const float *value, const int32_t *id, const char *what) {
    ht_ranked *sorted = malloc((size_t)n * sizeof *sorted);
    int32_t *expected = malloc((size_t)k * sizeof *expected);
    for (int32_t i = 0; i < n; i++) sorted[i] = ht_rank(x[i], i);
    ht_ranked_sort(sorted, (int32_t)n);
    for (int32_t i = 0; i < k; i++) expected[i] = ht_ranked_index(sorted[i]);
    qsort(expected, (size_t)k, sizeof *expected, by_id);
    for (int32_t i = 0; i < k; i++)
        if (id[i] != expected[i] || memcmp(&value[i], &x[id[i]], sizeof *x) != 0)
            fail_msg("%s: the highest %d of %lld: id %d is %d with %g, expected %d", what, (int)k, (long long)n, (int)i,
                     (int)id[i], (double)value[i], (int)expected[i]);
    free(sorted);
    free(expected);
}

UNIT_TEST(the_highest) {
    if (!beside_device[GPU]) skip();
    static const char *const names[KINDS] = {"random", "ties", "zeros", "equal", "denormal", "rising"};
    static const int64_t sizes[] = {1, 5, 288, 4096, 4097, 9000, 131072};
    static const int32_t ks[] = {1, 2, 40, 104, 256};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int kind = 0; kind < KINDS; kind++) {
            const int64_t n = sizes[s], rows = n < 5000 ? 3 : 1;
            if (n > 5000 && kind > TIES && test_cases(0, 1) == 0) continue;
            float *x = malloc((size_t)(rows * n) * sizeof *x);
            for (int64_t i = 0; i < rows * n; i++) x[i] = element(kind, i);
            for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
                const int32_t k = ks[i];
                if (k > beside_device[GPU]->top->most(n)) continue;
                const found f = find(x, rows, n, k);
                for (int64_t r = 0; r < rows; r++) compare(x + r * n, n, k, f.value + r * k, f.id + r * k, names[kind]);
                free(f.value);
                free(f.id);
            }
            free(x);
        }
}

UNIT_TEST(values_that_are_no_numbers) {
    if (!beside_device[GPU]) skip();
    enum { N = 4500, ROWS = 3, K = 10 };
    static const float wrong[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const int where[] = {0, 4095, 4096, N - 1};
    float *x = malloc((size_t)ROWS * N * sizeof *x);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            for (int64_t k = 0; k < ROWS * N; k++) x[k] = element(RANDOM, k);
            x[N + where[j]] = wrong[i];
            const found f = find(x, ROWS, N, K);
            assert_int_equal(f.id[K], -1);
            compare(x, N, K, f.value, f.id, "before");
            compare(x + 2 * N, N, K, f.value + 2 * K, f.id + 2 * K, "behind");
            free(f.value);
            free(f.id);
        }
    free(x);
}

UNIT_TEST(what_can_be_found) {
    if (!beside_device[GPU]) skip();
    const ht_top_ops *top = beside_device[GPU]->top;
    assert_int_equal(top->most(0), 0);
    assert_int_equal(top->most(100), 100);
    assert_int_equal(top->most(128256), 256);
    assert_true(top->most(262208) >= 128);
    assert_int_equal(top->most((int64_t)1 << 40), 0);
}

/* ---- tokens ---- */

enum { N_TOKENS = 12 };

static bool keep_last(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)first;
    memcpy(user, logits + (n_rows - 1) * vocab, (size_t)vocab * sizeof *logits);
    return true;
}

/* The tokens that whole rows give. */
static void draw_of_rows(ht_model *m, const int32_t *prompt, size_t n, const ht_sampler_options *o, int32_t *out) {
    ht_error err = {0};
    ht_sampler *sampler;
    float row[TINY_VOCAB];
    ht_session *s = tiny_session(m, 64);
    must(ht_sampler_new(o, TINY_VOCAB, beside_device[CPU]->row_ops, &sampler, &err), &err);
    must(ht_session_forward(s, prompt, n, NULL, keep_last, row, &err), &err);
    for (int i = 0; i < N_TOKENS; i++) {
        must(ht_sampler_pick_row(sampler, &(ht_logits_rows){.x = row, .n = TINY_VOCAB}, 0, ht_session_tokens(s),
                                 ht_session_length(s), &out[i], &err),
             &err);
        must(ht_session_forward(s, &out[i], 1, NULL, keep_last, row, &err), &err);
    }
    ht_sampler_free(sampler);
    ht_session_free(s);
}

UNIT_TEST(tokens_are_those_of_whole_rows) {
    if (!beside_device[GPU]) skip();
    ht_error err = {0};
    ht_model *m = tiny_load(&(tiny_options){.device = "cuda", .n_threads = 1});
    int32_t prompt[5], expected[N_TOKENS];
    ht_sampler_options how[6];
    for (int i = 0; i < 6; i++) how[i] = OPTIONS(ht_sampler_options, with.seed = 17 + (uint64_t)i);
    how[1].repeat_penalty = 1.3f; /* of the greedy */
    how[2].temperature = 1.5f, how[2].top_k = 40;
    how[3].temperature = 1.5f, how[3].top_k = 20, how[3].min_p = 0.05f, how[3].repeat_penalty = 1.2f;
    how[4].temperature = 1.5f, how[4].top_k = 30, how[4].top_p = 0.7f, how[4].order = "top_k,top_p";
    how[5].temperature = 1.5f; /* whole rows */
    for (int i = 0; i < 6; i++) {
        tiny_ids(prompt, 5, 100 + (uint64_t)i);
        draw_of_rows(m, prompt, 5, &how[i], expected);
        ht_session *s = tiny_session(m, 64);
        const ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = N_TOKENS, with.ignore_eos = true, with.sampler = &how[i]);
        must(ht_generate(s, prompt, 5, &o, NULL, NULL, NULL, &err), &err);
        assert_memory_equal(ht_session_tokens(s) + 5, expected, sizeof expected);
        ht_session_free(s);
    }
    ht_model_free(m);
}

/* Two sessions at once: several rows of a step, of different k. */
UNIT_TEST(sessions_together) {
    if (!beside_device[GPU]) skip();
    ht_error err = {0};
    ht_model *m = tiny_load(&(tiny_options){.device = "cuda", .n_threads = 1});
    const ht_sampler_options greedy = OPTIONS(ht_sampler_options, (void)0);
    ht_session *s[3];
    int32_t prompt[3][5], expected[3][N_TOKENS], next[3];
    for (int i = 0; i < 3; i++) {
        tiny_ids(prompt[i], 5, 200 + (uint64_t)i);
        draw_of_rows(m, prompt[i], 5, &greedy, expected[i]);
        s[i] = tiny_session(m, 64);
        must(ht_session_forward(s[i], prompt[i], 4, NULL, NULL, NULL, &err), &err);
        next[i] = prompt[i][4];
    }
    for (int t = 0; t < N_TOKENS; t++) {
        const int32_t ids[3] = {next[0], next[1], next[2]};
        must(ht_session_decode_together(s, ids, 3, NULL, next, &err), &err);
        for (int i = 0; i < 3; i++) assert_int_equal(next[i], expected[i][t]);
    }
    for (int i = 0; i < 3; i++) ht_session_free(s[i]);
    ht_model_free(m);
}

/* The same error as of whole rows. */
UNIT_TEST(logits_that_are_no_numbers) {
    if (!beside_device[GPU]) skip();
    ht_error err = {0}, expected = {0};
    const ht_sampler_options how[2] = {OPTIONS(ht_sampler_options, (void)0),
                                       OPTIONS(ht_sampler_options, with.temperature = 1)};
    ht_model *m = tiny_load(&(tiny_options){.device = "cuda", .n_threads = 1, .nan_token = 5});
    for (int whole = 1; whole >= 0; whole--) {
        ht_session *s = tiny_session(m, 64);
        const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 3, with.sampler = &how[whole]);
        assert_int_equal(ht_generate(s, (int32_t[]){1, 5}, 2, &o, NULL, NULL, NULL, whole ? &expected : &err),
                         HT_ERR_INTERNAL);
        ht_session_free(s);
    }
    assert_string_equal(err.message, expected.message);
    ht_model_free(m);
}

static int setup(void **state) {
    scratch_make();
    return beside_open(state);
}
static int teardown(void **state) {
    scratch_remove();
    return beside_close(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest),       cmocka_unit_test(values_that_are_no_numbers),
        cmocka_unit_test(what_can_be_found), cmocka_unit_test(tokens_are_those_of_whole_rows),
        cmocka_unit_test(sessions_together), cmocka_unit_test(logits_that_are_no_numbers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
