/* A text as ids for windows that are computed one by one: encoded as a whole, without the BOS that every window begins with where the
 * checkpoint puts one before a text. */
#ifndef HT_ANALYSIS_WINDOW_TEXT_H
#define HT_ANALYSIS_WINDOW_TEXT_H

#include "models/model.h"

typedef struct ht_window_text {
    int32_t bos;        /* in front of each window; -1: none */
    const int32_t *ids; /* [n], without BOS at the beginning, even where the text has it written */
    size_t n;
    int32_t *encoded; /* what the tokenizer gave */
} ht_window_text;

/* Encodes n bytes of UTF-8; special tokens written in the text are recognised. HT_ERR_UNSUPPORTED without a tokenizer. To be freed
 * after a failure, too. */
ht_status ht_window_text_encode(const ht_model *m, const char *text, size_t n, ht_window_text *out, ht_error *err);
void ht_window_text_free(ht_window_text *t);

#endif
