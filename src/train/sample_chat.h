/* Conversations as samples: their ids, and the answers in them. */
#ifndef HT_TRAIN_SAMPLE_CHAT_H
#define HT_TRAIN_SAMPLE_CHAT_H

#include "chat/conversation.h"
#include "train/sample.h"

/* The ids that the model's chat format makes of the conversation, and which of them are learned; messages lose their weights
 * for it. *out takes ids and flags, which hold whatever the outcome what ht_sample_free frees. */
ht_status ht_sample_of_chat(const ht_model *m, ht_chat *chat, const ht_sample_options *options, ht_sample *out,
                            ht_error *err);

/* sample.c: whether generation ends at the id. */
bool ht_sample_is_stop(const ht_model *m, int32_t id);
/* sample.c: gives the sample the ids, which it owns from now on, and room for flags, all false. */
ht_status ht_sample_take_ids(ht_sample *s, int32_t *ids, size_t n, ht_error *err);

/* The length of what two sequences of ids have in common at their beginnings. */
size_t ht_common_prefix(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b);

#endif
