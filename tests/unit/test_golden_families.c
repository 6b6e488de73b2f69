/* Tiny random checkpoints of the model families, safetensors and GGUF, against float32 transformers
 * (tests/golden/make_families.py). HEARTH_TEST_FAMILIES selects some by name, separated by commas: `phi3` selects phi3,
 * phi3.gguf and phi3-longrope. */
#include "support/checkpoints.h"
#include "support/cpu_device.h"
#include "support/golden.h"
#include "support/options.h"
#include "support/test.h"

#include <hearth/session.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char directory[] = "tests/golden/families";

/* NAME for tests/golden/families/NAME, NAME.gguf for the file. Both have the weights that NAME/reference.json answers for. */
typedef struct checkpoint {
    char name[64], path[128], reference[128];
} checkpoint;

enum { MAX = 256 };
static checkpoint checkpoints[MAX];
static int n_checkpoints;

static ht_model *load(const char *path, ht_precision precision, ht_dtype kv) {
    ht_model_options options =
        OPTIONS(ht_model_options, with.device = cpu_device, with.precision = precision, with.kv_dtype = kv);
    ht_model *m;
    assert_works(ht_model_load, path, &options, &m);
    return m;
}

static bool keep_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *to) {
    memcpy((float *)to + first * vocab, logits, (size_t)(n_rows * vocab) * sizeof *logits);
    return true;
}

/* Logits [n, vocab] after every id of a prompt, in chunks of at most `chunk` rows. */
static float *prompt_logits(ht_model *m, const golden *g, int64_t chunk) {
    float *logits = calloc((size_t)(g->n * g->vocab), sizeof *logits);
    assert_non_null(logits);
    ht_session *s;
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = chunk), &s);
    assert_works(ht_session_forward, s, g->ids, (size_t)g->n, OPTIONS_AT(ht_forward_options, with.all_rows = true),
                 keep_rows, logits);
    ht_session_free(s);
    return logits;
}

static bool keep_last(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *to) {
    (void)first;
    memcpy(to, logits + (n_rows - 1) * vocab, (size_t)vocab * sizeof *logits);
    return true;
}

/* One token at a time, as generation does: the ids that the reference chose, from what it chose before. */
static void check_greedy(ht_model *m, const golden *g) {
    const ht_json *wanted = ht_json_object_get(g->document, "greedy");
    size_t n = ht_json_array_size(wanted);
    assert_true(n > 0);
    float *row = calloc((size_t)g->vocab, sizeof *row);
    assert_non_null(row);
    ht_session *s;
    assert_works(ht_session_new, m, NULL, &s);
    assert_works(ht_session_forward, s, g->ids, (size_t)g->n, NULL, keep_last, row);
    for (size_t i = 0; i < n; i++) {
        int32_t best = 0;
        for (int32_t k = 1; k < g->vocab; k++)
            if (row[k] > row[best]) best = k;
        assert_int_equal(best, ht_json_integer_value(ht_json_array_get(wanted, i)));
        assert_works(ht_session_forward, s, &best, 1, NULL, keep_last, row);
    }
    ht_session_free(s);
    free(row);
}

static void check_prompt(ht_model *m, const golden *g, const char *name, const char *which) {
    assert_int_equal(ht_model_vocab_size(m), g->vocab);
    float *whole = prompt_logits(m, g, 1024);
    double difference = golden_difference(g, whole);
    print_message("%s: largest difference %.2e of the deviation, %s prompt\n", name, difference, which);
    assert_true(difference < 2e-4);
    float *pieces = prompt_logits(m, g, 7);
    assert_memory_equal(pieces, whole, (size_t)(g->n * g->vocab) * sizeof *whole);
    free(whole);
    free(pieces);
}

static void check_reference(void **state) {
    const checkpoint *c = *state;
    golden first = golden_open(c->reference), second = golden_open_second(c->reference);
    ht_model *m = load(c->path, HT_PRECISION_REFERENCE, HT_F32);
    check_prompt(m, &first, c->name, "first");
    check_prompt(m, &second, c->name, "second");
    check_greedy(m, &first);
    ht_model_free(m);
    golden_close(&first);
    golden_close(&second);
}

/* The default precision is no yardstick, but it is close; except where a router nearly ties, and rounding chooses. */
static void check_high(void **state) {
    const checkpoint *c = *state;
    golden g = golden_open(c->reference);
    ht_model *m = load(c->path, HT_PRECISION_HIGH, HT_F16);
    float *logits = prompt_logits(m, &g, 32);
    double difference = golden_difference(&g, logits), share = golden_share_within(&g, logits, 0.01);
    bool routed = ht_json_is_true(ht_json_object_get(g.document, "routed"));
    print_message("%s: largest difference %.2e of the deviation in high precision, %.0f %% of positions below 0.01\n",
                  c->name, difference, 100 * share);
    assert_true(routed ? share > 0.8 : difference < 0.01);
    free(logits);
    ht_model_free(m);
    golden_close(&g);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const checkpoint *)a)->name, ((const checkpoint *)b)->name);
}

static void find_checkpoints(void) {
    const char *list = getenv("HEARTH_TEST_FAMILIES");
    DIR *d = opendir(directory);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (*e->d_name == '.' || (list && !checkpoint_is_listed(list, e->d_name)) || n_checkpoints == MAX) continue;
        const char *dot = strrchr(e->d_name, '.');
        int stem = (int)(dot && !strcmp(dot, ".gguf") ? (size_t)(dot - e->d_name) : strlen(e->d_name));
        checkpoint *c = &checkpoints[n_checkpoints++];
        snprintf(c->name, sizeof c->name, "%.63s", e->d_name);
        snprintf(c->path, sizeof c->path, "%s/%.63s", directory, e->d_name);
        snprintf(c->reference, sizeof c->reference, "%s/%.*s/reference.json", directory, stem, e->d_name);
    }
    if (d) closedir(d);
    qsort(checkpoints, (size_t)n_checkpoints, sizeof *checkpoints, by_name);
}

/* A wrong directory or a list without a match must not pass as a test of nothing. */
UNIT_TEST(has_checkpoints) { assert_in_range(n_checkpoints, 1, MAX - 1); }

int main(void) {
    find_checkpoints();
    const int every = test_is_late() ? 6 : 1; /* whose kernels are plain ones in any precision */
    struct CMUnitTest tests[1 + 2 * MAX] = {cmocka_unit_test(has_checkpoints)}; /* cmocka skips the empty ones */
    for (int i = 0; i < n_checkpoints; i++) {
        checkpoint *c = &checkpoints[i];
        tests[1 + 2 * i] = (struct CMUnitTest){c->name, check_reference, NULL, NULL, c};
        if (test_takes(i, every)) tests[2 + 2 * i] = (struct CMUnitTest){c->name, check_high, NULL, NULL, c};
    }
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
