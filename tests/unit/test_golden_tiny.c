/* Tiny random checkpoints of every family and shape against float32 transformers (tests/golden/make_tiny.py) and
 * mlx-lm (tests/golden/make_mlx.py). */
#include "support/cpu_device.h"
#include "support/golden.h"
#include "support/model_run.h"
#include "support/options.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char directory[] = "tests/golden/tiny";

static ht_model *load(const char *name, ht_precision precision, ht_dtype kv) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ht_model_options options =
        OPTIONS(ht_model_options, with.device = cpu_device, with.precision = precision, with.kv_dtype = kv);
    ht_error err = {0};
    ht_model *m;
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    return m;
}

static golden open_reference(const char *name) {
    char path[256];
    size_t stem = strlen(name) > 5 && !strcmp(name + strlen(name) - 5, ".gguf") ? strlen(name) - 5 : 0;
    if (stem)
        snprintf(path, sizeof path, "%s/%.*s.reference.json", directory, (int)stem, name);
    else
        snprintf(path, sizeof path, "%s/%s/reference.json", directory, name);
    return golden_open(path);
}

static float *run(const ht_model *m, const golden *g, int32_t chunk) {
    assert_int_equal(m->vocab, g->vocab);
    float *logits = calloc((size_t)(g->n * g->vocab), sizeof *logits);
    assert_non_null(logits);
    model_run r = model_run_open(m, g->n, chunk);
    model_run_feed(&r, g->ids, g->n, logits);
    model_run_close(&r);
    return logits;
}

/* One token at a time, as generation does: the ids the reference chose, from what it chose before. */
static void check_greedy(const ht_model *m, const golden *g) {
    const ht_json *wanted = ht_json_object_get(g->document, "greedy");
    int64_t n = (int64_t)ht_json_array_size(wanted);
    assert_true(n > 0);
    float *logits = calloc((size_t)(g->n * g->vocab), sizeof *logits), *row = logits + (g->n - 1) * g->vocab;
    assert_non_null(logits);
    model_run r = model_run_open(m, g->n + n, 64);
    model_run_feed(&r, g->ids, g->n, logits);
    for (int64_t i = 0; i < n; i++) {
        int32_t best = 0;
        for (int32_t k = 1; k < g->vocab; k++)
            if (row[k] > row[best]) best = k;
        assert_int_equal(best, ht_json_integer_value(ht_json_array_get(wanted, (size_t)i)));
        model_run_feed(&r, &best, 1, row);
    }
    model_run_close(&r);
    free(logits);
}

static void check_checkpoint(void **state) {
    const char *name = *state;
    golden g = open_reference(name);
    ht_model *m = load(name, HT_PRECISION_REFERENCE, HT_F32);
    float *whole = run(m, &g, 1024);
    double difference = golden_difference(&g, whole);
    print_message("%s: largest difference %.2e of the deviation\n", name, difference);
    assert_true(difference < 1e-3);
    /* The rows a step holds are not to be seen in what it gives. */
    float *pieces = run(m, &g, 7);
    assert_memory_equal(pieces, whole, (size_t)(g.n * g.vocab) * sizeof *whole);
    check_greedy(m, &g);
    free(whole);
    free(pieces);
    ht_model_free(m);
    golden_close(&g);
}

/* Other precisions are no yardstick, but they are close; except where a router nearly ties, and rounding chooses. */
static void check_close(const char *name, ht_precision precision, double most) {
    golden g = open_reference(name);
    ht_model *m = load(name, precision, HT_F16);
    float *logits = run(m, &g, 32);
    double difference = golden_difference(&g, logits);
    bool routed = strstr(name, "experts") || strstr(name, "moe");
    double share = golden_share_within(&g, logits, most);
    print_message("%s: largest difference %.2e of the deviation in %s precision, %.0f %% of positions below %g\n", name,
                  difference, precision == HT_PRECISION_HIGH ? "high" : "fast", 100 * share, most);
    assert_true(routed ? share > 0.8 : difference < most);
    free(logits);
    ht_model_free(m);
    golden_close(&g);
}

static void check_high(void **state) { check_close(*state, HT_PRECISION_HIGH, 0.01); }
static void check_fast(void **state) { check_close(*state, HT_PRECISION_FAST, 0.15); }

int main(void) {
    static const char *const names[] = {"llama-f32",
                                        "llama-head-dim-bf16",
                                        "llama-llama3-f16-shards",
                                        "llama-llama3-bf16",
                                        "llama-linear-bias-bf16",
                                        "llama-yarn-f16",
                                        "llama-fp8-blocks",
                                        "llama-fp8-rows",
                                        "llama-fp8-whole",
                                        "llama-modelopt-fp8",
                                        "qwen3-moe-modelopt-fp8",
                                        "llama-compressed-fp8-channel",
                                        "qwen3-compressed-fp8-block",
                                        "qwen2-compressed-fp8-naive",
                                        "mistral-compressed-mixed",
                                        "llama-modelopt-nvfp4",
                                        "qwen3-moe-compressed-nvfp4",
                                        "qwen3-moe-modelopt-nvfp4-stacked",
                                        "gemma4-experts-compressed-nvfp4",
                                        "gemma4-experts-compressed-nvfp4-stacked",
                                        "gemma4-experts-modelopt-nvfp4",
                                        "qwen2-f32",
                                        "qwen2-tied-bf16",
                                        "qwen2-sliding-f16",
                                        "gemma3-f32",
                                        "gemma3-scaled-bf16",
                                        "gemma3-multimodal-bf16-shards",
                                        "llama-f32.gguf",
                                        "llama-f16.gguf",
                                        "llama-q8_0.gguf",
                                        "llama-q4_1.gguf",
                                        "llama-nvfp4.gguf",
                                        "llama-llama3-q8_0.gguf",
                                        "llama-yarn-f16.gguf",
                                        "qwen2-q4_0.gguf",
                                        "gemma3-q5_1.gguf",
                                        "mistral-sliding-f32",
                                        "mistral-head-dim-bf16",
                                        "qwen3-f32",
                                        "qwen3-bias-sliding-bf16",
                                        "qwen3-q8_0.gguf",
                                        "gemma2-f32",
                                        "gemma2-f16-shards",
                                        "gemma2-q4_1.gguf",
                                        "gemma4-f32",
                                        "gemma4-shared-bf16",
                                        "gemma4-k-is-v-f16-shards",
                                        "gemma4-multimodal-bf16",
                                        "gemma4-q8_0.gguf",
                                        "gemma4-k-is-v-q4_1.gguf",
                                        "llama-mlx4-bf16",
                                        "llama-mlx8-f16",
                                        "llama-mxfp4",
                                        "qwen2-mlx3-f16",
                                        "qwen2-nvfp4",
                                        "qwen3-mlx5-f32",
                                        "qwen3-mxfp8",
                                        "qwen3-moe-mxfp8",
                                        "qwen3-moe-fp8-blocks",
                                        "qwen3-moe-fp8-whole",
                                        "gemma4-experts-fp8-rows",
                                        "gemma3-mlx6-bf16",
                                        "gemma4-mlx2-f16",
                                        "qwen3-moe-mlx4-bf16",
                                        "gemma4-experts-mlx4-f16",
                                        "gemma4-experts-mlx4-router8-bf16",
                                        "gemma4-experts-mlx8-bf16",
                                        "gemma4-experts-bf16",
                                        "gemma4-experts-q8_0.gguf",
                                        "qwen3-moe-f32",
                                        "qwen3-moe-mixed-bf16",
                                        "qwen3-moe-q4_1.gguf",
                                        "qwen3-moe-nvfp4.gguf"};
    enum { N = sizeof names / sizeof *names };
    struct CMUnitTest tests[3 * N] = {{0}}; /* cmocka passes over the last ones where there are fewer */
    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){names[i], check_checkpoint, NULL, NULL, (void *)(uintptr_t)names[i]};
    const int every = test_is_late() ? 6 : 1; /* whose kernels are plain ones in any precision */
    for (int i = 0, n = N; i < 2 * N; i++)
        if (test_takes(i % N + 3 * (i / N), every))
            tests[n++] = (struct CMUnitTest){names[i % N], i < N ? check_high : check_fast, NULL, NULL,
                                             (void *)(uintptr_t)names[i % N]};
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
