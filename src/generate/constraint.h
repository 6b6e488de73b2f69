/* Constraint of an answer: the grammars that its tokens keep to, and where in them the answer begins. */
#ifndef HT_GENERATE_CONSTRAINT_H
#define HT_GENERATE_CONSTRAINT_H

#include "grammar/grammar.h"

#include <hearth/generate.h>

typedef struct ht_constraint {
    ht_grammar *grammar; /* NULL: the answer is free */
    ht_grammar *calls;   /* those that may be made in the place of a text of `grammar`; NULL: none */
    ht_grammar_start start;
    bool no_calls;   /* what reads as a call is text */
    bool only_calls; /* the answer has no text */
} ht_constraint;

/* That of an answer to a conversation, whose prompt is n bytes of text. *out is empty after a failure; ht_constraint_free
 * frees it. */
ht_status ht_constraint_of_chat(ht_model *m, const ht_chat *chat, const ht_generate_options *options,
                                const char *prompt, size_t n, ht_constraint *out, ht_error *err);
void ht_constraint_free(ht_constraint *c);

#endif
