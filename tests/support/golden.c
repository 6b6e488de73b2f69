#include "support/golden.h"

#include "support/json_file.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

static golden read_answer(ht_json *document) {
    golden g = {.document = document};
    const ht_json *ids = ht_json_object_get(g.document, "ids");
    g.n = (int64_t)ht_json_array_size(ids);
    g.vocab = ht_json_integer_value(ht_json_object_get(g.document, "vocab"));
    g.stride = ht_json_integer_value(ht_json_object_get(g.document, "stride"));
    g.std = ht_json_number_value(ht_json_object_get(g.document, "std"));
    g.ids = calloc((size_t)g.n, sizeof *g.ids);
    assert_non_null(g.ids);
    for (int64_t i = 0; i < g.n; i++) g.ids[i] = (int32_t)ht_json_integer_value(ht_json_array_get(ids, (size_t)i));
    return g;
}

golden golden_open(const char *path) { return read_answer(json_file(path)); }

golden golden_open_second(const char *path) {
    ht_json *document = json_file(path), *second = ht_json_object_get(document, "second");
    assert_non_null(second);
    ht_json_incref(second);
    ht_json_decref(document);
    return read_answer(second);
}

void golden_close(golden *g) {
    ht_json_decref(g->document);
    free(g->ids);
    *g = (golden){0};
}

static double number_at(const ht_json *list, int64_t i) {
    return ht_json_number_value(ht_json_array_get(list, (size_t)i));
}

/* fmax would drop a NaN, and with it the failure. */
static double worse(double a, double b) { return isnan(a) || isnan(b) ? NAN : a > b ? a : b; }

static double log_sum_exp(const float *row, int64_t n) {
    double top = row[0], sum = 0;
    for (int64_t i = 1; i < n; i++) top = row[i] > top ? row[i] : top;
    for (int64_t i = 0; i < n; i++) sum += exp(row[i] - top);
    return top + log(sum);
}

double golden_share_within(const golden *g, const float *logits, double limit) {
    int64_t near = 0;
    for (int64_t i = 0; i < g->n; i++) {
        const float *row = logits + i * g->vocab;
        const ht_json *ids = ht_json_array_get(ht_json_object_get(g->document, "top_ids"), (size_t)i);
        const ht_json *values = ht_json_array_get(ht_json_object_get(g->document, "top_logits"), (size_t)i);
        double worst = fabs(log_sum_exp(row, g->vocab) - number_at(ht_json_object_get(g->document, "logsumexp"), i));
        for (size_t k = 0; k < ht_json_array_size(ids); k++)
            worst = worse(worst,
                          fabs(row[ht_json_integer_value(ht_json_array_get(ids, k))] - number_at(values, (int64_t)k)));
        near += worst < limit * g->std;
    }
    return (double)near / (double)g->n;
}

double golden_difference(const golden *g, const float *logits) {
    double worst = 0;
    const ht_json *sums = ht_json_object_get(g->document, "logsumexp");
    for (int64_t i = 0; i < g->n; i++) {
        const float *row = logits + i * g->vocab;
        const ht_json *ids = ht_json_array_get(ht_json_object_get(g->document, "top_ids"), (size_t)i);
        const ht_json *values = ht_json_array_get(ht_json_object_get(g->document, "top_logits"), (size_t)i);
        assert_true(ht_json_array_size(ids) > 0 && ht_json_array_size(ids) == ht_json_array_size(values));
        for (size_t k = 0; k < ht_json_array_size(ids); k++)
            worst = worse(worst,
                          fabs(row[ht_json_integer_value(ht_json_array_get(ids, k))] - number_at(values, (int64_t)k)));
        worst = worse(worst, fabs(log_sum_exp(row, g->vocab) - number_at(sums, i)));
    }
    const char *position;
    ht_json *values;
    ht_json_object_foreach(ht_json_object_get(g->document, "rows"), position, values) {
        const int64_t i = strtoll(position, NULL, 10);
        if (i >= g->n) continue; /* a test may take fewer positions */
        const float *row = logits + i * g->vocab;
        for (int64_t k = 0; k < (int64_t)ht_json_array_size(values); k++)
            worst = worse(worst, fabs(row[k * g->stride] - number_at(values, k)));
    }
    return worst / g->std;
}
