/* Loading of a tokenizer.json into a tokenizer: the state, and fields with errors that name the stage. */
#ifndef HT_TOKENIZER_LOAD_JSON_H
#define HT_TOKENIZER_LOAD_JSON_H

#include "base/error.h"
#include "formats/json.h"
#include "tokenizer/tokenizer.h"

typedef struct ht_loader {
    ht_tokenizer *t;
    ht_status status; /* sticky error */
    ht_error *err;
    const char *stage; /* for messages */
    ht_bytes charsmap; /* of a Precompiled step that does not have its own */
    bool seen;         /* post_processor: the text of `single` was read */
    bool fused;        /* decoder: a Fuse step was read */
    int decoder_rank;  /* decoder: rank of the last step; must not decrease */
} ht_loader;

#define FAIL(l, ...) ((void)((l)->status ? (l)->status : ((l)->status = ht_fail((l)->err, __VA_ARGS__))))

/* load_stages.c: normalizer, pre_tokenizer, post_processor and decoder of a document. */
void ht_load_document_stages(ht_loader *l, const ht_json *root);
/* Checks that the vocabulary has the ids of the post_processor. */
void ht_check_ends(ht_loader *l);

bool ht_get_bool(ht_loader *l, const ht_json *step, const char *key, bool otherwise);
/* A string field, borrowed; *n is its length. */
const char *ht_get_text(ht_loader *l, const ht_json *step, const char *key, size_t *n);
/* A copy of a text, or of a string field. */
char *ht_copy_for(ht_loader *l, const char *text, size_t n);
char *ht_copy_field(ht_loader *l, const ht_json *step, const char *key, size_t *n);
static inline bool ht_is_absent(const ht_json *value) { return !value || ht_json_is_null(value); }

#endif
