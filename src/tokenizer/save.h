/* Writing of a loaded tokenizer: as a tokenizer.json, and as GGUF metadata. A stage that the format cannot express
 * is an error, never omitted. */
#ifndef HT_TOKENIZER_SAVE_H
#define HT_TOKENIZER_SAVE_H

#include "formats/json.h"
#include "tokenizer/tokenizer.h"

/* save_json.c: the text of a tokenizer.json that loads as this tokenizer, which the caller frees. Fillers of a GGUF are left
 * out. Two tokens with one text are an error, as its vocabulary is an object of texts. */
ht_status ht_tokenizer_save_json(const ht_tokenizer *t, char **text, ht_error *err);

/* The stages alone, as an object; NULL when out of memory. `charsmaps`: with the character maps of Precompiled steps. */
ht_json *ht_tokenizer_stages(const ht_tokenizer *t, bool charsmaps);

/* save_gguf.c: sets all tokenizer.ggml keys but the ids of special tokens in `metadata`, whose form is that of ht_gguf_write.
 * n_rows: rows of the embedding, each of which needs a token; ids without one become fillers [PAD<id>].
 * list_merges: a SentencePiece vocabulary is written with its merges (tokenizer.ggml.model gemma4), even when scores could
 * express them (llama). */
ht_status ht_tokenizer_save_gguf(const ht_tokenizer *t, int64_t n_rows, bool list_merges, ht_json *metadata,
                                 ht_error *err);

/* ---- merges (save_merges.c) ---- */

typedef struct ht_merge_pair {
    int32_t left, right, product;
} ht_merge_pair;

/* All merges by rank; the caller frees *out. For scored tokens: every cut of a token into two tokens, the longest left part
 * first, in the order of the tokens. */
ht_status ht_tokenizer_list_merges(const ht_tokenizer *t, ht_merge_pair **out, size_t *n, ht_error *err);

/* Whether scored merging gives the same results as the listed merges: any two tokens whose concatenation is a token
 * merge, by its rank. *order [vocab.n] then holds the rank of each merged token, -1 for others; the caller frees it.
 * *why is the reason why not, static, or NULL. */
ht_status ht_tokenizer_score_merges(const ht_tokenizer *t, int32_t **order, const char **why, ht_error *err);

#endif
