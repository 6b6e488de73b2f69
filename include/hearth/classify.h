/* Classification: the most likely token, or label, after each of many prompts, without generating.
 *
 * Prompts share steps, as many as fit in each, without padding; common prefixes are computed once. Each prompt gets
 * the bits that it gets alone. */
#ifndef HEARTH_CLASSIFY_H
#define HEARTH_CLASSIFY_H

#include <hearth/adapter.h>
#include <hearth/cancel.h>
#include <hearth/prompt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fills in prompt i, counted from 0; *prompt is zero-initialized. Its pointers must stay valid until the next call. A
 * failure affects only that prompt. */
typedef ht_status ht_prompt_fn(size_t i, ht_prompt *prompt, void *user, ht_error *err);

/* Options of ht_classify. */
typedef struct ht_classify_options {
    size_t size; /* of the struct, set by ht_classify_options_init */
    /* [n_labels] distinct texts, not empty, scored as continuations of each prompt (prompt.h). Default none. */
    const char *const *labels;
    int32_t n_labels;
    bool logits;                 /* return all logits, too; default false */
    ht_adapter *const *adapters; /* [n_adapters], as ht_session_set_adapters; default none */
    const float *adapter_scales; /* NULL: 1 each */
    int n_adapters;
    /* Maximum bytes of keys and values, but at least enough for one sequence. Default 0: half of the free memory. */
    size_t kv_bytes;
    ht_prompt_fn *next;      /* provides the prompts instead of an array; default NULL */
    const ht_cancel *cancel; /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* Called after each step with the share of prompts that are done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
} ht_classify_options;
HT_API void ht_classify_options_init(ht_classify_options *options, size_t size);

typedef struct ht_label_score {
    double log_probability; /* of the whole label: the sum over its tokens, in nats */
    double probability;     /* among the labels */
    int64_t n_tokens;       /* that were scored */
} ht_label_score;

/* The result of a prompt. Lent during the call. */
typedef struct ht_classification {
    size_t index;        /* of the prompt */
    ht_status status;    /* unless HT_OK, only this and the next are valid */
    const char *message; /* "" for HT_OK */
    int64_t prompt_tokens;
    int64_t computed_tokens;      /* of prompt and labels; shared tokens count for the first prompt */
    int32_t token;                /* the most likely after the prompt, the lowest id on ties */
    const char *text;             /* its text, "" for a special token; NULL without a tokenizer */
    double log_probability;       /* of it, in nats */
    int32_t label;                /* the most likely, the first on ties; -1 without labels */
    const ht_label_score *labels; /* [n_labels] in their order; NULL without labels */
    const float *logits;          /* [vocab] after the prompt; NULL unless requested */
} ht_classification;
/* Called in the order of prompts, on the caller's thread. Return false to stop. */
typedef bool ht_classify_fn(const ht_classification *result, void *user);

/* Classifies n prompts; NULL: those of options->next, of which only those computed together are in memory. A failed
 * prompt has its status, and the others continue: HT_ERR_LIMIT if it does not fit the context, HT_ERR_ARGUMENT if it
 * is empty or has ids outside the vocabulary, HT_ERR_INTERNAL if its logits are not finite. After a cancellation the
 * prompts in progress are delivered, with HT_ERR_CANCELLED if unfinished. The call returns that status, as it does
 * when fn stopped it. */
HT_API ht_status ht_classify(ht_model *m, const ht_prompt *prompts, size_t n, const ht_classify_options *options,
                             ht_classify_fn *fn, void *user, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
