/* Sampling options of requests: the members that dialects have in common, by the names that their clients use. */
#ifndef HT_SERVE_SAMPLING_H
#define HT_SERVE_SAMPLING_H

#include "serve/generation.h"

enum { SERVE_MOST_LOGPROBS = 20, SERVE_MOST_ANSWERS = 128 }; /* of a token, and to a prompt */

/* Tables of members: of serve_read_sampling, the bookkeeping of OpenAI's interfaces, and of serve_read_logprobs. */
extern const serve_field serve_sampling_fields[], serve_noted_fields[], serve_logprobs_fields[];

/* Reads temperature, top_p, top_k, min_p, penalties, seed, logit_bias and ignore_eos from an object into g->sampler and g->how.
 * Values that the request lacks are the server's options, else the model's, in every dialect. Without a seed one is drawn,
 * and returned in the response's header. */
bool serve_read_sampling(serve_generation *g, const ht_json *object);
/* A float as the number that it was given as. */
double serve_rounded(float value);
/* The value and source of a model's sampling value, of which the server's options go first. */
ht_sampling_value serve_sampling_value(const serve_options *o, const ht_sampling_value *of_model);

/* Stop strings: a text or a list of them, lent from the value. Empty ones are ignored; NULL: those of the server's options. */
#define SERVE_IS_STOP                                                                                                  \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .most = 64, .item = &serve_any_text }
bool serve_read_stop(serve_generation *g, const ht_json *value);
#define SERVE_IS_MAX_TOKENS SERVE_IS_INTEGER(-1, INT64_MAX)
/* The most tokens of an answer, by the first of the names (NULL-terminated) that is there; without one that of the server's options, or else
 * `otherwise`. INT32_MAX: up to the context. */
void serve_read_max_tokens(serve_generation *g, const ht_json *object, const char *const *names, int32_t otherwise);
/* Tokens of an answer's thoughts at most, by the first of the names that other servers have for it which is there; -1: no bound, whatever
 * the server's options say. */
extern const serve_field serve_thinking_fields[];
void serve_read_thinking_budget(serve_generation *g, const ht_json *object);
/* Whether log-probabilities are wanted, and how many of the likeliest tokens: "logprobs", a flag, and "top_logprobs" of the body. */
bool serve_read_logprobs(serve_generation *g);

#endif
