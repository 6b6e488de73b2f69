/* Token trie: the bytes of all tokens of a vocabulary as a tree, laid out flat and depth first, so that the tokens that a
 * grammar allows are found by one walk that leaves out what begins wrongly. Immutable once made, shared by all threads.
 *
 * Tokens that are plain text, characters but controls, quotes and backslashes, are kept as masks by their number of
 * characters as well: where a grammar takes any of them, they need not be walked. */
#ifndef HT_TOKENIZER_TOKEN_TRIE_H
#define HT_TOKENIZER_TOKEN_TRIE_H

#include <hearth/tokenizer.h>

/* Characters of a plain token at most; longer ones are with the rest. */
#define HT_PLAIN_MOST 32

/* Nodes in depth-first order, children behind their parent. */
typedef struct ht_trie_part {
    uint32_t n;
    uint8_t *byte;   /* [n] */
    uint16_t *depth; /* [n] from 0 */
    uint32_t *next;  /* [n] the node behind the last one below it */
    int32_t *token;  /* [n] that ends at the node, -1: none */
    uint16_t deepest;
} ht_trie_part;

typedef struct ht_token_trie {
    int32_t n_tokens;
    size_t n_words;         /* of a mask, a bit for each token */
    ht_trie_part all, rest; /* rest: tokens that are in no mask of plain ones */
    int32_t *same;          /* [n_tokens] another token with the same bytes, -1: none */
    uint32_t *plain;        /* [HT_PLAIN_MOST + 1, n_words] plain tokens of at most so many characters */
    uint32_t *text_end;     /* [n_tokens] of each token's bytes in `text`; tokens that are no text have none */
    char *text;
} ht_token_trie;

/* Special tokens are no text. The caller frees *out. */
ht_status ht_token_trie_new(const ht_tokenizer *t, ht_token_trie **out, ht_error *err);
void ht_token_trie_free(ht_token_trie *t); /* NULL is fine */
static inline const char *ht_token_trie_text(const ht_token_trie *t, int32_t token, size_t *n) {
    const uint32_t begin = token ? t->text_end[token - 1] : 0;
    *n = t->text_end[token] - begin;
    return t->text + begin;
}

#endif
