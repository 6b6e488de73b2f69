/* Matcher of an answer: the text of one grammar, or else tool calls of another.
 *
 * Both are matched in parallel until a token excludes one of them, so that each grammar is compiled once. A text that begins as a call is
 * a call. This is exact: every prefix of such a beginning is a prefix of a call. Belongs to one thread at a time. */
#ifndef HT_GRAMMAR_ANSWER_MATCHER_H
#define HT_GRAMMAR_ANSWER_MATCHER_H

#include "grammar/grammar.h"

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
