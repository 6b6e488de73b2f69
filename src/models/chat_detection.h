/* Chat format detection from a checkpoint's template and vocabulary, and the stop tokens. */
#ifndef HT_MODELS_CHAT_DETECTION_H
#define HT_MODELS_CHAT_DETECTION_H

#include "models/checkpoint.h"
#include "models/template.h"

#include <hearth/tokenizer.h>

/* Loads the checkpoint's tokenizer; *out is NULL without an error when it has none (the model then runs on ids). */
ht_status ht_chat_detect_tokenizer(const ht_checkpoint_files *c, ht_tokenizer **out, ht_error *err);
/* Why there is no tokenizer, a predicate to follow the checkpoint's name. Static. */
const char *ht_chat_detect_no_tokenizer(const ht_checkpoint_files *c);

/* Identifies the chat template; without a template, the plain dialect of the first format whose opening token is in the
 * vocabulary. Free *out with ht_template_free. */
ht_status ht_chat_detect_template(const ht_tokenizer *t, ht_template *out, ht_error *err);

/* Stop ids without duplicates: the configuration's EOS, the tokenizer's EOS, and known end-of-turn tokens in its
 * vocabulary. The caller frees *ids. `t` may be NULL. */
ht_status ht_chat_detect_stop_ids(const ht_config *config, const ht_tokenizer *t, int32_t **ids, int *n, ht_error *err);

#endif
