/* Generations: what a request asks of the engine, in terms of the library, and its answers as they come, handed to the dialect that the
 * client speaks. Everything that the dialects have in common is here; of the dialects, only what their formats say.
 *
 * A dialect's functions are called one after the other for one generation. */
#ifndef HT_SERVE_GENERATION_H
#define HT_SERVE_GENERATION_H

#include "base/text.h"
#include "serve/call.h"

#include <pthread.h>

typedef struct serve_generation serve_generation;

/* A call of a tool in an answer. */
typedef struct serve_tool_call {
    char id[SERVE_ID];
    char *name;
    ht_text arguments;
    bool cut; /* they are no JSON object: the answer has ended within them, or the model wrote something else */
} serve_tool_call;

/* One answer as far as it has come. */
typedef struct serve_answer {
    int32_t index; /* among all of the generation */
    ht_text text, thoughts;
    serve_tool_call *call; /* [n_calls] */
    size_t n_calls;
    ht_json *logprobs;         /* a list of {token, logprob, bytes, top_logprobs}, of its text; NULL: not wanted */
    ht_json *pending_logprobs; /* of tokens whose text has not come */
    ht_text pending_bytes;     /* theirs, after the rest of one in `logprobs` */
    size_t shown_bytes;        /* of that rest */
    int64_t told_characters;   /* of the text, that a stream has sent */
    ht_answer_part last;       /* the last piece's */
    int64_t tokens, thought_tokens;
    int64_t prompt_tokens; /* known when it was submitted */
    int64_t cached_tokens; /* of the prompt, not computed; known when its first piece comes */
    int32_t *ids;          /* [n_ids], all tokens of one that has ended; NULL: not wanted */
    size_t n_ids;
    ht_status status; /* this and the following: when it has ended */
    char message[256];
    ht_metrics metrics;
    ht_reuse reuse;
    double queue_seconds;
    int block; /* a dialect's own: which part is open, and how many there were */
    int n_blocks;
} serve_answer;

/* How a dialect writes answers. NULL functions are not called, NULL texts not sent. */
typedef struct serve_dialect {
    size_t extra_bytes;                 /* of generation.extra, zeroed */
    void (*discard_extra)(void *extra); /* frees what it holds */
    const char *call_prefix;            /* of identifiers of calls; NULL: "call_" */
    /* Streams: each sends what its format has for it. */
    const char *stream_type;            /* of lines of JSON; NULL: server-sent events */
    const char *alive;                  /* what is sent in long silences, a constant; NULL: a comment */
    void (*begin)(serve_generation *g); /* before all else: the request is queued */
    /* Of the parts of a call, the call is the answer's last. */
    void (*piece)(serve_generation *g, serve_answer *a, const ht_answer_piece *piece);
    void (*answer_end)(serve_generation *g, serve_answer *a);
    void (*end)(serve_generation *g);                          /* all answers have ended well */
    const char *last_event;                                    /* after that, as it is: "[DONE]" */
    void (*fail)(serve_generation *g, const serve_failure *f); /* or not; NULL: the failure as of the dialect */
    const char *fail_event;                                    /* the name of its event */
    /* Not a stream: the whole; NULL when memory ran out. */
    ht_json *(*reply)(serve_generation *g);
} serve_dialect;

typedef struct serve_prompt {
    ht_chat *chat;    /* owned, as are the others; one of the three */
    const char *text; /* lent */
    int32_t *ids;
    size_t n_ids;
    serve_generation *g; /* it is of, as the callbacks of the engine find it */
    ht_ticket ticket;    /* 0: not submitted; the generation's ticket_lock */
} serve_prompt;

struct serve_generation {
    serve_call *c;
    const serve_dialect *dialect;

    /* What is asked; the dialect fills it in between serve_generation_new and _start. */
    serve_prompt *prompt; /* [n_prompts] */
    size_t n_prompts;
    int32_t n; /* answers of each prompt */
    ht_sampler_options sampler;
    ht_generate_options how;
    const char **stop;   /* of `how`; the texts are lent */
    ht_logit_bias *bias; /* of `sampler` */
    bool stream, usage, continuous_usage, logprobs, echo;
    int32_t top_logprobs;
    bool keep_ids; /* answers have the ids of their tokens in the end */
    void *extra;   /* of the dialect */

    char id[SERVE_ID];
    int64_t created; /* seconds since 1970 */

    pthread_mutex_t lock; /* of all that follows but the tickets */
    serve_answer *answer; /* [n_prompts * n] */
    size_t n_answers, left;
    bool closed; /* nothing more is sent */
    bool streaming;
    double first_piece; /* seconds on the clock of ht_now_seconds; 0: none yet */

    ht_cancel cancel;            /* of calls of the library that wait */
    pthread_mutex_t ticket_lock; /* of the tickets and their number */
};

/* The call's generation, to be filled in; NULL, with a failure in the call, when memory ran out. */
serve_generation *serve_generation_new(serve_call *c, const serve_dialect *dialect);
/* Allocates prompts. */
bool serve_generation_prompts(serve_generation *g, size_t n);
/* Submits it. False: with a failure in the call. */
bool serve_generation_start(serve_generation *g);

/* Computes the prompts for the prefix cache, and answers with nothing. */
bool serve_generation_warm(serve_generation *g);
/* What became of a prompt of which no answer is wanted. */
typedef struct serve_prefill {
    ht_reuse reuse; /* `computed` alone where it was not for the prefix cache */
    double seconds;
} serve_prefill;
/* Answers without generating anything: each answer is empty, and ended by its length. */
bool serve_generation_answer_empty(serve_generation *g, const serve_prefill *prefill); /* [n_prompts] */

/* ---- for dialects ---- */

/* Sends an event, or a line; data is taken. Name NULL: none. */
void serve_send(serve_generation *g, const char *name, ht_json *data);
/* A token of a list of log-probabilities: its text, with U+FFFD for bytes that are no whole character, and its bytes. `logprob` is NaN for null. */
ht_json *serve_token_json(const ht_tokenizer *t, int32_t id, double logprob);
/* The log-probabilities that have come since the last call, which the caller gives back; NULL: none. */
ht_json *serve_take_logprobs(serve_answer *a);

/* Tokens of a generation. */
typedef struct serve_usage {
    int64_t prompt, cached, generated, thoughts;
} serve_usage;
serve_usage serve_usage_of(const serve_generation *g); /* of all answers so far; each prompt counts once */
serve_usage serve_answer_usage(const serve_answer *a);

static inline ht_json *serve_text_json(const ht_text *t) { return ht_json_stringn(t->data ? t->data : "", t->len); }
/* The arguments of a call as an object, of one that is cut the members that are whole. NULL when memory ran out; the caller gives it back. */
ht_json *serve_tool_call_arguments(const serve_tool_call *call);

#endif
