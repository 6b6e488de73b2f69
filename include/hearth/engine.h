/* Engine: many requests on one model. They join and leave between steps, share the keys and values of what they have in
 * common, and each gets the answer that it gets alone, to the bit.
 *
 * A request is a prompt with options; submitting it returns at once. Its text is handed over by callbacks, on threads of the
 * engine's: those of one answer one after the other, those of different answers, of one request or several, side by side, so that
 * a slow one holds up nobody else. All functions may be called from any thread; from a callback all but ht_engine_wait,
 * ht_engine_warm and ht_engine_close. */
#ifndef HEARTH_ENGINE_H
#define HEARTH_ENGINE_H

#include <hearth/adapter.h>
#include <hearth/generate.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_engine ht_engine;

/* Options of ht_engine_open. */
typedef struct ht_engine_options {
    size_t size;       /* of the struct, set by ht_engine_options_init */
    int32_t sequences; /* answers under way at once, at most; default 16 */
    int32_t queue;     /* answers that may wait, at most; default 256 */
    /* Rows of one step at most; a request that comes meanwhile waits for the step's end. Default 0: as sessions have it, 512
     * on a CPU and 2,048 on a GPU with memory for them. */
    int32_t step_tokens;
    /* While a prompt is read, a running answer waits so many times as long for its next token, at most; the prompt is cut
     * accordingly, by times measured as it goes. 1: no bound. Default 2, as sessions have it. */
    double pace;
    /* Bytes of keys and values, those kept for prefixes included. An answer takes them as it grows; when there are none the
     * newest is set back, and computed again later. Default 0: half of the memory that is free. */
    size_t kv_bytes;
    /* Of these, what may be kept of sequences that have ended, so that others with the same beginning need not compute it.
     * Default SIZE_MAX: half of kv_bytes; 0: no prefix cache. */
    size_t prefix_bytes;
} ht_engine_options;
HT_API void ht_engine_options_init(ht_engine_options *options, size_t size);

/* The caller closes *out; the engine holds the model until then. */
HT_API ht_status ht_engine_open(ht_model *m, const ht_engine_options *options, ht_engine **out, ht_error *err);
/* Cancels all requests, waits for their last callbacks, and frees the engine. Calls of other threads that have begun return
 * first, those that wait as soon as their requests have ended. NULL is fine. */
HT_API void ht_engine_close(ht_engine *e);

/* ---- requests ---- */

/* A request under way, or that was. Never 0. */
typedef uint64_t ht_ticket;

/* Why not more of a prompt came from the prefix cache. */
typedef enum ht_reuse_end {
    HT_REUSE_ALL = 0, /* all but the last token did, which has to be computed */
    HT_REUSE_NEW,     /* nothing that is kept begins as the prompt does */
    HT_REUSE_DIFFERS, /* what is kept goes on with another token */
    HT_REUSE_ENDS,    /* what is kept ends there */
    HT_REUSE_EVICTED, /* more was kept, and had to make room */
    HT_REUSE_ADAPTER, /* it is kept for other adapters */
    HT_REUSE_SHORT,   /* the prompt is too short */
    HT_REUSE_WINDOW,  /* sliding layers have no longer kept the keys that are looked back on */
    HT_REUSE_OFF      /* there is no prefix cache */
} ht_reuse_end;
/* A short name such as "differs". Never NULL; a constant. */
HT_API const char *ht_reuse_end_name(ht_reuse_end end);

/* What the prefix cache did for an answer. */
typedef struct ht_reuse {
    int64_t cached;   /* tokens at the beginning of the prompt that were kept */
    int64_t reused;   /* of the prompt, not computed */
    int64_t computed; /* of the prompt */
    ht_reuse_end end;
    int64_t place;             /* with HT_REUSE_DIFFERS: where the first other token is */
    int32_t token, kept_token; /* the prompt's there, and the one that is kept */
} ht_reuse;

/* How an answer ended. Lent during the call. */
typedef struct ht_answer_report {
    ht_ticket ticket;
    int32_t answer;       /* of the request's n, from 0 */
    ht_status status;     /* HT_ERR_CANCELLED, also when the deadline has passed; else as ht_generate returns */
    const char *message;  /* "" for HT_OK */
    ht_metrics metrics;   /* first_token_seconds: from when the request was submitted; `finish` is 0 when it failed */
    double queue_seconds; /* before anything of it was computed */
    int32_t set_back;     /* how often it had to give its memory to others */
    ht_reuse reuse;
    const int32_t *token; /* [metrics.generated_tokens] */
} ht_answer_report;

/* A piece of answer `answer`; text pieces alone unless the request has a conversation. Return false to end this answer. */
typedef bool ht_engine_piece_fn(const ht_answer_piece *piece, int32_t answer, void *user);
/* Comes once for each answer, last. */
typedef void ht_engine_end_fn(const ht_answer_report *report, void *user);

/* What is asked. Everything is copied or retained, but for `options.cancel`, which has to live until the request has ended. */
typedef struct ht_request {
    size_t size; /* of the struct, set by ht_request_init */
    /* The prompt: one of the three, as ht_generate, ht_generate_text and ht_generate_chat take it. */
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    const char *text;
    const ht_chat *chat;                /* not changed by anybody until the request has ended */
    const ht_generate_options *options; /* default NULL: those of ht_generate_options_init */
    ht_adapter *const *adapters;        /* [n_adapters], as ht_session_set_adapters; default none */
    const float *adapter_scales;
    int n_adapters;
    int32_t n;                 /* answers, 1 or more; answer i is drawn with the seed plus i; default 1 */
    int32_t priority;          /* of those that wait the highest goes first, and of these the first; default 0 */
    double deadline;           /* seconds from now after which it is cancelled; default 0: none */
    const char *salt;          /* prefixes are shared among requests with the same salt alone; default NULL, as "" */
    ht_engine_piece_fn *piece; /* default NULL */
    ht_engine_end_fn *end;     /* default NULL */
    void *user;
} ht_request;
HT_API void ht_request_init(ht_request *request, size_t size);

/* Queues a request. What is wrong with it is said at once: options and prompt as ht_generate checks them; HT_ERR_LIMIT, with the numbers, for
 * a prompt that can never fit kv_bytes or the context, and HT_ERR_BUSY when as many wait already as may. An answer
 * ends with HT_FINISH_LENGTH where kv_bytes would not hold more of it. No callback comes after a failure. */
HT_API ht_status ht_engine_submit(ht_engine *e, const ht_request *request, ht_ticket *ticket, ht_error *err);
/* Tokens of a request's prompt, known as soon as it was submitted; 0 when its last callback has returned. */
HT_API int64_t ht_engine_prompt_tokens(ht_engine *e, ht_ticket ticket);
/* Of these, the ones that answer `answer` did not compute, as ht_reuse.reused: known when its first piece comes; 0 before, and when its last
 * callback has returned. */
HT_API int64_t ht_engine_reused_tokens(ht_engine *e, ht_ticket ticket, int32_t answer);
/* Ends a request within a step, with HT_ERR_CANCELLED for the answers that had not ended. Nothing for one that has. */
HT_API void ht_engine_cancel(ht_engine *e, ht_ticket ticket);
/* Returns when the request's last callback has. 0: of all requests that were submitted before. */
HT_API void ht_engine_wait(ht_engine *e, ht_ticket ticket);

/* Computes a prompt, of which no answer is wanted, for the prefix cache: a system prompt, tools. The request's callbacks and
 * n mean nothing. Returns when it is done. */
HT_API ht_status ht_engine_warm(ht_engine *e, const ht_request *request, ht_reuse *reuse, ht_error *err);

/* ---- figures ---- */

/* Of an engine, since it was opened. */
typedef struct ht_engine_statistics {
    int32_t running, waiting;                               /* answers, now */
    int64_t submitted, ended, cancelled, failed, refused;   /* answers so far; refused ones were not submitted */
    int64_t set_back;                                       /* times */
    int64_t steps, step_rows;                               /* of the model */
    int64_t prompt_tokens, reused_tokens, generated_tokens; /* so far */
    size_t kv_bytes, kv_budget;
    size_t prefix_bytes, prefix_budget;
    int64_t prefix_tokens, prefix_lookups, prefix_hits, prefix_evicted;
} ht_engine_statistics;
/* As of now. */
HT_API ht_engine_statistics ht_engine_get_statistics(ht_engine *e);

/* ---- the prefix cache ---- */

/* Forgets what the prefix cache holds, but for what answers under way stand on. Returns the number of tokens that have gone; 0
 * also without a prefix cache. */
HT_API int64_t ht_engine_clear_cache(ht_engine *e);

/* Saves what the prefix cache holds, as state.h says of sessions: flushed, renamed, a checksum for each part. What was
 * computed with adapters is saved with digests of these. HT_ERR_ARGUMENT when the engine has no prefix cache, HT_ERR_LIMIT when it has
 * more pages of tokens than a file takes (65,534). Answers go on meanwhile. */
HT_API ht_status ht_engine_save_cache(ht_engine *e, const char *path, ht_error *err);
/* Adds what a file holds, checked as a whole before as ht_session_load does: the most recently used first, until the
 * cache is full. Nothing is evicted for them, and they count as older than all present entries. Entries computed with an adapter serve requests with the
 * same adapter and scale. */
HT_API ht_status ht_engine_load_cache(ht_engine *e, const char *path, ht_error *err);
/* The same, but skips entries of adapters other than these: *skipped_tokens tokens, which take no memory. */
HT_API ht_status ht_engine_load_cache_of(ht_engine *e, const char *path, ht_adapter *const *adapters, int n_adapters,
                                         int64_t *skipped_tokens, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
