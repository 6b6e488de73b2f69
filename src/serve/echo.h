/* Echoes: a prompt given back in front of its answer, token by token, with the log-probabilities that the model gives it. */
#ifndef HT_SERVE_ECHO_H
#define HT_SERVE_ECHO_H

#include "serve/generation.h"

/* A list of {token, logprob, bytes, top_logprobs} for the ids, the logprob of the first null; NULL, with a failure in the call, when they cannot
 * be had. Waits for the model. */
ht_json *serve_score_prompt(serve_generation *g, const int32_t *ids, size_t n);

/* The form of a token in such lists: its text, with U+FFFD for bytes that are no whole character, and its bytes. `logprob` is NaN for null. */
ht_json *serve_token_json(const ht_tokenizer *t, int32_t id, double logprob);

/* Characters in n bytes of UTF-8. */
int64_t serve_characters(const char *text, size_t n);

/* The list as text completions have it: {tokens, token_logprobs, top_logprobs, text_offset}, for a text that begins at character `offset`. */
ht_json *serve_completion_logprobs(const ht_json *list, int64_t offset);

#endif
