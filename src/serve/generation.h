/* Generations: the engine requests of a call, and their answers, passed piece by piece to the client's dialect. The
 * code that dialects share is here; a dialect only formats.
 *
 * The functions of a dialect are never called concurrently for one generation. */
#ifndef HT_SERVE_GENERATION_H
#define HT_SERVE_GENERATION_H

#include "base/text.h"
#include "serve/call.h"

#include <pthread.h>

typedef struct serve_generation serve_generation;

/* A tool call of an answer. */
typedef struct serve_tool_call {
    char id[SERVE_ID];
    char *name;
    ht_text arguments;
    bool cut; /* the arguments are no JSON object: the answer ended within them, or the model wrote something else */
} serve_tool_call;

/* One answer so far. */
typedef struct serve_answer {
    int32_t index; /* among all answers of the generation */
    ht_text text, thoughts;
    serve_tool_call *call; /* [n_calls] */
    size_t n_calls;
    ht_json *logprobs;         /* of its text, a list of {token, logprob, bytes, top_logprobs}; NULL: not requested */
    ht_json *pending_logprobs; /* of tokens whose text is not out yet */
    ht_text pending_bytes;     /* bytes of these tokens, after the rest of a token in `logprobs` */
    size_t shown_bytes;        /* length of that rest */
    int64_t told_characters;   /* characters of the text sent to a stream */
    ht_answer_part last;       /* part of the last piece */
    int64_t tokens, thought_tokens;
    int64_t prompt_tokens; /* known once submitted */
    int64_t cached_tokens; /* prompt tokens from the cache; known at the first piece */
    int32_t *ids;          /* [n_ids], all tokens of an ended answer; NULL: not requested */
    size_t n_ids;
    ht_status status; /* this and the fields below are set when the answer has ended */
    char message[256];
    ht_metrics metrics;
    ht_reuse reuse;
    double queue_seconds;
    int block; /* for the dialect: the open block, and the number of blocks so far */
    int n_blocks;
} serve_answer;

/* The output functions of a dialect. NULL functions are not called, NULL texts not sent. */
typedef struct serve_dialect {
    size_t extra_bytes;                 /* size of generation.extra, zeroed */
    void (*discard_extra)(void *extra); /* frees the contents of `extra` */
    const char *call_prefix;            /* prefix of call ids; NULL: "call_" */
    /* Streams: each function sends its part of the format. */
    const char *stream_type;            /* content type of JSON lines; NULL: server-sent events */
    const char *alive;                  /* keep-alive text, a constant; NULL: a comment */
    void (*begin)(serve_generation *g); /* runs first, once the request is queued */
    /* For the parts of a call, the answer's last call is the current one. */
    void (*piece)(serve_generation *g, serve_answer *a, const ht_answer_piece *piece);
    void (*answer_end)(serve_generation *g, serve_answer *a);
    void (*end)(serve_generation *g);                          /* runs when all answers ended without a failure */
    const char *last_event;                                    /* sent verbatim at the end: "[DONE]" */
    void (*fail)(serve_generation *g, const serve_failure *f); /* sends a failure; NULL: the dialect's error object */
    const char *fail_event;                                    /* name of its event */
    /* The body of a response that is not a stream; NULL when memory ran out. */
    ht_json *(*reply)(serve_generation *g);
} serve_dialect;

typedef struct serve_prompt {
    ht_chat *chat;    /* one of chat, text and ids is set; chat and ids are owned */
    const char *text; /* lent */
    int32_t *ids;
    size_t n_ids;
    serve_generation *g; /* parent, for engine callbacks that get the prompt */
    ht_ticket ticket;    /* 0: not submitted; protected by the generation's ticket_lock */
} serve_prompt;

struct serve_generation {
    serve_call *c;
    const serve_dialect *dialect;

    /* The request; the dialect fills it in between serve_generation_new and _start. */
    serve_prompt *prompt; /* [n_prompts] */
    size_t n_prompts;
    int32_t n; /* answers per prompt */
    ht_sampler_options sampler;
    ht_generate_options how;
    const char **stop;   /* stop strings of `how`; the texts are lent */
    ht_logit_bias *bias; /* biases of `sampler` */
    bool stream, usage, continuous_usage, logprobs, echo;
    int32_t top_logprobs;
    bool keep_ids; /* answers keep the ids of their tokens */
    void *extra;   /* data of the dialect */

    char id[SERVE_ID];
    int64_t created; /* seconds since 1970 */

    pthread_mutex_t lock; /* protects the fields below except tickets */
    serve_answer *answer; /* [n_prompts * n] */
    size_t n_answers, left;
    bool closed; /* the response is complete or aborted */
    bool streaming;
    double first_piece; /* seconds on the clock of ht_now_seconds; 0: none yet */

    ht_cancel cancel;            /* cancels blocking library calls */
    pthread_mutex_t ticket_lock; /* protects tickets, prompt and n_prompts */
};

/* Creates the call's generation; NULL, with a failure in the call, when memory ran out. */
serve_generation *serve_generation_new(serve_call *c, const serve_dialect *dialect);
/* Allocates n prompts. */
bool serve_generation_prompts(serve_generation *g, size_t n);
/* Submits the generation. False, with a failure in the call, when that fails. */
bool serve_generation_start(serve_generation *g);

/* Computes the prompts for the prefix cache, and replies with empty answers. */
bool serve_generation_warm(serve_generation *g);
/* Measurements of a prompt that is computed without generating. */
typedef struct serve_prefill {
    ht_reuse reuse; /* only `computed` is set when the prefix cache was not used */
    double seconds;
} serve_prefill;
/* Replies without generating: each answer is empty and has finish reason length. */
bool serve_generation_answer_empty(serve_generation *g, const serve_prefill *prefill); /* [n_prompts] */

/* ---- for dialects ---- */

/* Sends an event or a line, and consumes data. Name NULL: no event name. */
void serve_send(serve_generation *g, const char *name, ht_json *data);
/* A log-probability entry: the token's text, with U+FFFD for incomplete characters, and bytes. NaN becomes null. */
ht_json *serve_token_json(const ht_tokenizer *t, int32_t id, double logprob);
/* Takes the log-probabilities added since the last call; the caller releases them. NULL: none. */
ht_json *serve_take_logprobs(serve_answer *a);

/* Token counts of a generation. */
typedef struct serve_usage {
    int64_t prompt, cached, generated, thoughts;
} serve_usage;
serve_usage serve_usage_of(const serve_generation *g); /* sums all answers so far; each prompt counts once */
serve_usage serve_answer_usage(const serve_answer *a);

static inline ht_json *serve_text_json(const ht_text *t) { return ht_json_stringn(t->data ? t->data : "", t->len); }
/* The arguments of a call as an object; of a truncated call, its complete values. NULL: out of memory. */
ht_json *serve_tool_call_arguments(const serve_tool_call *call);

#endif
