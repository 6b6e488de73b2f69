/* tokenizer_config.json: its additions to a tokenizer.json. */
#ifndef HT_TOKENIZER_LOAD_CONFIG_H
#define HT_TOKENIZER_LOAD_CONFIG_H

#include "tokenizer/tokenizer.h"

/* An added token as a file lists it: token.text and n_text are lent, token.id is the listed id. */
typedef struct ht_listed_tokens {
    ht_added *token;
    size_t n;
} ht_listed_tokens;

ht_status ht_list_added(ht_listed_tokens *list, ht_added token, const char *text, size_t n, ht_error *err);
void ht_listed_tokens_free(ht_listed_tokens *list);

/* Adds the tokens in order, with the ids of the `tokenizers` library, which ignores the listed ones. A text in the
 * vocabulary keeps its id. Others get consecutive ids from the number of tokens on, which closes gaps. The last entry
 * of a repeated text sets the flags. The vocabulary's index becomes stale. `file`: for the warning about ids that
 * differ from the listed ones. */
ht_status ht_merge_added(ht_tokenizer *t, const ht_listed_tokens *list, const char *file, ht_error *err);

/* Reads bos_token, eos_token, added_tokens_decoder and chat_template. Ignores add_bos_token and add_eos_token, but for
 * t->may_add_bos: tokenizer.json's post_processor decides, and they may contradict it. */
ht_status ht_load_tokenizer_config(ht_tokenizer *t, const char *config, size_t n, ht_error *err);

/* Reads the chat templates from one JSON document (`name` for messages); keeps those already loaded. */
ht_status ht_load_template(ht_tokenizer *t, const char *text, size_t n, const char *name, ht_error *err);

#endif
