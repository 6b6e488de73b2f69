/* Sampling options of requests: the fields that dialects share, by the names that clients use. */
#ifndef HT_SERVE_SAMPLING_H
#define HT_SERVE_SAMPLING_H

#include "serve/generation.h"

enum { SERVE_MOST_LOGPROBS = 20, SERVE_MOST_ANSWERS = 128 }; /* per token, and per prompt */

/* Field tables: for serve_read_options, with `thinking`, bookkeeping of OpenAI's interfaces, and with `logprobs`. */
extern const serve_field serve_sampling_fields[], serve_thinking_fields[], serve_noted_fields[],
    serve_logprobs_fields[];

/* Options whose names or presence differ between dialects. */
typedef struct serve_option_names {
    const char *max_tokens[3]; /* the first present field counts; the last is NULL */
    int32_t most;              /* default without the server's limit; INT32_MAX: the context */
    const char *stop;
    bool streams;  /* default of the field "stream" */
    bool logprobs; /* "logprobs" is a flag, "top_logprobs" the number of alternatives */
    bool thinking; /* reads a reasoning budget by any known name; -1: unlimited, overriding the server's option */
} serve_option_names;

/* Reads sampling options, stop strings and token limits from `object`, and stream, usage and log-probabilities from the
 * body. Missing values default to the server's options, then the model's; a missing seed is drawn at random. The seed
 * is in the response's header. Stop strings are lent; empty ones are ignored. */
bool serve_read_options(serve_generation *g, const ht_json *object, const serve_option_names *names);
/* A float as the decimal number that it was parsed from. */
double serve_rounded(float value);
/* A sampling value and its source; the server's options override the model's. */
ht_sampling_value serve_sampling_value(const serve_options *o, const ht_sampling_value *of_model);

#define SERVE_IS_STOP                                                                                                  \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .most = 64, .item = &serve_any_text }
#define SERVE_IS_MAX_TOKENS SERVE_IS_INTEGER(-1, INT64_MAX)

#endif
