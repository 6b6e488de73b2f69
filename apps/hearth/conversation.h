/* Conversations of the command line: --messages, --system, the prompt, --tools, --tool-choice, --set and --no-thinking. */
#ifndef HEARTH_APP_CONVERSATION_H
#define HEARTH_APP_CONVERSATION_H

#include "options.h"

#include <hearth/chat.h>

/* The conversation that the options describe, with the prompt, unless it is empty, as the last message. The caller frees *out. */
ht_status conversation_of(const options *o, const char *prompt, ht_chat **out, ht_error *err);

#endif
