/* tokenizer_config.json: its additions to a tokenizer.json. */
#ifndef HT_TOKENIZER_LOAD_CONFIG_H
#define HT_TOKENIZER_LOAD_CONFIG_H

#include "tokenizer/tokenizer.h"

/* Adds an added token; of several with one id the last counts. The id of a token in the vocabulary must match; a token
 * outside extends the vocabulary, whose index is then stale. */
ht_status ht_merge_added(ht_tokenizer *t, ht_added token, int32_t id, const char *text, size_t n, ht_error *err);

/* Reads bos_token, eos_token, added_tokens_decoder and chat_template. Ignores add_bos_token and add_eos_token:
 * tokenizer.json's post_processor decides, and they may contradict it. */
ht_status ht_load_tokenizer_config(ht_tokenizer *t, const char *config, size_t n, ht_error *err);

/* Reads the chat template from one JSON document (`name` for messages); keeps a template already loaded. */
ht_status ht_load_template(ht_tokenizer *t, const char *text, size_t n, const char *name, ht_error *err);

#endif
