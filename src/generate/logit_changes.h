/* Changes of single logits, which a sampler makes to a row: biases of tokens, and penalties of tokens that occurred.
 *
 * Rows are of all tokens, or of some of them with their ids in increasing order. A finite logit stays within +-1e30, whatever it is
 * changed by, so that differences of two are finite; one that is not finite stays as it is, for the sampler to find. */
#ifndef HT_GENERATE_LOGIT_CHANGES_H
#define HT_GENERATE_LOGIT_CHANGES_H

#include <hearth/generate.h>

typedef struct ht_logit_changes {
    int32_t vocab;
    bool repeats, counts; /* penalties of tokens that occurred lately, and of those that were generated */
    bool biases_raise, penalties_raise;
    float repeat_penalty, presence_penalty, frequency_penalty;
    int32_t repeat_window; /* -1: all */
    int64_t n_prompt;      /* tokens of the history that were not generated */
    int32_t n_bias;
    ht_logit_bias *bias; /* [n_bias] in order of id */
    uint8_t *seen;       /* [vocab] bits, clear between calls; NULL unless `repeats` */
    int32_t *count;      /* [vocab] likewise; NULL unless `counts` */
} ht_logit_changes;

/* The biases of the options in order of id, in fresh memory for free(). HT_ERR_ARGUMENT for an id that is not below `vocab` or comes
 * twice, and for a bias that is not finite. */
ht_status ht_logit_biases_read(const ht_sampler_options *options, int32_t vocab, ht_logit_bias **out, ht_error *err);

/* Of checked options. *c is to be freed in any case. */
ht_status ht_logit_changes_init(ht_logit_changes *c, const ht_sampler_options *options, int32_t vocab, ht_error *err);
void ht_logit_changes_free(ht_logit_changes *c);

/* Whether ht_logit_changes_penalise changes anything. */
static inline bool ht_logit_changes_penalises(const ht_logit_changes *c) { return c->repeats || c->counts; }

/* Adds the biases to a row x [n], of the tokens ids[0] < ids[1] < ...; NULL: of tokens 0, 1, ... */
void ht_logit_changes_bias(const ht_logit_changes *c, float *x, const int32_t *ids, int32_t n);
/* Applies the penalties of n_history tokens to a row likewise. */
void ht_logit_changes_penalise(ht_logit_changes *c, float *x, const int32_t *ids, int32_t n, const int32_t *history,
                               int64_t n_history);

/* How many tokens the biases, and the penalties after n_history tokens, lower at most; INT32_MAX when they may raise one. */
int64_t ht_logit_changes_biased(const ht_logit_changes *c);
int64_t ht_logit_changes_penalised(const ht_logit_changes *c, int64_t n_history);

#endif
