/* Perplexity and divergence: against float32 transformers (tests/golden/make_perplexity.py), and what is refused. */
#include "analysis/kl_divergence.h"
#include "device/device.h"
#include "models/model.h"
#include "support/checkpoints.h"
#include "support/golden.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- golden ---- */

static ht_model *load(const char *name) {
    return tiny_checkpoint_load(
        name, 0, OPTIONS_AT(ht_model_options, with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32));
}

static void check_near(const ht_json *c, const char *key, double found) {
    double wanted = ht_json_number_value(ht_json_object_get(c, key));
    print_message("%s %s: %.9g, transformers %.9g\n", ht_json_string_value(ht_json_object_get(c, "checkpoint")), key,
                  found, wanted);
    if (!(fabs(found - wanted) <= 1e-3 * fabs(wanted))) fail_msg("%s is %.9g, expected %.9g", key, found, wanted);
}

static void check_case(const ht_json *c) {
    const ht_json *list = ht_json_object_get(c, "ids");
    size_t n = ht_json_array_size(list);
    int32_t *ids = json_ids(list);
    assert_true(n > 0);
    const char *other = ht_json_string_value(ht_json_object_get(c, "other"));
    ht_model *m = load(ht_json_string_value(ht_json_object_get(c, "checkpoint"))),
             *reference = other ? load(other) : NULL;
    ht_evaluate_options o =
        OPTIONS(ht_evaluate_options, with.window = (int32_t)ht_json_integer_value(ht_json_object_get(c, "window")),
                with.reference = reference);
    ht_evaluation *r;
    assert_works(ht_evaluate_ids, m, ids, n, &o, &r);
    assert_true(r->n_tokens == (int64_t)n);
    assert_int_equal(r->n_scored, ht_json_integer_value(ht_json_object_get(c, "scored")));
    check_near(c, "mean_nll", r->mean_nll);
    check_near(c, "perplexity", r->perplexity);
    check_near(c, "perplexity_error", r->perplexity_error);
    assert_int_equal(r->n_kl_percentiles, reference ? 5 : 0);
    if (reference) {
        check_near(c, "other_perplexity", r->reference_perplexity);
        check_near(c, "kl_mean", r->kl_mean);
        check_near(c, "kl_error", r->kl_error);
        check_near(c, "kl_max", r->kl_max);
        check_near(c, "same_top", r->same_top);
        for (size_t i = 0; (int)i < r->n_kl_percentiles; i++) {
            double wanted = ht_json_number_value(ht_json_array_get(ht_json_object_get(c, "kl_percentiles"), i));
            assert_true(fabs(r->kl_percentiles[i].value - wanted) <= 1e-3 * wanted);
        }
    }
    ht_evaluation_free(r);
    ht_model_free(m);
    ht_model_free(reference);
    free(ids);
}

UNIT_TEST(against_transformers) {
    ht_json *document = json_file("tests/golden/perplexity.json");
    size_t i;
    ht_json *c;
    assert_true(ht_json_array_size(ht_json_object_get(document, "cases")) >= 4);
    ht_json_array_foreach(ht_json_object_get(document, "cases"), i, c) check_case(c);
    ht_json_decref(document);
}

/* ---- windows ---- */

enum { N = 200 };

static ht_evaluation evaluate(ht_model *m, const int32_t *ids, size_t n, ht_evaluate_options o) {
    ht_evaluation *made, r;
    assert_works(ht_evaluate_ids, m, ids, n, &o, &made);
    r = *made;
    ht_evaluation_free(made);
    return r;
}

UNIT_TEST(windows) {
    ht_model *m = tiny_load(&(tiny_options){.context = 256});
    int32_t ids[N];
    tiny_ids(ids, N, 3);
    /* 66 + 66 + 66 + 2; 99 + 99 + 2; 199 and a last window of one token that has nothing to predict. */
    ht_evaluation a = evaluate(m, ids, N, OPTIONS(ht_evaluate_options, with.window = 66));
    assert_true(a.n_windows == 4 && a.n_scored == 3 * 65 + 1 && a.n_tokens == N);
    ht_evaluation b = evaluate(m, ids, N, OPTIONS(ht_evaluate_options, with.window = 199));
    assert_true(b.n_windows == 1 && b.n_scored == 198);
    /* The default is 512 or the context. */
    ht_evaluation c = evaluate(m, ids, N, DEFAULTS(ht_evaluate_options));
    assert_true(c.n_windows == 1 && c.n_scored == 199 && c.window == 256);
    ht_evaluation d = evaluate(m, ids, N, OPTIONS(ht_evaluate_options, with.window = 256));
    assert_true(c.n_scored == d.n_scored && c.mean_nll == d.mean_nll);
    assert_true(a.mean_nll != b.mean_nll);
    ht_model_free(m);
}

UNIT_TEST(with_itself) {
    ht_model *m = tiny_load(&(tiny_options){0});
    int32_t ids[N];
    tiny_ids(ids, N, 4);
    ht_evaluation alone = evaluate(m, ids, N, OPTIONS(ht_evaluate_options, with.window = 50)),
                  r = evaluate(m, ids, N, OPTIONS(ht_evaluate_options, with.window = 50, with.reference = m));
    assert_true(r.kl_mean == 0 && r.kl_max == 0 && r.same_top == 1 && r.same_top_error == 0);
    assert_true(r.perplexity == r.reference_perplexity && r.perplexity == alone.perplexity);
    assert_true(alone.kl_mean == 0 && alone.same_top == 0 && alone.reference_perplexity == 0);
    ht_model_free(m);
}

typedef struct half {
    double done;
    ht_cancel flag;
} half;

static void stop_at_half(double done, void *user) {
    half *h = user;
    h->done = done;
    if (done >= 0.5) ht_cancel_request(&h->flag);
}

UNIT_TEST(refusals) {
    ht_model *m = tiny_load(&(tiny_options){.context = 256}), *other = load("llama-f32");
    int32_t ids[N];
    tiny_ids(ids, N, 5);
    ht_evaluation *r;
    ht_error err = {0};
#define REFUSED(n, status, says, ...)                                                                                  \
    do {                                                                                                               \
        assert_int_equal(ht_evaluate_ids(m, ids, n, OPTIONS_AT(ht_evaluate_options, __VA_ARGS__), &r, &err), status);  \
        if (!strstr(err.message, says)) fail_msg("\"%s\" does not say %s", err.message, says);                         \
        assert_null(r);                                                                                                \
    } while (0)
    REFUSED(N, HT_ERR_LIMIT, "256", with.window = 257);
    REFUSED(N, HT_ERR_ARGUMENT, "2 or more", with.window = 1);
    REFUSED(N, HT_ERR_ARGUMENT, "2 or more", with.window = -5);
    REFUSED(1, HT_ERR_ARGUMENT, "nothing to predict", with.window = 8);
    REFUSED(N, HT_ERR_ARGUMENT, "vocabularies of 288 and 61", with.reference = other);
    half h = {0};
    REFUSED(N, HT_ERR_CANCELLED, "cancelled", with.window = 10, with.progress = stop_at_half, with.user = &h,
            with.cancel = &h.flag);
    assert_true(h.done >= 0.5 && h.done < 0.7);
    ids[7] = 288;
    REFUSED(N, HT_ERR_ARGUMENT, "place 7", with.window = 8);
    assert_int_equal(ht_evaluate_text(other, "hello", 5, NULL, &r, &err), HT_ERR_UNSUPPORTED);
    ht_model_free(m);
    ht_model_free(other);
}

/* ---- rows ---- */

enum { VOCAB = 3000 };

/* The definition, in double precision. */
static double divergence(const float *x, const float *y, int n) {
    double sx = 0, sy = 0, total = 0;
    for (int i = 0; i < n; i++) sx += exp((double)x[i]), sy += exp((double)y[i]);
    for (int i = 0; i < n; i++) {
        double p = exp((double)x[i]) / sx, q = exp((double)y[i]) / sy;
        total += p * (log(p) - log(q));
    }
    return total;
}

UNIT_TEST(rows) {
    ht_device *device;
    assert_works(ht_device_open, "cpu", NULL, &device);
    const ht_row_ops *ops = device->row_ops;
    static float x[VOCAB], y[VOCAB];
    for (double off = 1e-4; off < 20; off *= 10) {
        uint32_t seed = 9;
        for (int i = 0; i < VOCAB; i++) {
            seed = seed * 1664525 + 1013904223;
            x[i] = (float)(seed >> 8) / (1 << 24) * 20 - 10;
            seed = seed * 1664525 + 1013904223;
            y[i] = x[i] + (float)(((double)(seed >> 8) / (1 << 24) - 0.5) * off);
        }
        ht_row_summary sx = ht_row_summarise(ops, x, VOCAB), sy = ht_row_summarise(ops, y, VOCAB);
        double found = ht_row_kl(ops, x, &sx, y, &sy, VOCAB), wanted = divergence(x, y, VOCAB);
        print_message("logits that are off by %g: divergence %g, %g by its definition\n", off, found, wanted);
        assert_true(fabs(found - wanted) <= 1e-4 * wanted);
        assert_true(x[sx.top] == sx.max && ht_row_kl(ops, x, &sx, x, &sx, VOCAB) == 0);
    }
    for (int i = 0; i < VOCAB; i++) x[i] = 1;
    ht_row_summary s = ht_row_summarise(ops, x, VOCAB);
    assert_int_equal(s.top, 0); /* the lowest id on ties */
    assert_true(fabs(ht_row_nll(x, &s, 77) - log(VOCAB)) < 1e-6);
    x[VOCAB - 1] = NAN;
    s = ht_row_summarise(ops, x, VOCAB);
    assert_true(isnan(ht_row_nll(x, &s, 0)));
    ht_device_free(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_transformers),
        cmocka_unit_test_setup_teardown(windows, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(with_itself, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(refusals, scratch_start, scratch_finish),
        cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
