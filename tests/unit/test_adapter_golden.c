/* Adapters that PEFT and mlx-lm have saved (tests/golden/make_adapters.py) mean here what they mean there, and still do when
 * they have been through every format; with them, models give the logits that they give there. */
#include "formats/json.h"
#include "models/adapter.h"
#include "support/golden.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/session.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"peft-llama",   "peft-qwen2-patterns", "peft-qwen3-moe",     "peft-gemma4-experts",
                                    "mlx-llama",    "mlx-qwen3-moe",       "mlx-gemma4-experts", "peft-deepseek",
                                    "peft-gpt-oss", "peft-llama4",         "peft-granite-moe"};

/* u' scale B A v of an expert, with u_i = cos(i) and v_j = sin(j + 1). */
static double bilinear(const ht_lora *l, int64_t expert) {
    const float *a = l->a + expert * l->rank * l->n_in, *b = l->b + expert * l->n_out * l->rank;
    double sum = 0;
    for (int64_t k = 0; k < l->rank; k++) {
        double left = 0, right = 0;
        for (int64_t i = 0; i < l->n_out; i++) left += cos((double)i) * (double)b[i * l->rank + k];
        for (int64_t j = 0; j < l->n_in; j++) right += sin((double)j + 1) * (double)a[k * l->n_in + j];
        sum += left * right;
    }
    return sum * (double)l->scale;
}

static void check_deltas(const ht_adapter *a, const ht_json *deltas) {
    const char *slot;
    ht_json *wanted;
    assert_int_equal(a->n, ht_json_object_size(deltas));
    ht_json_object_foreach((ht_json *)(uintptr_t)deltas, slot, wanted) {
        const ht_lora *l = ht_adapter_find(a, slot);
        if (!l) fail_msg("no pair for %s", slot);
        assert_int_equal(ht_json_array_size(wanted), l->n_experts ? l->n_experts : 1);
        for (size_t e = 0; e < ht_json_array_size(wanted); e++) {
            double x = ht_json_number_value(ht_json_array_get(wanted, e)), y = bilinear(l, (int64_t)e);
            if (!(fabs(x - y) <= 2e-5)) fail_msg("%s of expert %zu: %.9g, expected %.9g", slot, e, y, x);
        }
    }
}

static bool keep_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *to) {
    memcpy((float *)to + first * vocab, logits, (size_t)(n_rows * vocab) * sizeof *logits);
    return true;
}

static void check_logits(ht_model *m, ht_adapter *a, const char *name) {
    char path[160];
    snprintf(path, sizeof path, "tests/golden/adapters/%s/reference.json", name);
    golden g = golden_open(path);
    float *logits = calloc((size_t)(g.n * g.vocab), sizeof *logits);
    ht_session *s;
    assert_non_null(logits);
    assert_works(ht_session_new, m, NULL, &s);
    assert_works(ht_session_set_adapters, s, &a, NULL, 1);
    assert_works(ht_session_forward, s, g.ids, (size_t)g.n, OPTIONS_AT(ht_forward_options, with.all_rows = true),
                 keep_rows, logits);
    const double difference = golden_difference(&g, logits);
    if (!(difference < 2e-4)) fail_msg("%s: logits differ by %.2e of the deviation", name, difference);
    ht_session_free(s);
    free(logits);
    golden_close(&g);
}

static void check_adapter(const char *name) {
    char path[160];
    ht_error err = {0};
    ht_json *document;
    snprintf(path, sizeof path, "tests/golden/adapters/%s/deltas.json", name);
    if (ht_json_read(path, 1 << 20, &document, &err)) fail_msg("%s", err.message);
    const ht_json *deltas = ht_json_object_get(document, "deltas");
    ht_model *m;
    snprintf(path, sizeof path, "tests/golden/tiny/%s", ht_json_string_value(ht_json_object_get(document, "base")));
    assert_works(ht_model_load, path,
                 OPTIONS_AT(ht_model_options, with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32), &m);
    snprintf(path, sizeof path, "tests/golden/adapters/%s", name);
    static const ht_adapter_format formats[] = {HT_ADAPTER_GGUF, HT_ADAPTER_PEFT, HT_ADAPTER_MLX};
    for (size_t i = 0; i < 4; i++) {
        ht_adapter *a;
        if (ht_adapter_load(path, m, NULL, &a, &err)) fail_msg("%s", err.message);
        ht_adapter_info info;
        ht_adapter_describe(a, &info);
        assert_string_equal(info.base, ht_json_string_value(ht_json_object_get(document, "base")));
        check_deltas(a, deltas);
        if (i == 0) check_logits(m, a, name);
        if (i < 3) {
            snprintf(path, sizeof path, "%s/%s-%zu", scratch_directory(), name, i);
            if (ht_adapter_save(a, m, path, formats[i], &err)) fail_msg("%s", err.message);
        }
        ht_adapter_free(a);
    }
    ht_model_free(m);
    ht_json_decref(document);
}

static void adapters_of_others(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_adapter(names[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {in_scratch(adapters_of_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
