/* What OpenAI's chats share with text completions and with what describes chats alone. */
#ifndef HT_SERVE_OPENAI_OPENAI_H
#define HT_SERVE_OPENAI_OPENAI_H

#include "serve/conversation.h"
#include "serve/endpoints.h"

/* Reads what a chat of this form says, but for its sampling. */
bool serve_openai_read_conversation(serve_call *c, serve_conversation *k);

/* "stop", "length" or "tool_calls". */
const char *serve_openai_finish(const serve_answer *a);
/* {"prompt_tokens": ...}. */
ht_json *serve_openai_usage(serve_usage u);
/* The usage in an event of a stream that adds to an answer; NULL: none. */
ht_json *serve_openai_stream_usage(const serve_generation *g, const serve_answer *a);
/* Whether an answer is a stream, and whether stream_options asks for usage. */
extern const serve_field serve_openai_stream_fields[];

#endif
