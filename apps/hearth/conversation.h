/* Conversations of the command line: --messages, --system, the prompt, --tools, --tool-choice, --set and --no-thinking; and the grammars that
 * constrain answers. */
#ifndef HEARTH_APP_CONVERSATION_H
#define HEARTH_APP_CONVERSATION_H

#include "options.h"

#include <hearth/chat.h>
#include <hearth/grammar.h>

/* The prompt, in fresh memory: the argument or standard input, without the final newline except with --raw; "" after --messages alone. */
ht_status prompt_read(const options *o, char **prompt, size_t *n, ht_error *err);
/* The conversation that the options describe, with the prompt, unless it is empty, as the last message. The caller frees *out. */
ht_status conversation_of(const options *o, const char *prompt, ht_chat **out, ht_error *err);

/* What is wrong with --schema, --regex, --grammar, --tool-choice and --one-call, as a sentence; NULL: nothing. */
const char *constraint_problem(const options *o);
/* *out is NULL when no grammar is asked for; the caller frees it. */
ht_status constraint_open(const options *o, ht_model *m, ht_grammar **out, ht_error *err);
/* Lets the model call the tools of a conversation instead of writing text that a grammar constrains, unless the conversation has a tool choice. */
ht_status constraint_choose_tools(ht_chat *chat, ht_error *err);

#endif
