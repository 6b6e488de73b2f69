/* Tokenizers of tests, which fail where one cannot be read, and the small vocabularies of tests/golden/tokenizer. */
#ifndef TESTS_SUPPORT_TOKENIZERS_H
#define TESTS_SUPPORT_TOKENIZERS_H

#include "formats/json.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"

ht_tokenizer *tokenizer_load(const char *path);
ht_tokenizer *tokenizer_of(const char *json);
/* The caller frees them. */
int32_t *tokenizer_ids(const ht_tokenizer *t, const char *text, size_t n, unsigned flags, size_t *n_ids);

/* synthetic.json, as a group's setup and teardown. */
int tokenizer_cases_open(void **state);
int tokenizer_cases_close(void **state);
const ht_json *tokenizer_cases(void);
const char *tokenizer_case_name(const ht_json *c);
/* The case's tokenizer.json: its stages with the vocabulary and merges of its base. */
ht_json *tokenizer_document(const ht_json *c);
/* Takes the document. */
ht_tokenizer *tokenizer_of_document(ht_json *document);
ht_tokenizer *tokenizer_named(const char *name);

#endif
