/* Ids of prompts and of their continuations (hearth/prompt.h), checked against a model. */
#ifndef HT_GENERATE_PROMPT_IDS_H
#define HT_GENERATE_PROMPT_IDS_H

#include <hearth/prompt.h>

typedef struct ht_ids {
    int32_t *id;
    size_t n;
} ht_ids;

typedef struct ht_prompt_ids {
    ht_ids prompt;
    int64_t shared; /* tokens at its beginning that all continuations share */
    ht_ids *joined; /* [n_joined] prompt and continuation */
    size_t n_joined;
} ht_prompt_ids;

/* A rendered conversation; NULL: the prompt is none. */
typedef struct ht_prompt_text {
    char *text; /* the caller frees it */
    size_t n;
} ht_prompt_text;

/* HT_ERR_LIMIT for ids that do not fit the context, HT_ERR_ARGUMENT for none and for those outside the vocabulary. */
ht_status ht_prompt_check(const ht_model *m, const int32_t *id, size_t n, ht_error *err);
/* The ids of a prompt alone, of one or more; `flags` as of ht_chat_encode. `text` may be NULL. */
ht_status ht_prompt_encode(const ht_model *m, const ht_prompt *prompt, unsigned flags, ht_ids *out,
                           ht_prompt_text *text, ht_error *err);
/* The ids of a text. Those beyond the first `most` (0: no limit) are dropped, except the special ones that the
 * tokenizer adds at the end; *cut: there were any. */
ht_status ht_prompt_encode_cut(const ht_model *m, const char *text, int64_t most, ht_ids *out, bool *cut,
                               ht_error *err);
/* Tokens with which a text begins that begins with `prefix`: without special ones at the end. */
ht_status ht_prompt_count(const ht_model *m, const char *prefix, int64_t *out, ht_error *err);
/* With n continuations; each adds ids after the shared ones, and the last id need not fit. *out is empty on failure. */
ht_status ht_prompt_encode_all(const ht_model *m, const ht_prompt *prompt, const ht_continuation *continuations,
                               size_t n, ht_prompt_ids *out, ht_error *err);
void ht_prompt_ids_free(ht_prompt_ids *p);

#endif
