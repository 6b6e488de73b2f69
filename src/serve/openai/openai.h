/* Functions that OpenAI's chats share with text completions and other endpoints for chats. */
#ifndef HT_SERVE_OPENAI_OPENAI_H
#define HT_SERVE_OPENAI_OPENAI_H

#include "serve/conversation.h"
#include "serve/endpoints.h"

/* Reads a chat's conversation, without its sampling options. */
bool serve_openai_read_conversation(serve_call *c, serve_conversation *k);

/* "stop", "length" or "tool_calls". */
const char *serve_openai_finish(const serve_answer *a);
/* {"prompt_tokens": ...}. */
ht_json *serve_openai_usage(serve_usage u);
/* The usage for a stream event that adds to an answer; NULL: none. */
ht_json *serve_openai_stream_usage(const serve_generation *g, const serve_answer *a);
/* The fields "stream" and "stream_options". */
extern const serve_field serve_openai_stream_fields[];

#endif
