/* Grammars as the library's own code makes them. */
#ifndef HT_GRAMMAR_GRAMMAR_H
#define HT_GRAMMAR_GRAMMAR_H

#include "grammar/rules.h"
#include "tokenizer/token_trie.h"

#include <hearth/grammar.h>

/* A grammar of finished rules, which it takes over, and frees on failure as well. Tokens of `ending` end a text. `holds` is
 * retained and may be NULL; the trie has to live as long as the grammar. */
ht_status ht_grammar_new(ht_rules *rules, const ht_token_trie *trie, const int32_t *ending, int n_ending,
                         ht_model *holds, ht_grammar **out, ht_error *err);
/* Allows special tokens where their texts are, if these occur in `texts`. Before the first matcher; the tokenizer is borrowed. */
ht_status ht_grammar_spell(ht_grammar *g, const ht_tokenizer *t, const char *texts, ht_error *err);
/* A matcher of a text that begins elsewhere. */
ht_status ht_matcher_new_at(ht_grammar *g, ht_grammar_start start, ht_matcher **out, ht_error *err);
/* The bytes with which every text goes on, at most `most`; *n may be 0. They end where a spelled special token may come. */
ht_status ht_matcher_forced(ht_matcher *m, char *bytes, size_t most, size_t *n, ht_error *err);

enum { HT_MASK_PLACES_MOST = 16 };

/* Places in texts of which the masks are not known yet. */
typedef struct ht_mask_places {
    ht_grammar *g;                               /* lent */
    uint64_t generation;                         /* how often the grammar has forgotten everything */
    uint32_t configuration[HT_MASK_PLACES_MOST]; /* [n] */
    int n;
} ht_mask_places;

/* The places after the matcher's text and after each of n tokens that may follow, as far as allowed. Failures show in masks. */
void ht_matcher_missing(ht_matcher *m, const int32_t *token, int n, ht_mask_places *out);
/* Finds the mask of place i ahead of its request. Any thread may call it while the grammar is held. */
void ht_grammar_find_mask(const ht_mask_places *places, int i);

/* Whether it was compiled for the model. */
bool ht_grammar_is_for(const ht_grammar *g, const ht_model *m);
/* Words of its masks. */
size_t ht_grammar_mask_words(const ht_grammar *g);
/* Bytes that it may learn about texts before it forgets all of them. */
void ht_grammar_set_budget(ht_grammar *g, size_t bytes);

/* ---- answers: the text of one grammar, or else tool calls of another ---- */

/* Both are matched in parallel until a token excludes one of them, so that each grammar is compiled once. A text that begins as a call is
 * a call. This is exact: every prefix of such a beginning is a prefix of a call. Belongs to one thread at a time. */
typedef struct ht_answer_matcher ht_answer_matcher;

/* A matcher from `start` of both grammars, which it holds. `calls` is of `beside_text` (chat/response_rules.h), or NULL: text alone. */
ht_status ht_answer_matcher_new(ht_grammar *text, ht_grammar *calls, ht_grammar_start start, ht_answer_matcher **out,
                                ht_error *err);
void ht_answer_matcher_free(ht_answer_matcher *m); /* NULL is fine */
/* The following are as those of ht_matcher. */
ht_status ht_answer_matcher_mask(ht_answer_matcher *m, const uint32_t **mask, ht_error *err);
ht_status ht_answer_matcher_accept(ht_answer_matcher *m, int32_t token, bool *allowed, ht_error *err);
ht_status ht_answer_matcher_ending(ht_answer_matcher *m, ht_ending *ending, ht_error *err);
size_t ht_answer_matcher_length(const ht_answer_matcher *m);
/* Takes back all tokens but the first n; nothing when there are fewer. */
void ht_answer_matcher_truncate(ht_answer_matcher *m, size_t n);
/* The text that every answer goes on with, or the beginning of it; as ht_matcher_forced. */
ht_status ht_answer_matcher_forced(ht_answer_matcher *m, char *bytes, size_t most, size_t *n, ht_error *err);

/* Places whose masks the answer needs, in the texts of each of its alternatives. */
enum { HT_ANSWER_TEXTS = 3 };
typedef struct ht_answer_places {
    ht_mask_places of[HT_ANSWER_TEXTS]; /* [n] */
    int n;
} ht_answer_places;
/* As ht_matcher_missing. */
void ht_answer_matcher_missing(ht_answer_matcher *m, const int32_t *token, int n, ht_answer_places *out);
/* Whether the first n tokens have decided that the answer is text, which it might not have been. */
bool ht_answer_matcher_is_text(const ht_answer_matcher *m, size_t n);

#endif
