/* Internal interface of grammars. */
#ifndef HT_GRAMMAR_GRAMMAR_H
#define HT_GRAMMAR_GRAMMAR_H

#include "grammar/rules.h"
#include "tokenizer/token_trie.h"

#include <hearth/grammar.h>

/* Creates a grammar from finished rules, and takes ownership of them even on failure. Tokens of `ending` end a text.
 * `holds` is retained and may be NULL; the trie must outlive the grammar. */
ht_status ht_grammar_new(ht_rules *rules, const ht_token_trie *trie, const int32_t *ending, int n_ending,
                         ht_model *holds, ht_grammar **out, ht_error *err);
/* Allows special tokens in place of their texts, if these occur in `texts`. Call it before the first matcher. */
ht_status ht_grammar_spell(ht_grammar *g, const ht_tokenizer *t, const char *texts, ht_error *err);
/* Creates a matcher of texts that begin at `start`. */
ht_status ht_matcher_new_at(ht_grammar *g, ht_grammar_start start, ht_matcher **out, ht_error *err);
/* Writes the bytes that continue every text, at most `most`. They stop before the text of a spelled token. */
ht_status ht_matcher_forced(ht_matcher *m, char *bytes, size_t most, size_t *n, ht_error *err);

enum { HT_MASK_PLACES_MOST = 16 };

/* Positions in texts whose masks have not been computed. */
typedef struct ht_mask_places {
    ht_grammar *g;                               /* borrowed */
    uint64_t generation;                         /* of the grammar when they were found */
    uint32_t configuration[HT_MASK_PLACES_MOST]; /* [n] */
    int n;
} ht_mask_places;

/* Finds the positions after the text and after each of n tokens, as far as allowed. Failures show in masks. */
void ht_matcher_missing(ht_matcher *m, const int32_t *token, int n, ht_mask_places *out);
/* Computes the mask of position i in advance. Any thread may call it while the grammar is held. */
void ht_grammar_find_mask(const ht_mask_places *places, int i);

/* Whether it was compiled for the model. */
bool ht_grammar_is_for(const ht_grammar *g, const ht_model *m);
/* Number of words in a mask. */
size_t ht_grammar_mask_words(const ht_grammar *g);
/* Sets the bytes of memory beyond which the grammar discards its automaton and masks. */
void ht_grammar_set_budget(ht_grammar *g, size_t bytes);

/* ---- answers: the text of one grammar, or else tool calls of another ---- */

/* Both are matched in parallel until a token excludes one of them, so that each grammar is compiled once. A text that begins as a call is
 * a call. This is exact: every prefix of such a beginning is a prefix of a call. Belongs to one thread at a time. */
typedef struct ht_answer_matcher ht_answer_matcher;

/* Creates a matcher of both grammars. `calls` is of `beside_text` (chat/response_rules.h), or NULL: text alone. */
ht_status ht_answer_matcher_new(ht_grammar *text, ht_grammar *calls, ht_grammar_start start, ht_answer_matcher **out,
                                ht_error *err);
void ht_answer_matcher_free(ht_answer_matcher *m); /* NULL is fine */
/* The following correspond to those of ht_matcher. */
ht_status ht_answer_matcher_mask(ht_answer_matcher *m, const uint32_t **mask, ht_error *err);
ht_status ht_answer_matcher_accept(ht_answer_matcher *m, int32_t token, bool *allowed, ht_error *err);
ht_status ht_answer_matcher_ending(ht_answer_matcher *m, ht_ending *ending, ht_error *err);
size_t ht_answer_matcher_length(const ht_answer_matcher *m);
/* Removes all tokens but the first n. */
void ht_answer_matcher_truncate(ht_answer_matcher *m, size_t n);
/* The bytes that continue every answer, or the first of them; as ht_matcher_forced. */
ht_status ht_answer_matcher_forced(ht_answer_matcher *m, char *bytes, size_t most, size_t *n, ht_error *err);

/* Positions whose masks the answer needs, for each of its alternatives. */
enum { HT_ANSWER_TEXTS = 3 };
typedef struct ht_answer_places {
    ht_mask_places of[HT_ANSWER_TEXTS]; /* [n] */
    int n;
} ht_answer_places;
/* As ht_matcher_missing. */
void ht_answer_matcher_missing(ht_answer_matcher *m, const int32_t *token, int n, ht_answer_places *out);
/* Whether the first n tokens have excluded tool calls that were possible before. */
bool ht_answer_matcher_is_text(const ht_answer_matcher *m, size_t n);

#endif
