/* Scores: log-probabilities of given continuations of prompts, token by token.
 *
 * Probabilities are those of all logits, without temperature or filters: log-softmax of the f32 logits, summed in
 * double. The prompt and common prefixes of continuations are computed once, and many share a step, as in
 * classify.h. */
#ifndef HEARTH_SCORE_H
#define HEARTH_SCORE_H

#include <hearth/adapter.h>
#include <hearth/cancel.h>
#include <hearth/prompt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A prompt and its continuations. */
typedef struct ht_score_request {
    ht_prompt prompt;
    const ht_continuation *continuations; /* [n_continuations], 1 or more */
    size_t n_continuations;
} ht_score_request;

/* Fills in request i, counted from 0; *request is zero-initialized. Its pointers must stay valid until the next call.
 * A failure affects only that request. */
typedef ht_status ht_score_request_fn(size_t i, ht_score_request *request, void *user, ht_error *err);

/* Options of ht_score. */
typedef struct ht_score_options {
    size_t size;                 /* of the struct, set by ht_score_options_init */
    int32_t top_k;               /* most likely tokens to report at each position, 0 to 1000; default 0 */
    ht_adapter *const *adapters; /* [n_adapters], as ht_session_set_adapters; default none */
    const float *adapter_scales; /* NULL: 1 each */
    int n_adapters;
    /* Maximum bytes of keys and values, but at least enough for one sequence. Default 0: half of the free memory. */
    size_t kv_bytes;
    ht_score_request_fn *next; /* provides the requests instead of an array; default NULL */
    const ht_cancel *cancel;   /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* Called after each step with the share of requests that are done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
} ht_score_options;
HT_API void ht_score_options_init(ht_score_options *options, size_t size);

typedef struct ht_token_probability {
    int32_t id;
    double log_probability; /* in nats */
} ht_token_probability;

/* A token of a continuation. */
typedef struct ht_token_score {
    int32_t id;
    double log_probability; /* given all before it, in nats */
    const ht_token_probability
        *top; /* [n_top] the most likely at its position, the lowest id first on ties; NULL: none */
    int32_t n_top;
} ht_token_score;

typedef struct ht_continuation_score {
    double log_probability; /* the sum over its tokens */
    const ht_token_score *tokens;
    int64_t n_tokens;
} ht_continuation_score;

/* The result of a request. Lent during the call. */
typedef struct ht_score_result {
    size_t index;        /* of the request */
    ht_status status;    /* unless HT_OK, only this and the next are valid */
    const char *message; /* "" for HT_OK */
    int64_t prompt_tokens;
    int64_t shared_tokens;                      /* unchanged by continuations (prompt.h); scored after these */
    int64_t computed_tokens;                    /* tokens shared with an earlier request are counted there */
    const ht_continuation_score *continuations; /* [n_continuations] in their order */
    size_t n_continuations;
} ht_score_result;
/* Called in the order of requests, on the caller's thread. Return false to stop. */
typedef bool ht_score_fn(const ht_score_result *result, void *user);

/* Scores n requests; NULL: those of options->next, of which only those computed together are in memory. Failures of a
 * request, cancellation, and a stop by fn are as in ht_classify. */
HT_API ht_status ht_score(ht_model *m, const ht_score_request *requests, size_t n, const ht_score_options *options,
                          ht_score_fn *fn, void *user, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
