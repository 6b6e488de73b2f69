/* Batches: answers to many prompts, generated concurrently on an engine and delivered in the order of the prompts.
 *
 * Each answer has the bits that it has alone. A common prefix of the first prompts is computed once, before them. */
#ifndef HEARTH_BATCH_H
#define HEARTH_BATCH_H

#include <hearth/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fills in request i, counted from 0; *request has been initialized by ht_request_init. Its pointers must stay valid
 * until the next call; adapters, their scales and the salt until the end. A failure affects only that request. Some
 * of the first requests may be fetched twice. */
typedef ht_status ht_batch_request_fn(size_t i, ht_request *request, void *user, ht_error *err);

/* Options of ht_batch_generate. */
typedef struct ht_batch_options {
    size_t size; /* of the struct, set by ht_batch_options_init */
    /* Default NULL: those of ht_engine_options_init, but with 32 sequences, or the model's maximum for a step. */
    const ht_engine_options *engine;
    /* Maximum requests from the first undelivered one to the last one begun, 1 or more; bounds the results in memory.
     * Default 0: four times the engine's sequences. */
    int32_t window;
    ht_batch_request_fn *next; /* provides the requests instead of an array; default NULL */
    const ht_cancel *cancel;   /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* A file of ht_engine_save_cache: loaded first if it exists, and saved at the end, also after a cancellation.
     * Default NULL. */
    const char *cache_file;
} ht_batch_options;
HT_API void ht_batch_options_init(ht_batch_options *options, size_t size);

/* An answer: its report and its parts, as ht_generate_chat splits them; prompts of text or ids give only text. */
typedef struct ht_batch_answer {
    const ht_answer_report *report;
    const char *text; /* n_text bytes of UTF-8, NUL-terminated */
    size_t n_text;
    const char *thinking; /* NUL-terminated; "" for none */
    size_t n_thinking;
    const ht_tool_call *calls; /* [n_calls] */
    size_t n_calls;
} ht_batch_answer;

/* The result of a request. Lent during the call. */
typedef struct ht_batch_result {
    size_t index;        /* of the request */
    ht_status status;    /* of one that was not accepted, as ht_engine_submit returns; HT_OK: each answer has its own */
    const char *message; /* "" for HT_OK */
    const ht_batch_answer *answers; /* [n_answers], the request's n; none when it was not accepted */
    int32_t n_answers;
} ht_batch_result;
/* Called in the order of requests, on the caller's thread. Return false to stop. */
typedef bool ht_batch_fn(const ht_batch_result *result, void *user);

/* Answers n requests, ignoring their `piece`, `end` and `user`; NULL: those of options->next. A failed request has
 * its status, and the others continue. After a cancellation the requests in progress are delivered with their partial
 * answers, and the call returns HT_ERR_CANCELLED, as it does when fn stopped it. */
HT_API ht_status ht_batch_generate(ht_model *m, const ht_request *const *requests, size_t n,
                                   const ht_batch_options *options, ht_batch_fn *fn, void *user, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
