/* What a checkpoint's vocabulary tells about talking: the chat format it was trained on, and the tokens that end an
 * answer. */
#ifndef HT_MODELS_TALK_H
#define HT_MODELS_TALK_H

#include "models/checkpoint.h"

#include <hearth/tokenizer.h>

/* X(name, opening, bos): the chat formats there are, with the token that opens a turn, by which a format is told in a
 * template's text and in a vocabulary alike (the first that is there), and whether its models were trained on texts that begin with BOS. */
#define HT_CHAT_FORMATS(X)                                                                                             \
    X(chatml, "<|im_start|>", false)                                                                                   \
    X(gemma, "<start_of_turn>", true)                                                                                  \
    X(gemma4, "<|turn>", true)                                                                                         \
    X(llama3, "<|start_header_id|>", true)                                                                             \
    X(deepseek, "<\xEF\xBD\x9CUser\xEF\xBD\x9C>", true)                                                                \
    X(llama2, "<<SYS>>", true)                                                                                         \
    X(mistral, "[INST]", true)

/* The checkpoint's tokenizer; *out is NULL when it has none: it can still be run on ids. */
ht_status ht_talk_tokenizer(const ht_checkpoint_files *c, ht_tokenizer **out, ht_error *err);
/* What it lacks then, to be read behind its name. A constant. */
const char *ht_talk_no_tokenizer(const ht_checkpoint_files *c);

/* The name of one of them, or NULL: from the chat template, or from the special tokens there are. */
const char *ht_talk_format(const ht_tokenizer *t);

/* The ids that end the output, once each: those of the configuration, the tokenizer's end of text, and the ends of turns
 * that files forget to list. *ids is allocated. `t` may be NULL. */
ht_status ht_talk_stop_ids(const ht_config *config, const ht_tokenizer *t, int32_t **ids, int *n, ht_error *err);

#endif
