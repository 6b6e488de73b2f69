/* Many sequences through a text encoder, which attends to both sides of each token.
 *
 * A step takes whole sequences, as many as fit, one after the other without padding; the longest come first. The bits of
 * a sequence's hidden states do not depend on the others. */
#ifndef HT_GENERATE_ENCODE_H
#define HT_GENERATE_ENCODE_H

#include "generate/prefill.h"

/* Like ht_prefill_run, for a model with ht_config.two_sided. Rows are hidden states; `options` gives the adapters. */
ht_status ht_encode(ht_model *m, const ht_prefill_options *options, ht_prefill_sequence *sequences, int32_t n,
                    const ht_prefill_calls *calls, const ht_cancel *cancel, ht_error *err);

/* ht_encode for such a model; for others a prefill of this call alone. */
ht_status ht_compute_sequences(ht_model *m, const ht_prefill_options *options, ht_prefill_sequence *sequences,
                               int32_t n, const ht_prefill_calls *calls, const ht_cancel *cancel, ht_error *err);

#endif
