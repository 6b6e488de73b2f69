/* Token masks: a bit for each token that may follow a text of a grammar.
 *
 * Within a lexeme, only the lexer state decides about a token. The mask of a state is computed once, with the trie
 * nodes where a lexeme ends and tokens continue; only there rows matter. Masks are cached. One thread at a time. */
#ifndef HT_GRAMMAR_MASKS_H
#define HT_GRAMMAR_MASKS_H

#include "grammar/automaton.h"
#include "tokenizer/token_trie.h"

typedef struct ht_masks ht_masks;

/* A special token that is allowed in place of its text. */
typedef struct ht_spelled_token {
    int32_t token;
    const char *text; /* borrowed; never empty */
} ht_spelled_token;

/* The first three arguments must outlive *out, which the caller frees. The n tokens of `ending` end a text. */
ht_status ht_masks_new(ht_automaton *a, const ht_token_trie *trie, const int32_t *ending, int n, ht_masks **out,
                       ht_error *err);
void ht_masks_free(ht_masks *m); /* NULL is fine */
/* Sets n borrowed special tokens that are spelled; others have no text. Call it before the first mask. */
void ht_masks_spell(ht_masks *m, const ht_spelled_token *spelled, int n);
/* The text of a token; *n is 0 for one that has none. */
const char *ht_masks_text(const ht_masks *m, int32_t token, size_t *n);
/* Whether the text of a spelled token begins with the byte. */
bool ht_masks_spells(const ht_masks *m, char first);
/* The mask after a configuration, into bits [trie->n_words]. NULL: it is only computed and cached. */
ht_status ht_masks_of(ht_masks *m, uint32_t configuration, uint32_t *bits, ht_error *err);
/* Whether that mask is cached. */
bool ht_masks_has(const ht_masks *m, uint32_t configuration);
/* Discards all masks. Call it with ht_automaton_reset. */
void ht_masks_reset(ht_masks *m);
size_t ht_masks_bytes(const ht_masks *m);

#endif
