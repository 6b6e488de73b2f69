/* The real models against float32 transformers (tests/golden/make_real.py). Skipped without HEARTH_TEST_MODELS. */
#include "support/golden.h"
#include "support/model_run.h"
#include "support/options.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check_model(void **state) {
    const char *name = *state, *directory = getenv("HEARTH_TEST_MODELS");
    if (!directory || !*directory) {
        print_message("skipped: HEARTH_TEST_MODELS does not name a directory with %s.gguf\n", name);
        skip();
    }
    char path[1024];
    snprintf(path, sizeof path, "tests/golden/real/%s.json", name);
    golden g = golden_open(path);
    assert_true(g.n >= 128);
    g.n = test_cases(40, (int)g.n); /* the first positions, which those behind do not change */
    snprintf(path, sizeof path, "%s/%s.gguf", directory, name);
    ht_model_options options =
        OPTIONS(ht_model_options, with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32);
    ht_error err = {0};
    ht_model *m;
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    assert_int_equal(m->vocab, g.vocab);
    float *logits = malloc((size_t)(g.n * g.vocab) * sizeof *logits);
    assert_non_null(logits);
    model_run r = model_run_open(m, g.n, 32);
    model_run_feed(&r, g.ids, g.n, logits);
    double difference = golden_difference(&g, logits);
    print_message("%s: largest difference %.2e of the deviation over %lld positions\n", name, difference,
                  (long long)g.n);
    assert_true(difference < 1e-3);
    model_run_close(&r);
    free(logits);
    ht_model_free(m);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(check_model, (void *)(uintptr_t) "smollm2-135m"),
        cmocka_unit_test_prestate(check_model, (void *)(uintptr_t) "gemma3-270m"),
        cmocka_unit_test_prestate(check_model, (void *)(uintptr_t) "qwen2.5-coder-0.5b")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
