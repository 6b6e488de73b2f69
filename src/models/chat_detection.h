/* Chat format detection from a checkpoint's vocabulary and template, and the tokens that end an answer. */
#ifndef HT_MODELS_CHAT_DETECTION_H
#define HT_MODELS_CHAT_DETECTION_H

#include "models/checkpoint.h"
#include "models/template.h"

#include <hearth/tokenizer.h>

/* The checkpoint's tokenizer; *out is NULL when it has none: it can still be run on ids. */
ht_status ht_chat_detect_tokenizer(const ht_checkpoint_files *c, ht_tokenizer **out, ht_error *err);
/* What it lacks then, to be read behind its name. A constant. */
const char *ht_chat_detect_no_tokenizer(const ht_checkpoint_files *c);

/* What the chat template writes; without one, the plain form of the format whose opening is a token. The caller frees *out with
 * ht_template_free. */
ht_status ht_chat_detect_template(const ht_tokenizer *t, ht_template *out, ht_error *err);

/* The ids that end the output, once each: those of the configuration, the tokenizer's end of text, and the ends of turns
 * that files forget to list. *ids is allocated. `t` may be NULL. */
ht_status ht_chat_detect_stop_ids(const ht_config *config, const ht_tokenizer *t, int32_t **ids, int *n, ht_error *err);

#endif
