/* Rules of answers: a thought before the text of a grammar, and text that is free up to a mark.
 *
 * An answer is one text: the marks of its parts are spelled, also where they are special tokens. */
#ifndef HT_CHAT_REASONING_RULES_H
#define HT_CHAT_REASONING_RULES_H

#include "chat/reasoning_formats.h"
#include "grammar/rules.h"

/* White space before a text, behind a thought or before one, at most. */
enum { HT_BLANKS_MOST = 16 };

/* Up to `most` spaces, tabs and ends of lines. */
ht_re ht_response_blanks(ht_regexes *re, uint32_t most);
/* Text up to a mark and with it. What stands before it has neither the mark nor one of the n_others in it, and is none of
 * `not_before`. */
ht_re ht_response_until(ht_regexes *re, const char *mark, const char *const *others, size_t n_others, ht_re not_before);

/* Every text that has none of the n texts in it, and is none of `others`. */
ht_re ht_response_without(ht_regexes *re, const char *const *texts, size_t n, ht_re others);

/* Adds the starts of answers to finished rules: their text, after a thought, if the model has any (`t` is NULL for none). In a
 * thought the text is free, and the answer does not end there. Finishes the rules. */
void ht_rules_add_reasoning(ht_rules *r, const ht_reasoning_format *t);

#endif
