/* tokenizer_config.json: its additions to a tokenizer.json. */
#ifndef HT_TOKENIZER_LOAD_CONFIG_H
#define HT_TOKENIZER_LOAD_CONFIG_H

#include "tokenizer/tokenizer.h"

/* Adds an added token; of two with one id the later counts. A token that the vocabulary knows must have the
 * vocabulary's id; one it does not know enlarges the vocabulary (whose index is then stale). */
ht_status ht_merge_added(ht_tokenizer *t, ht_added token, int32_t id, const char *text, size_t n, ht_error *err);

/* Reads bos_token, eos_token, added_tokens_decoder and chat_template. Not add_bos_token and add_eos_token: what is put around
 * a text is said by tokenizer.json's post_processor, and these may say otherwise. */
ht_status ht_load_tokenizer_config(ht_tokenizer *t, const char *config, size_t n, ht_error *err);

/* The chat template alone, as a member of a JSON document (`name` for messages); a tokenizer that has one keeps it. */
ht_status ht_load_template(ht_tokenizer *t, const char *text, size_t n, const char *name, ht_error *err);

#endif
