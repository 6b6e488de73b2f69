/* Chat format detection from a checkpoint's template and vocabulary, and the stop tokens. */
#ifndef HT_CHECKPOINT_CHAT_DETECTION_H
#define HT_CHECKPOINT_CHAT_DETECTION_H

#include "checkpoint/checkpoint.h"
#include "template/template.h"

#include <hearth/tokenizer.h>

/* Loads the checkpoint's tokenizer; *out is NULL without an error when it has none (the model then runs on ids). */
ht_status ht_chat_detect_tokenizer(const ht_checkpoint_files *c, ht_tokenizer **out, ht_error *err);
/* Why there is no tokenizer, a predicate to follow the checkpoint's name. Static. */
const char *ht_chat_detect_no_tokenizer(const ht_checkpoint_files *c);

/* How a checkpoint's conversations are written. */
typedef struct ht_chat_setup {
    const char *name;           /* "template": its own; else that of a built-in format; NULL: neither. A constant. */
    ht_chat_template *template; /* owned; NULL without a name, and where `error` says why its own cannot be used */
    ht_error error;
} ht_chat_setup;

/* The checkpoint's chat template, else that of the first built-in format whose opening token is in the vocabulary. */
ht_status ht_chat_detect_template(const ht_tokenizer *t, ht_chat_setup *out, ht_error *err);

/* Stop ids without duplicates: the configuration's EOS, the tokenizer's EOS, and known end-of-turn tokens in its
 * vocabulary. The caller frees *ids. `t` may be NULL. */
ht_status ht_chat_detect_stop_ids(const ht_config *config, const ht_tokenizer *t, int32_t **ids, int *n, ht_error *err);

#endif
