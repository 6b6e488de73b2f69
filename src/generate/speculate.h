/* Speculative decoding: one step verifies draft tokens (guesses). Each next token is drawn from its own logits with
 * its own random number; guesses count while they equal the drawn tokens. The output is that of plain decoding, to
 * the bit.
 *
 * Guesses come from prompt lookup (what followed the last tokens before) or from a draft model with the same random
 * numbers. Their number adapts to the acceptance rate and to the time a row adds. One thread at a time. */
#ifndef HT_GENERATE_SPECULATE_H
#define HT_GENERATE_SPECULATE_H

#include "generate/sampler.h"
#include "generate/session_internal.h"

enum { HT_DRAFT_TOKENS_MAX = 15 };

typedef struct ht_speculation ht_speculation;

typedef struct ht_speculation_setup {
    bool lookup;
    ht_session *draft; /* of the draft model, lent; NULL: none */
    const ht_sampler_options *sampler;
    int32_t most; /* maximum guesses per step; 0: adaptive */
    bool repeats; /* after a wrong guess the next step computes the accepted ones again */
} ht_speculation_setup;

ht_status ht_speculation_new(const ht_speculation_setup *setup, ht_speculation **out, ht_error *err);
void ht_speculation_free(ht_speculation *s); /* NULL is fine */

/* Sets the number of prompt tokens, also for the draft's sampler. */
void ht_speculation_set_prompt(ht_speculation *s, int64_t n_prompt);
/* Guesses up to `limit` tokens after the n given ones into `out` [limit]; *n_guesses may be 0. */
ht_status ht_speculation_guess(ht_speculation *s, const int32_t *tokens, int64_t n, int32_t limit,
                               const ht_cancel *cancel, int32_t *out, int32_t *n_guesses, ht_error *err);
/* Learns from a step with `guesses` guesses, of which `right` were accepted, that computed `repeated` tokens again. The
 * source of the last step's guesses pays for these. The guesses are those of the last ht_speculation_guess since the
 * last call, or without one forced, and cost no source anything. */
void ht_speculation_learn(ht_speculation *s, int32_t guesses, int32_t right, int64_t repeated, double seconds);

/* HT_ERR_ARGUMENT, with the difference, unless the tokens of both models are the same. */
ht_status ht_speculation_check_draft(const ht_model *m, const ht_model *draft, ht_error *err);

#endif
