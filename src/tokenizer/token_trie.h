/* Token trie: the bytes of all tokens of a vocabulary as a flat depth-first tree. One walk finds the tokens that a
 * grammar allows and skips every subtree with an invalid prefix. Immutable once made, shared by all threads.
 *
 * Plain tokens also have bit masks by length: only lower-case letters, only letters and digits, or no controls,
 * quotes and backslashes. Where a grammar accepts any such text, the masks replace the walk. */
#ifndef HT_TOKENIZER_TOKEN_TRIE_H
#define HT_TOKENIZER_TOKEN_TRIE_H

#include <hearth/tokenizer.h>

/* Maximum characters of a plain token. */
#define HT_PLAIN_MOST 32

/* Nodes in depth-first order: a subtree follows its root. */
typedef struct ht_trie_part {
    uint32_t n;
    uint8_t *byte;   /* [n] */
    uint16_t *depth; /* [n] from 0 */
    uint32_t *next;  /* [n] the node after its subtree */
    int32_t *token;  /* [n] that ends at the node, -1: none */
    uint16_t deepest;
} ht_trie_part;

/* Finds the node of a byte among siblings from `at` on; `end`, the node after their subtrees, when there is none. */
static inline uint32_t ht_trie_find(const ht_trie_part *p, uint32_t at, uint32_t end, uint8_t byte) {
    while (at < end && p->byte[at] != byte) at = p->next[at];
    return at;
}

/* Kinds of plain text; each includes the ones before it. */
typedef enum ht_plain_kind {
    HT_PLAIN_SMALL, /* a to z */
    HT_PLAIN_WORD,  /* letters and digits of ASCII */
    HT_PLAIN_ANY,   /* characters but controls, quotes and backslashes */
    HT_PLAIN_KINDS
} ht_plain_kind;

typedef struct ht_plain_tokens {
    uint32_t *mask;    /* [HT_PLAIN_MOST + 1, n_words] row i: tokens of at most i characters */
    ht_trie_part rest; /* all others */
} ht_plain_tokens;

typedef struct ht_token_trie {
    int32_t n_tokens;
    size_t n_words; /* of a mask, a bit for each token */
    ht_trie_part all;
    ht_plain_tokens plain[HT_PLAIN_KINDS];
    int32_t *same;      /* [n_tokens] another token with the same bytes, -1: none */
    bool has_same;      /* some token has another one */
    uint32_t *text_end; /* [n_tokens] end of each token's bytes in `text`; special tokens have none */
    char *text;
} ht_token_trie;

/* Leaves out the bytes of special tokens. The caller frees *out. */
ht_status ht_token_trie_new(const ht_tokenizer *t, ht_token_trie **out, ht_error *err);
void ht_token_trie_free(ht_token_trie *t); /* NULL is fine */
/* The narrowest kind of plain text with this ASCII character; HT_PLAIN_KINDS: it is not plain. */
static inline ht_plain_kind ht_plain_kind_of(unsigned char c) {
    if (c < 0x20 || c == 0x7F || c == '"' || c == '\\') return HT_PLAIN_KINDS;
    if (c >= 'a' && c <= 'z') return HT_PLAIN_SMALL;
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? HT_PLAIN_WORD : HT_PLAIN_ANY;
}
static inline const char *ht_token_trie_text(const ht_token_trie *t, int32_t token, size_t *n) {
    const uint32_t begin = token ? t->text_end[token - 1] : 0;
    *n = t->text_end[token] - begin;
    return t->text + begin;
}

#endif
