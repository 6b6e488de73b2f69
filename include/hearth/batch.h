/* Batches: answers to many prompts, generated side by side on an engine and handed over in the order of the prompts.
 *
 * Each answer has the bits that it has alone. A beginning that the first prompts have in common is computed first, for all of them. */
#ifndef HEARTH_BATCH_H
#define HEARTH_BATCH_H

#include <hearth/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gives request i, counted from 0, in *request, which is as ht_request_init made it. What it points to has to stay until the next
 * call; its adapters, their scales and its salt until the end. A failure is that request's alone. Some of the first may be asked for
 * twice. */
typedef ht_status ht_batch_request_fn(size_t i, ht_request *request, void *user, ht_error *err);

/* Options of ht_batch_generate. */
typedef struct ht_batch_options {
    size_t size; /* of the struct, set by ht_batch_options_init */
    /* Default NULL: those of ht_engine_options_init, but for 32 sequences, or as many as the model takes in a step. */
    const ht_engine_options *engine;
    /* Requests between the first whose result has not been handed over and the last that was begun, 1 or more: so many results are kept at
     * most. Default 0: four times the engine's sequences. */
    int32_t window;
    ht_batch_request_fn *next; /* gives the requests, in place of an array; default NULL */
    const ht_cancel *cancel;   /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* A file of ht_engine_save_cache: loaded first, if it is there, and saved at the end, of a batch that was cancelled, too. Default
     * NULL. */
    const char *cache_file;
} ht_batch_options;
HT_API void ht_batch_options_init(ht_batch_options *options, size_t size);

/* An answer: its report, and its text taken apart as ht_generate_chat does; of a text or of ids all is text. */
typedef struct ht_batch_answer {
    const ht_answer_report *report;
    const char *text; /* n_text bytes of UTF-8, NUL-terminated */
    size_t n_text;
    const char *thinking; /* NUL-terminated; "" for none */
    size_t n_thinking;
    const ht_tool_call *calls; /* [n_calls] */
    size_t n_calls;
} ht_batch_answer;

/* What came of a request. All of it is lent during the call. */
typedef struct ht_batch_result {
    size_t index;        /* of the request */
    ht_status status;    /* of one that was not accepted, as ht_engine_submit returns; HT_OK: each answer has its own */
    const char *message; /* "" for HT_OK */
    const ht_batch_answer *answers; /* [n_answers], the request's n; none when it was not accepted */
    int32_t n_answers;
} ht_batch_result;
/* Called in the order of requests, on the caller's thread. Return false to stop. */
typedef bool ht_batch_fn(const ht_batch_result *result, void *user);

/* Answers n requests, of which `piece`, `end` and `user` mean nothing; NULL: those of options->next. A request that fails has its status,
 * and the others go on. After a cancellation those that had been begun are handed over with what there is of them, and the call
 * returns HT_ERR_CANCELLED, as it does when fn stopped it. */
HT_API ht_status ht_batch_generate(ht_model *m, const ht_request *const *requests, size_t n,
                                   const ht_batch_options *options, ht_batch_fn *fn, void *user, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
