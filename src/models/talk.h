/* What a checkpoint's vocabulary tells about talking: the chat format it was trained on, and the tokens that end an
 * answer. */
#ifndef HT_MODELS_TALK_H
#define HT_MODELS_TALK_H

#include "models/checkpoint.h"

#include <hearth/tokenizer.h>

/* The checkpoint's tokenizer; *out is NULL when it has none: it can still be run on ids. */
ht_status ht_talk_tokenizer(const ht_checkpoint *c, ht_tokenizer **out, ht_error *err);

/* "chatml", "gemma", "gemma4", "llama3", or NULL: from the chat template, or from the special tokens there are. */
const char *ht_talk_format(const ht_tokenizer *t);

/* The ids that end the output, once each: those of the configuration, the tokenizer's end of text, and the ends of turns
 * that files forget to list. *ids is allocated. `t` may be NULL. */
ht_status ht_talk_stop_ids(const ht_config *config, const ht_tokenizer *t, int32_t **ids, int *n, ht_error *err);

#endif
