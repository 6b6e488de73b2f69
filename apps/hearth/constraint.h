/* Constraints on answers: the grammar that the options ask for. */
#ifndef HEARTH_APP_CONSTRAINT_H
#define HEARTH_APP_CONSTRAINT_H

#include "options.h"

#include <hearth/chat.h>
#include <hearth/grammar.h>

/* What is wrong with the options, as a sentence; NULL: nothing. */
const char *constraint_problem(const options *o);
/* *out is NULL when none is asked for; the caller frees it. */
ht_status constraint_open(const options *o, ht_model *m, ht_grammar **out, ht_error *err);
/* Lets the model call the tools of a conversation in the place of a text that a grammar holds, unless the conversation says what is to be
 * called. */
ht_status constraint_choose_tools(ht_chat *chat, ht_error *err);

#endif
