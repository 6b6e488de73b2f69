/* Grammar rules of answers: reasoning before the text of a grammar, and free text up to a mark. An answer is one text: marks are
 * spelled, also where they are special tokens. */
#ifndef HT_CHAT_REASONING_RULES_H
#define HT_CHAT_REASONING_RULES_H

#include "chat/reasoning_formats.h"
#include "grammar/rules.h"

/* White space around reasoning, at most. */
enum { HT_BLANKS_MOST = 16 };

/* Up to `most` spaces, tabs and ends of lines. */
ht_re ht_response_blanks(ht_regexes *re, uint32_t most);
/* Text up to a mark and with it. Before it neither the mark nor one of the n_others occurs, and the text is none of `not_before`. */
ht_re ht_response_until(ht_regexes *re, const char *mark, const char *const *others, size_t n_others, ht_re not_before);

/* Every text that contains none of the n texts and is none of `others`. */
ht_re ht_response_without(ht_regexes *re, const char *const *texts, size_t n, ht_re others);

/* Adds starts of answers with reasoning to finished rules (none for `t` NULL), and finishes them. Reasoning is free text, within which
 * no answer ends. */
void ht_rules_add_reasoning(ht_rules *r, const ht_reasoning_format *t);

#endif
