/* Sampling options of requests: the members that dialects have in common, by the names that their clients use. */
#ifndef HT_SERVE_SAMPLING_H
#define HT_SERVE_SAMPLING_H

#include "serve/generation.h"

enum { SERVE_MOST_LOGPROBS = 20, SERVE_MOST_ANSWERS = 128 }; /* of a token, and to a prompt */

/* Tables of fields: of serve_read_options, with `thinking`, the bookkeeping of OpenAI's interfaces, and with `logprobs`. */
extern const serve_field serve_sampling_fields[], serve_thinking_fields[], serve_noted_fields[],
    serve_logprobs_fields[];

/* Options that dialects have by different names, or not. */
typedef struct serve_option_names {
    const char *max_tokens[3]; /* the first that is there counts; the last is NULL */
    int32_t most;              /* tokens where neither the request nor the server bounds them; INT32_MAX: the context */
    const char *stop;
    bool streams;  /* an answer is a stream unless "stream" is false */
    bool logprobs; /* "logprobs" is a flag, and "top_logprobs" the number of likeliest tokens */
    bool thinking; /* a budget of thoughts, by any of the names in use; -1: none, whatever the server's options say */
} serve_option_names;

/* Reads temperature, top_p, top_k, min_p, penalties, seed, logit_bias, ignore_eos, stop strings and bounds of tokens from an object, and from the
 * body whether the answer is a stream, with usage, and has log-probabilities. Values that the request lacks are the server's options, else the
 * model's, in every dialect. Without a seed one is drawn, and returned in the response's header. Stop strings are lent; empty ones are ignored. */
bool serve_read_options(serve_generation *g, const ht_json *object, const serve_option_names *names);
/* A float as the number that it was given as. */
double serve_rounded(float value);
/* The value and source of a model's sampling value, of which the server's options go first. */
ht_sampling_value serve_sampling_value(const serve_options *o, const ht_sampling_value *of_model);

#define SERVE_IS_STOP                                                                                                  \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .most = 64, .item = &serve_any_text }
#define SERVE_IS_MAX_TOKENS SERVE_IS_INTEGER(-1, INT64_MAX)

#endif
