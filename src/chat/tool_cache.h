/* Grammars of tools, kept with the model for the requests that come with the same ones. */
#ifndef HT_CHAT_TOOL_CACHE_H
#define HT_CHAT_TOOL_CACHE_H

#include "chat/conversation.h"
#include "grammar/grammar.h"

/* The grammar of the answers that a conversation's tools and its choice of them allow, NULL where they are free; given back by
 * ht_grammar_free before the model is freed. With `beside_text`, for HT_TOOL_CHOICE_AUTO, that of the answers that are calls; NULL where
 * none can be. Compiled when it is first asked for; the model keeps the latest few. */
ht_status ht_tool_cache_find(ht_model *m, const ht_chat *chat, bool beside_text, ht_grammar **out, ht_error *err);

#endif
