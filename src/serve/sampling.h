/* Sampling options of requests: the members that dialects have in common, by the names that their clients use. */
#ifndef HT_SERVE_SAMPLING_H
#define HT_SERVE_SAMPLING_H

#include "serve/generation.h"

enum { SERVE_MOST_LOGPROBS = 20, SERVE_MOST_ANSWERS = 128 }; /* of a token, and to a prompt */

/* Tables of fields: of serve_read_options (the second of those with `thinking`), the bookkeeping of OpenAI's interfaces, and of
 * serve_read_logprobs. */
extern const serve_field serve_sampling_fields[], serve_thinking_fields[], serve_noted_fields[],
    serve_logprobs_fields[];

/* The names of options that dialects have by different ones. */
typedef struct serve_option_names {
    const char *max_tokens[3]; /* the first that is there counts; the last is NULL */
    int32_t most; /* tokens without one of them and of the server's options. INT32_MAX: up to the context */
    const char *stop;
    bool
        thinking; /* there are budgets of thoughts, by the names that other servers have for them; -1: none, whatever the server's options say */
} serve_option_names;

/* Reads temperature, top_p, top_k, min_p, penalties, seed, logit_bias, ignore_eos, stop strings and bounds of tokens from an object into g->sampler
 * and g->how. Values that the request lacks are the server's options, else the model's, in every dialect. Without a seed one is drawn,
 * and returned in the response's header. Stop strings are lent from the object's values; empty ones are ignored. */
bool serve_read_options(serve_generation *g, const ht_json *object, const serve_option_names *names);
/* A float as the number that it was given as. */
double serve_rounded(float value);
/* The value and source of a model's sampling value, of which the server's options go first. */
ht_sampling_value serve_sampling_value(const serve_options *o, const ht_sampling_value *of_model);

#define SERVE_IS_STOP                                                                                                  \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .most = 64, .item = &serve_any_text }
#define SERVE_IS_MAX_TOKENS SERVE_IS_INTEGER(-1, INT64_MAX)
/* Whether log-probabilities are wanted, and how many of the likeliest tokens: "logprobs", a flag, and "top_logprobs" of the body. */
bool serve_read_logprobs(serve_generation *g);

#endif
