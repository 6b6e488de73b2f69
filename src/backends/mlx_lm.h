/* Models of the backend `mlx_lm`: a child process that runs mlx_bridge.py and serves one call at a time. A child
 * that ends, times out or violates the protocol ends the model: later calls fail with the same message. A reported
 * error ends only its request. */
#ifndef HT_BACKENDS_MLX_LM_H
#define HT_BACKENDS_MLX_LM_H

#include "backends/calls.h"
#include "backends/child.h"
#include "backends/mlx_message.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/sampling.h"

/* The checkpoint's tokenizer, chat template, stop ids and sampling values, as models of this library have them. */
typedef struct ht_mlx_text {
    ht_tokenizer *tokenizer;  /* NULL: the model supports only token ids */
    const char *no_tokenizer; /* the reason. Static */
    ht_chat_setup chat;
    int32_t *stop_ids;
    int n_stop_ids;
    ht_sampling sampling; /* defaults of requests */
} ht_mlx_text;

typedef struct ht_mlx_model {
    ht_child *child;  /* NULL after a failure */
    ht_error failure; /* why */
    ht_mlx_text text;
    ht_mlx_event loaded; /* whose info lends its texts */
    int64_t context;     /* maximum tokens of prompt and answer; INT32_MAX: unspecified */
    double first_seconds, next_seconds;
    ht_turns turns; /* the child does one request at a time */
    ht_calls calls;
    int64_t last_id;
    int64_t unfinished; /* a cancelled request whose last events are not yet read; 0: none */
} ht_mlx_model;

/* Source of mlx_bridge.py, NUL-terminated; made by CMake. */
extern const char ht_mlx_bridge[];

/* A call that has its turn. */
typedef struct ht_mlx_call {
    ht_mlx_model *m;
    ht_backend_call call;
    int64_t id; /* of its request */
} ht_mlx_call;

/* Waits for the turn; after a failure ht_mlx_leave must not be called. */
ht_status ht_mlx_enter(ht_mlx_model *m, const ht_cancel *cancel, ht_mlx_call *c, ht_error *err);
void ht_mlx_leave(ht_mlx_call *c);

/* Sends a request, after the end of the last one; `more` as of ht_mlx_request_write. */
ht_status ht_mlx_send(ht_mlx_call *c, const char *command, ht_json *more, ht_error *err);
/* Reads the next event of the request. It must have the given kind; HT_MLX_DONE is also valid instead of tokens or
 * keys. An error event becomes the call's error. The caller frees `e`, also after a failure. A failure ends the
 * call; a protocol violation also ends the child. */
ht_status ht_mlx_next(ht_mlx_call *c, const ht_child_wait *wait, ht_mlx_event_kind kind, ht_mlx_event *e,
                      ht_error *err);
/* Ends the child after a protocol violation that the caller found. Returns `status`. */
ht_status ht_mlx_refuse(ht_mlx_call *c, ht_status status, ht_error *err, const char *fmt, ...) HT_PRINTF(4, 5);
/* Sends a cancel message for the request; its remaining events are discarded. */
void ht_mlx_abandon(ht_mlx_call *c);

/* A wait that the call's cancel flag ends. */
ht_child_wait ht_mlx_wait(const ht_mlx_call *c, double seconds, const char *what);

ht_status ht_mlx_generate(void *state, const ht_backend_prompt *prompt, const ht_generate_options *options,
                          ht_text_fn *fn, void *user, int32_t *ids, ht_metrics *metrics, ht_error *err);
ht_status ht_mlx_chat(void *state, const ht_chat *chat, const ht_generate_options *options, ht_answer_fn *fn,
                      void *user, ht_metrics *metrics, ht_error *err);
ht_status ht_mlx_inspect(void *state, const ht_backend_prompt *prompt, const ht_cancel *cancel, ht_backend_keys_fn *fn,
                         void *user, ht_error *err);

#endif
