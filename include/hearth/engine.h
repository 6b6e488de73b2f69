/* Engine: serves many requests on one model. Requests join and leave between steps and share the keys and values of
 * common prefixes. Each gets the answer that it would get alone, to the bit.
 *
 * A request is a prompt with options; submitting it returns at once. Callbacks deliver its text on the engine's
 * threads. Callbacks of one answer run one after the other; those of different answers, of one request or several,
 * run in parallel. A slow callback does not delay other answers. All functions may be called from any thread;
 * callbacks may call all but ht_engine_wait, ht_engine_warm and ht_engine_close. */
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
    int32_t sequences; /* answers computed at once, at most; default 16 */
    int32_t queue;     /* maximum queued answers; default 256 */
    /* Maximum rows of one step; a new request waits for the end of the step. Default 0: as for sessions, 512 on a CPU
     * and 2,048 on a GPU with memory for them. */
    int32_t step_tokens;
    /* Prefill budget: while a prompt is computed, a running answer waits at most this many times as long for its next
     * token. Prompts are divided accordingly, by measured times. 1: no bound. Default 2, as for sessions. */
    double prefill_budget;
    /* Bytes of keys and values, prefix cache included. An answer takes them as it grows. When none are left the
     * newest answer is preempted and computed again later. Default 0: half of the free memory. */
    size_t kv_bytes;
    /* Bytes of these for the prefix cache, which keeps ended sequences for later prompts with the same beginning.
     * Default SIZE_MAX: half of kv_bytes; 0: no prefix cache. */
    size_t prefix_bytes;
} ht_engine_options;
HT_API void ht_engine_options_init(ht_engine_options *options, size_t size);

/* The caller closes *out; the engine holds the model until then. */
HT_API ht_status ht_engine_open(ht_model *m, const ht_engine_options *options, ht_engine **out, ht_error *err);
/* Cancels all requests, waits for their last callbacks, and frees the engine. Calls in progress on other threads
 * return first; waiting calls return as soon as their requests have ended. NULL is fine. */
HT_API void ht_engine_close(ht_engine *e);

/* ---- requests ---- */

/* Identifies a request, also after it has ended. Never 0. */
typedef uint64_t ht_ticket;

/* Why no more of a prompt came from the prefix cache. */
typedef enum ht_reuse_end {
    HT_REUSE_ALL = 0, /* all but the last token came from it; the last must be computed */
    HT_REUSE_NEW,     /* no cached sequence has the same beginning */
    HT_REUSE_DIFFERS, /* the cached sequence continues with another token */
    HT_REUSE_ENDS,    /* the cached sequence ends there */
    HT_REUSE_EVICTED, /* more was cached, but was evicted */
    HT_REUSE_ADAPTER, /* cached for other adapters */
    HT_REUSE_SHORT,   /* the prompt is too short */
    HT_REUSE_WINDOW,  /* sliding layers have discarded keys that are needed */
    HT_REUSE_OFF,     /* no prefix cache */
    HT_REUSE_STATE    /* the state of recurrent layers is cached after fewer tokens only */
} ht_reuse_end;
/* A short name such as "differs". Never NULL; a constant. */
HT_API const char *ht_reuse_end_name(ht_reuse_end end);

/* Use of the prefix cache by an answer. */
typedef struct ht_reuse {
    int64_t cached;   /* cached tokens at the beginning of the prompt */
    int64_t reused;   /* of the prompt, not computed */
    int64_t computed; /* of the prompt */
    ht_reuse_end end;
    int64_t place;             /* with HT_REUSE_DIFFERS: position of the first differing token */
    int32_t token, kept_token; /* the prompt's token there, and the cached one */
} ht_reuse;

/* How an answer ended. Lent during the call. */
typedef struct ht_answer_report {
    ht_ticket ticket;
    int32_t answer;       /* of the request's n, from 0 */
    ht_status status;     /* HT_ERR_CANCELLED, also when the deadline has passed; else as ht_generate returns */
    const char *message;  /* "" for HT_OK */
    ht_metrics metrics;   /* first_token_seconds: from when the request was submitted; `finish` is 0 when it failed */
    double queue_seconds; /* before its computation began */
    int32_t preempted;    /* times it was preempted */
    ht_reuse reuse;
    const int32_t *token; /* [metrics.generated_tokens] */
} ht_answer_report;

/* A piece of answer `answer`; only text pieces unless the request has a conversation. Return false to end this
 * answer. */
typedef bool ht_engine_piece_fn(const ht_answer_piece *piece, int32_t answer, void *user);
/* Called once for each answer, last. */
typedef void ht_engine_end_fn(const ht_answer_report *report, void *user);

/* A request. Everything is copied or retained except `options.cancel`, which must live until the request has ended. */
typedef struct ht_request {
    size_t size; /* of the struct, set by ht_request_init */
    /* The prompt: one of the three, as for ht_generate, ht_generate_text and ht_generate_chat. */
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    const char *text;
    const ht_chat *chat;                /* must not change until the request has ended */
    const ht_generate_options *options; /* default NULL: those of ht_generate_options_init */
    ht_adapter *const *adapters;        /* [n_adapters], as ht_session_set_adapters; default none */
    const float *adapter_scales;
    int n_adapters;
    int32_t n;                 /* answers, 1 or more; answer i is drawn with the seed plus i; default 1 */
    int32_t priority;          /* the highest waiting priority runs first, then the oldest; default 0 */
    double deadline;           /* seconds from now after which it is cancelled; default 0: none */
    const char *salt;          /* prefixes are shared only among requests with the same salt; default NULL, as "" */
    ht_engine_piece_fn *piece; /* default NULL */
    ht_engine_end_fn *end;     /* default NULL */
    void *user;
} ht_request;
HT_API void ht_request_init(ht_request *request, size_t size);

/* Queues a request. Errors in it are returned at once: options and prompt as ht_generate checks them; HT_ERR_LIMIT,
 * with the numbers, for a prompt that can never fit kv_bytes or the context; HT_ERR_BUSY if the queue is full. An
 * answer ends with HT_FINISH_LENGTH where kv_bytes cannot hold more of it. No callback is called after a failure. */
HT_API ht_status ht_engine_submit(ht_engine *e, const ht_request *request, ht_ticket *ticket, ht_error *err);
/* Tokens of a request's prompt, known once it is submitted; 0 after its last callback has returned. */
HT_API int64_t ht_engine_prompt_tokens(ht_engine *e, ht_ticket ticket);
/* Tokens of the prompt that answer `answer` did not compute, as ht_reuse.reused. Known when its first piece is
 * delivered; 0 before, and after its last callback has returned. */
HT_API int64_t ht_engine_reused_tokens(ht_engine *e, ht_ticket ticket, int32_t answer);
/* Ends a request within a step; unfinished answers end with HT_ERR_CANCELLED. No effect after its end. */
HT_API void ht_engine_cancel(ht_engine *e, ht_ticket ticket);
/* Waits for the request's last callback. 0: for all requests submitted before. */
HT_API void ht_engine_wait(ht_engine *e, ht_ticket ticket);

/* Computes a prompt for the prefix cache without an answer: a system prompt, tools. The request's callbacks and n are
 * ignored. Returns when it is done. */
HT_API ht_status ht_engine_warm(ht_engine *e, const ht_request *request, ht_reuse *reuse, ht_error *err);

/* ---- stats ---- */

/* Stats of an engine since it was opened. */
typedef struct ht_engine_statistics {
    int32_t running, waiting;                               /* answers, now */
    int64_t submitted, ended, cancelled, failed, refused;   /* answers so far; refused ones were not submitted */
    int64_t preempted;                                      /* times */
    int64_t steps, step_rows;                               /* of the model */
    int64_t prompt_tokens, reused_tokens, generated_tokens; /* so far */
    size_t kv_bytes, kv_budget;
    size_t prefix_bytes, prefix_budget;
    int64_t prefix_tokens, prefix_lookups, prefix_hits, prefix_evicted;
} ht_engine_statistics;
/* As of now. */
HT_API ht_engine_statistics ht_engine_get_statistics(ht_engine *e);

/* ---- the prefix cache ---- */

/* Evicts everything from the prefix cache except what running answers use. Returns the number of evicted tokens; 0
 * also without a prefix cache. */
HT_API int64_t ht_engine_clear_cache(ht_engine *e);

/* Saves the prefix cache, as state.h describes for sessions: flushed, renamed, a checksum for each part. Entries
 * computed with adapters are saved with the adapters' digests. HT_ERR_ARGUMENT without a prefix cache; HT_ERR_LIMIT
 * for more pages of tokens than a file holds (65,534). Answers continue meanwhile. */
HT_API ht_status ht_engine_save_cache(ht_engine *e, const char *path, ht_error *err);
/* Adds the entries of a file, after checking all of it as ht_session_load does. The most recently used come first,
 * until the cache is full. Nothing is evicted for them, and they count as older than all present entries. Entries
 * computed with an adapter serve requests with the same adapter and scale. */
HT_API ht_status ht_engine_load_cache(ht_engine *e, const char *path, ht_error *err);
/* The same, but skips entries of adapters other than these: *skipped_tokens tokens, which take no memory. */
HT_API ht_status ht_engine_load_cache_of(ht_engine *e, const char *path, ht_adapter *const *adapters, int n_adapters,
                                         int64_t *skipped_tokens, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
