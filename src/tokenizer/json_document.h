/* A tokenizer.json, parsed: the vocabulary and the merges, which are nearly all of the file, go straight into flat
 * tables; the rest becomes an ordinary document. */
#ifndef HT_TOKENIZER_JSON_DOCUMENT_H
#define HT_TOKENIZER_JSON_DOCUMENT_H

#include "base/text.h"
#include "tokenizer/vocab.h"

#include <jansson.h>

typedef struct ht_listed_merge { /* text[begin, begin + n_left + n_right): both sides, nothing between */
    size_t begin;
    uint32_t n_left, n_right;
} ht_listed_merge;

typedef struct ht_json_document {
    json_t *root; /* without model.vocab and model.merges */
    bool has_vocab, has_merges;
    ht_text merge_text;
    ht_listed_merge *merges;
    size_t n_merges, merge_capacity;
} ht_json_document;

/* Fills `vocab` (without an index) from model.vocab. A model.vocab that is not an object of numbers, as Unigram models
 * have, leaves has_vocab false. */
ht_status ht_json_document_parse(const char *json, size_t n, ht_json_document *out, ht_vocab *vocab, ht_error *err);
void ht_json_document_free(ht_json_document *d);

#endif
