/* Builds conversations from --messages, --system, the prompt, --tools, --tool-choice, --set and --no-thinking,
 * and the grammars that constrain answers. */
#ifndef HEARTH_APP_CONVERSATION_H
#define HEARTH_APP_CONVERSATION_H

#include "options.h"

#include <hearth/chat.h>
#include <hearth/grammar.h>

/* Reads the prompt from the argument or standard input into fresh memory, without its final newline unless --raw is
 * given; "" when there is only --messages. */
ht_status prompt_read(const options *o, char **prompt, size_t *n, ht_error *err);
/* Builds the options' conversation; a non-empty prompt is its last message. The caller frees *out. */
ht_status conversation_of(const options *o, const char *prompt, ht_chat **out, ht_error *err);

/* A sentence about a conflict of --schema, --regex, --grammar, --tool-choice and --one-call; NULL: none. */
const char *constraint_problem(const options *o);
/* Compiles the requested grammar, or sets *out to NULL. The caller frees *out. */
ht_status constraint_open(const options *o, ht_model *m, ht_grammar **out, ht_error *err);
/* Allows tool calls as an alternative to grammar-constrained text, unless the conversation has a tool choice. */
ht_status constraint_choose_tools(ht_chat *chat, ht_error *err);

#endif
