/* Chat format detection from a checkpoint's template and vocabulary, and the stop tokens. */
#ifndef HT_CHECKPOINT_CHAT_DETECTION_H
#define HT_CHECKPOINT_CHAT_DETECTION_H

#include "checkpoint/checkpoint.h"
#include "template/template.h"

#include <hearth/tokenizer.h>

/* Loads the checkpoint's tokenizer; *out is NULL without an error when it has none (the model then runs on ids). */
ht_status ht_chat_detect_tokenizer(const ht_checkpoint_files *c, ht_tokenizer **out, ht_error *err);
/* Why there is no tokenizer, as a predicate after the checkpoint's name. Static. */
const char *ht_chat_detect_no_tokenizer(const ht_checkpoint_files *c);

/* How to render a checkpoint's conversations. */
typedef struct ht_chat_setup {
    const char *name;           /* "template": its own; else that of a built-in format; NULL: neither. A constant. */
    ht_chat_template *template; /* owned; NULL without a name, or if `error` rejects the checkpoint's template */
    ht_error error;
    bool text_arguments;             /* the template expects the arguments of calls as JSON text, not as an object */
    bool null_content;               /* the template distinguishes the content null of an assistant message from "" */
    struct ht_chat_setup *for_tools; /* owned; the template "tool_use", for conversations with tools; NULL: none */
} ht_chat_setup;

/* The checkpoint's chat template, else that of the first built-in format whose opening token is in the vocabulary. The
 * caller frees *out with ht_chat_setup_free, also on failure. */
ht_status ht_chat_detect_template(const ht_tokenizer *t, ht_chat_setup *out, ht_error *err);
/* The setup of one template, `title` in errors. Only a lack of memory fails; a parse error is in out->error. */
ht_status ht_chat_setup_parse(const char *source, const char *name, const char *title, ht_chat_setup *out,
                              ht_error *err);
/* Sets text_arguments and null_content for setup->template. */
void ht_chat_setup_probe(ht_chat_setup *setup);
/* The setup for a conversation with tools, or without. */
const ht_chat_setup *ht_chat_setup_for(const ht_chat_setup *setup, bool tools);
void ht_chat_setup_free(ht_chat_setup *setup); /* and zeroed */

/* Stop ids without duplicates: the configuration's EOS, the tokenizer's EOS, and known end-of-turn tokens in its
 * vocabulary. The caller frees *ids. `t` may be NULL. */
ht_status ht_chat_detect_stop_ids(const ht_config *config, const ht_tokenizer *t, int32_t **ids, int *n, ht_error *err);

/* Chat templates for checkpoints without one. A token of the vocabulary identifies the format. */
typedef struct ht_builtin_chat_format {
    const char *name;
    const char *opening; /* the token that opens a turn; the first row whose token is in the vocabulary applies */
    const char *source;  /* the template */
} ht_builtin_chat_format;

/* Row i; NULL past the last one. */
const ht_builtin_chat_format *ht_builtin_chat_format_at(int i);

#endif
