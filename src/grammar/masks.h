/* Token masks: which tokens may follow a text of a grammar, as a bit for each.
 *
 * Within a lexeme a token depends on the state of the lexer alone. For each state a mask is found once, with the nodes of the trie where
 * a lexeme ends and tokens go on; only there rows matter. Masks are kept by configuration. Belongs to one thread at a time. */
#ifndef HT_GRAMMAR_MASKS_H
#define HT_GRAMMAR_MASKS_H

#include "grammar/automaton.h"
#include "tokenizer/token_trie.h"

typedef struct ht_masks ht_masks;

/* A special token that is allowed where its text is. */
typedef struct ht_spelled_token {
    int32_t token;
    const char *text; /* lent; never empty */
} ht_spelled_token;

/* All three have to live as long as *out, which the caller frees. The n tokens of `ending` end a text. */
ht_status ht_masks_new(ht_automaton *a, const ht_token_trie *trie, const int32_t *ending, int n, ht_masks **out,
                       ht_error *err);
void ht_masks_free(ht_masks *m); /* NULL is fine */
/* Before the first mask: n special tokens that are spelled, lent. Others have no text. */
void ht_masks_spell(ht_masks *m, const ht_spelled_token *spelled, int n);
/* The text of a token; *n is 0 for one that has none. */
const char *ht_masks_text(const ht_masks *m, int32_t token, size_t *n);
/* Whether a special token that is spelled has a text that begins with the byte. */
bool ht_masks_spells(const ht_masks *m, char first);
/* The mask after a configuration, into bits [trie->n_words]. NULL: it is found and kept for whoever asks next. */
ht_status ht_masks_of(ht_masks *m, uint32_t configuration, uint32_t *bits, ht_error *err);
/* Whether that mask was found before. */
bool ht_masks_has(const ht_masks *m, uint32_t configuration);
/* Forgets all masks; with ht_automaton_reset. */
void ht_masks_reset(ht_masks *m);
size_t ht_masks_bytes(const ht_masks *m);

#endif
