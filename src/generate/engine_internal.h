/* Engine internals: public functions and requests, the engine's thread, callbacks, and the prefix cache's file.
 *
 * The lock guards lists, states and undelivered pieces. The engine's thread owns an answer's computation state from
 * the moment the answer is queued. The prefix cache has a separate lock, which is taken first. */
#ifndef HT_GENERATE_ENGINE_INTERNAL_H
#define HT_GENERATE_ENGINE_INTERNAL_H

#include "chat/conversation.h"
#include "generate/generation.h"
#include "generate/prefix_cache.h"
#include "generate/prompt_ids.h"

#include <hearth/engine.h>

#include <pthread.h>

typedef struct ht_engine_request ht_engine_request;
typedef struct ht_engine_answer ht_engine_answer;

/* An undelivered piece, with a copy of everything it lends. */
typedef struct ht_engine_piece {
    struct ht_engine_piece *next;
    ht_answer_piece piece;
    ht_tool_call call;
    ht_probe *probe; /* delivered instead of a piece; owned; NULL: none */
    size_t bytes;
    char text[];
} ht_engine_piece;

typedef enum ht_engine_state { HT_ENGINE_WAITING, HT_ENGINE_RUNNING, HT_ENGINE_ENDED } ht_engine_state;

struct ht_engine_answer {
    ht_engine *engine;
    ht_engine_request *request;
    int32_t index;
    uint64_t order;         /* of arrival */
    ht_engine_state state;  /* lock */
    ht_engine_answer *next; /* among those that wait */

    /* The engine's thread's. */
    ht_session *s; /* NULL before it is first begun, and when it has ended */
    ht_generation g;
    ht_sampler_options sampler;
    ht_prefix_node *lock;
    int64_t kept_pages; /* offered to the prefix cache */
    bool asked;         /* its job is ready to be run */
    bool begun;
    double begin; /* when it was */

    _Atomic int64_t reused; /* of `reuse`, for ht_engine_reused_tokens */

    /* For ht_answer_report. */
    ht_reuse reuse;
    int32_t preempted;
    ht_status status;
    ht_error err;
    ht_metrics metrics;
    int32_t *token;

    /* Guarded by the lock: undelivered pieces. */
    ht_engine_piece *first, **last;
    size_t held_bytes;
    bool ready, delivering, refused;
    int64_t refused_tokens;
    uint64_t ready_round;
    ht_engine_answer *next_ready;
};

struct ht_engine_request {
    ht_ticket ticket;
    ht_ids ids;
    ht_prompt_text text;
    ht_chat *chat; /* retained; NULL: none */
    bool goes_on;  /* the answer continues the prompt's text */
    bool prompt_only;
    ht_generate_options o; /* the request owns what it points to */
    ht_sampler_options sampler;
    ht_probe_options probes;
    ht_constraint constraint; /* owned; of a conversation, or of the options' grammar */
    char *order, **stop, *salt;
    ht_logit_bias *bias;
    ht_prefix_key key; /* likewise */
    ht_adapter **adapter;
    ht_digest *digest; /* of the adapters */
    float *scale;
    int32_t priority;
    double submitted, deadline; /* the latter 0: none; else on the clock of ht_now_seconds */
    double seconds;             /* the deadline as it was given */
    ht_cancel cancel;
    ht_engine_piece_fn *piece;
    ht_engine_end_fn *end;
    void *user;
    int32_t left; /* undelivered answers; lock */
    ht_engine_request *next;
    int32_t n;
    ht_engine_answer answer[]; /* [n] */
};

struct ht_engine {
    ht_model *model;
    ht_engine_options o;
    int64_t most_positions; /* that fit kv_bytes, or the context */
    ht_kv_account account;
    pthread_t thread;

    pthread_mutex_t prefix_lock;
    ht_prefix_cache *prefix; /* NULL: off */

    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the engine's thread */
    pthread_cond_t idle;    /* a request has gone */
    pthread_cond_t deliver; /* for the delivery threads */
    bool closing, stopping;
    int n_calls;                 /* calls in progress on other threads; the engine outlives them */
    ht_engine_request *requests; /* all that have not gone, newest first */
    ht_ticket last_ticket;
    uint64_t last_order;
    ht_engine_answer *waiting; /* highest priority first, then in order */
    int32_t n_waiting;
    ht_engine_statistics figures;

    /* The engine's thread's; n_running is written with the lock. */
    ht_engine_answer **running;  /* [sequences] in order */
    ht_engine_answer **turn;     /* [sequences] those of a round */
    ht_step_job **job;           /* [sequences] */
    ht_masks_ahead *masks_ahead; /* NULL: none as yet */
    int32_t n_running;
    bool out_of_memory; /* for the first that waits */
    uint64_t round;

    /* Lock. */
    ht_engine_answer *ready_first, **ready_last;
    pthread_t *deliverer; /* [n_deliverers] */
    size_t n_deliverers;
    int32_t n_idle; /* of them */
};

/* ---- calls ---- */

/* Bracket calls of other threads that access the engine more than once. */
void ht_engine_enter(ht_engine *e);
void ht_engine_leave(ht_engine *e);

/* ---- requests ---- */

/* Copies and checks a request. */
ht_status ht_engine_request_new(ht_engine *e, const ht_request *request, bool prompt_only, ht_engine_request **out,
                                ht_error *err);
void ht_engine_request_free(ht_engine_request *r); /* NULL is fine */

/* ---- the engine's thread ---- */

void *ht_engine_run(void *engine);
/* Adds an answer to the waiting list. Requires the lock. */
void ht_engine_queue(ht_engine_answer *a);

/* ---- delivery ---- */

/* Callbacks of ht_text_stream and ht_response_reader for an answer; false: the reader refused, or memory ran out. */
ht_text_fn ht_engine_post_text;
ht_answer_fn ht_engine_post_piece;
/* The same for the probes of a generation. */
ht_probe_fn ht_engine_post_probe;
/* Marks an answer as having pieces or its end to deliver. Requires the lock. */
void ht_engine_make_ready(ht_engine_answer *a);
/* Starts another delivery thread when ready answers have waited since before `round`. Requires the lock. */
void ht_engine_help_delivery(ht_engine *e);
ht_status ht_engine_start_delivery(ht_engine *e, ht_error *err);
/* Joins the delivery threads, after everything was delivered. */
void ht_engine_stop_delivery(ht_engine *e);

#endif
