/* Scoring of many prompts: log-probabilities of what may follow each of them, and the likeliest token. Classification and scores are made
 * of it (classify.c, score.c).
 *
 * Requests are taken up some at a time, encoded, computed together (prefill.h), and handed over in their order as soon as they are
 * done. */
#ifndef HT_GENERATE_SCORING_H
#define HT_GENERATE_SCORING_H

#include "generate/prefill.h"
#include "generate/prompt_ids.h"

#include <hearth/score.h>

/* What came of a request. */
typedef struct ht_scored {
    size_t index;
    ht_status status;
    char *message; /* NULL for HT_OK */
    ht_prompt_ids ids;
    int64_t computed; /* positions, those shared with a request before it not counted */
    /* With `likeliest`. */
    int32_t token;
    double log_probability;
    float *logits; /* [vocab]; NULL unless asked for */

    ht_continuation_score *continuations; /* [ids.n_joined]; what they point to lies in the next two */
    ht_token_score *tokens;
    ht_token_probability *tops;
    int32_t first_sequence, n_sequences; /* in the present prefill */
} ht_scored;

typedef struct ht_scoring {
    ht_model *model;
    size_t n;
    ht_prefill_options prefill;
    bool likeliest, logits; /* the token after the prompt; and all logits there */
    int32_t top_k;          /* beside each token of a continuation */
    const ht_cancel *cancel;
    /* Gives request i, in a struct of zeros; a failure is its own. */
    ht_status (*next)(void *user, size_t i, ht_score_request *request, ht_error *err);
    /* Takes a result, in order of requests; lent. Returns false to stop. */
    bool (*take)(void *user, const ht_scored *result);
    void *user;
    void (*progress)(double done, void *user); /* NULL: none */
    void *progress_user;
} ht_scoring;

ht_status ht_scoring_run(const ht_scoring *s, ht_error *err);

#endif
