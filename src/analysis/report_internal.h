/* Reports: what is measured (report.c) and what is checked (report_checks.c). */
#ifndef HT_ANALYSIS_REPORT_INTERNAL_H
#define HT_ANALYSIS_REPORT_INTERNAL_H

#include "base/text.h"

#include <hearth/engine.h>
#include <hearth/report.h>

enum { HT_MOST_CHECKS = 16, HT_PROBE_KINDS = 8 };

_Static_assert(HT_PROBE_ALL == (1 << HT_PROBE_KINDS) - 1, "a report counts every kind of probe");

/* The public struct, with what it lends. */
typedef struct ht_report_data {
    ht_bench_report public;
    ht_model *model; /* lent during the call */
    ht_report_options o;
    const char *prompt;
    ht_report_check check[HT_MOST_CHECKS];
    char *detail[HT_MOST_CHECKS];
    ht_report_probe probe[HT_PROBE_KINDS];
    char *note;
} ht_report_data;

/* An answer with its tokens. */
typedef struct ht_report_answer {
    ht_text text;
    int32_t *token; /* [metrics.generated_tokens] */
    ht_metrics metrics;
} ht_report_answer;
void ht_report_answer_free(ht_report_answer *a);
/* Generates an answer in a new session. */
ht_status ht_report_generate(const ht_report_data *r, const char *prompt, const ht_generate_options *how,
                             ht_report_answer *out, ht_error *err);
/* Options of answers that are compared: the most likely tokens, as many as max_tokens. An end of the text does not end them: an
 * empty answer could not be compared. */
ht_generate_options ht_report_how(const ht_report_data *r);
/* Whether two answers have the same tokens, and at least one. */
bool ht_report_same(const ht_report_answer *a, const ht_report_answer *b);

/* Adds a check with what was found. */
ht_status ht_report_add(ht_report_data *r, const char *name, bool passed, ht_error *err, const char *fmt, ...)
    HT_PRINTF(5, 6);
/* Runs the checks of what the model says. */
ht_status ht_report_run_checks(ht_report_data *r, ht_error *err);

#endif
