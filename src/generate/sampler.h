/* The sampler chain: logits of one position and the tokens before it in, one token id out.
 *
 * The stages run in the order asked for; each sees what the one before it left, as probabilities of what is left:
 *   repeat penalty  distinct ids among the last repeat_window tokens: logit / penalty if positive, * penalty if not;
 *                   then of ids that were generated: logit - (count * frequency penalty + presence penalty)
 *   temperature     logits / temperature; 0 instead ends in the most likely of what is left, lowest id on ties
 *   top_k           the k most likely
 *   top_p           the smallest set of most likely tokens whose probabilities reach p
 *   min_p           those at least min_p times as likely as the most likely
 * Biases are added before, to what a mask has left. The draw takes the first id, in order of id, at which the running sum of what is left passes u times the whole; u is
 * Philox4x32-10 keyed with the seed, at the position of the token that is drawn. A sampler belongs to one thread. */
#ifndef HT_GENERATE_SAMPLER_H
#define HT_GENERATE_SAMPLER_H

#include "checkpoint/sampling.h"
#include "device/row.h"
#include "device/step.h"

#include <hearth/generate.h>

typedef struct ht_sampler ht_sampler;

typedef enum ht_sampler_stage {
    HT_STAGE_REPEAT_PENALTY,
    HT_STAGE_TEMPERATURE,
    HT_STAGE_TOP_P,
    HT_STAGE_TOP_K,
    HT_STAGE_MIN_P,
    HT_SAMPLER_STAGES
} ht_sampler_stage;

/* All stages, in the order that `text` says (ht_sampler_options); NULL: the one above. */
ht_status ht_sampler_order_parse(const char *text, ht_sampler_stage order[HT_SAMPLER_STAGES], ht_error *err);

/* The name that `text` has for a stage. A constant. */
const char *ht_sampler_stage_name(ht_sampler_stage stage);

/* The most likely token, without penalties and whatever the model recommends: for measurements and checks. */
extern const ht_sampler_options ht_sampler_greedy;

/* The options in effect, checked but for their order: unset values of `options` (NULL: all) are those of `model`. */
ht_status ht_sampler_options_read(const ht_sampler_options *options, const ht_sampling *model, ht_sampler_options *out,
                                  ht_error *err);

/* Biases sorted by id, to be freed. HT_ERR_ARGUMENT: an id out of range or twice, a bias that is not finite. */
ht_status ht_logit_biases_read(const ht_sampler_options *options, int32_t vocab, ht_logit_bias **out, ht_error *err);

/* Checks the options and allocates all memory that sampling needs. NULL and unset options: the library's defaults. */
ht_status ht_sampler_new(const ht_sampler_options *options, int32_t vocab, const ht_row_ops *ops, ht_sampler **out,
                         ht_error *err);
void ht_sampler_free(ht_sampler *s); /* NULL is fine */

/* Prepares a sampler for masks, which all of its picks then need. */
ht_status ht_sampler_constrain(ht_sampler *s, ht_error *err);
/* Restricts the next picks to tokens t < n_tokens whose bit t % 32 of mask[t / 32] is set; one must be. The chain
 * sees no other. Lent until the last of these picks. */
void ht_sampler_set_mask(ht_sampler *s, const uint32_t *mask, int32_t n_tokens);

/* How many tokens of the history are the prompt's, which presence and frequency penalties ignore; 0 at first. */
void ht_sampler_set_prompt(ht_sampler *s, int64_t n_prompt);

/* How many of the highest logits decide the pick after n_history tokens, others being HT_MASKED_LOGIT; 0: all. */
int32_t ht_sampler_top_k(const ht_sampler *s, int64_t n_history);

/* Picks the token for position n_history from a row, of which the ht_sampler_top_k highest logits suffice.
 * `history`: the tokens before. A logit that is NaN or infinite is an error. Allocates nothing. */
ht_status ht_sampler_pick_row(ht_sampler *s, const ht_logits_rows *logits, int64_t row, const int32_t *history,
                              int64_t n_history, int32_t *id, ht_error *err);

#endif
