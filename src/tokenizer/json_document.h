/* A tokenizer.json, scanned: vocabulary and merges, nearly all of the file, go into flat tables, the rest into a
 * JSON document. */
#ifndef HT_TOKENIZER_JSON_DOCUMENT_H
#define HT_TOKENIZER_JSON_DOCUMENT_H

#include "base/text.h"
#include "formats/json.h"
#include "tokenizer/vocab.h"

typedef struct ht_listed_merge { /* text[begin, begin + n_left + n_right): left and right, adjacent */
    size_t begin;
    uint32_t n_left, n_right;
} ht_listed_merge;

typedef struct ht_json_document {
    ht_json *root; /* the document without model.vocab and model.merges */
    bool has_vocab, has_merges;
    ht_text merge_text;
    ht_listed_merge *merges;
    size_t n_merges, merge_capacity;
} ht_json_document;

/* Fills `vocab` (without its index) from model.vocab. has_vocab is false when model.vocab is not an object of integers,
 * as in Unigram models. */
ht_status ht_json_document_parse(const char *json, size_t n, ht_json_document *out, ht_vocab *vocab, ht_error *err);
void ht_json_document_free(ht_json_document *d);

#endif
