/* A report on a model on this machine: its speed, the savings of the prefix cache and of saved states, and checks
 * of its output. */
#ifndef HEARTH_REPORT_H
#define HEARTH_REPORT_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of ht_bench_report. */
typedef struct ht_report_options {
    size_t size;             /* of the struct, set by ht_report_options_init */
    const char *prompt;      /* text to measure with; default NULL: one of some hundred tokens */
    int32_t max_tokens;      /* of an answer; default 64 */
    const char *directory;   /* for a state file while it is measured; default NULL: the system's for temporary files */
    const ht_cancel *cancel; /* ends the call with HT_ERR_CANCELLED; default NULL */
} ht_report_options;
HT_API void ht_report_options_init(ht_report_options *options, size_t size);

/* A check. */
typedef struct ht_report_check {
    const char *name;   /* "the same twice" */
    const char *detail; /* the finding, one sentence */
    bool passed;
} ht_report_check;

/* Probes of one kind in an answer (ht_probe_kind). */
typedef struct ht_report_probe {
    const char *name;
    int64_t count;
} ht_report_probe;

/* All strings are lent until the report is freed, and never NULL. Seconds are those of single runs. */
typedef struct ht_bench_report {
    const char *version, *architecture, *instruction_set, *precision, *kv_type;
    int32_t threads;

    /* An answer to the prompt of exactly max_tokens tokens: stop ids do not end it. */
    int64_t prompt_tokens, generated_tokens;
    double prefill_seconds, first_token_seconds, decode_seconds;
    size_t peak_memory_bytes;

    /* The same request twice on an engine: the prompt, repeated until it fills two pages of the cache, as far as
     * the context allows. Without a measurement `prefix_note` has the reason, and the rest is 0. */
    const char *prefix_note;           /* "" when it was measured */
    int64_t prefix_reused;             /* tokens of the second prompt */
    double prefix_hit_rate;            /* of its tokens */
    double cold_seconds, warm_seconds; /* to the first token, the first time and the second */

    /* The session saved to a file, and restored. */
    size_t state_bytes, cache_bytes; /* of the file; of its keys and values in memory */
    double state_save_seconds, state_load_seconds;

    int32_t n_checks;
    const ht_report_check *checks; /* [n_checks] */

    /* The answer with all probes on, and the relative increase of its time per token: the median ratio of several
     * alternating runs with and without probes, less 1. Can be below 0 by chance. */
    int32_t n_probes;
    const ht_report_probe *probes; /* [n_probes] kinds that occurred */
    double probe_overhead;
} ht_bench_report;

/* Measures and checks; takes some seconds for a small model. A failed check is part of the report, not an error.
 * The model needs a tokenizer, else HT_ERR_UNSUPPORTED. The caller frees *out. */
HT_API ht_status ht_bench_report_run(ht_model *m, const ht_report_options *options, ht_bench_report **out,
                                     ht_error *err);
HT_API void ht_bench_report_free(ht_bench_report *report); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
