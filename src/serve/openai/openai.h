/* OpenAI's interface: chat and text completions, embeddings, models; requests and events as its own clients send and read them. */
#ifndef HT_SERVE_OPENAI_OPENAI_H
#define HT_SERVE_OPENAI_OPENAI_H

#include "serve/conversation.h"
#include "serve/generation.h"

/* Each answers a call, as a route runs it, with its tables of members. */
bool serve_openai_chat(serve_call *c);
extern const serve_field *const serve_openai_chat_fields[];
bool serve_openai_completions(serve_call *c);
extern const serve_field *const serve_openai_completions_fields[];
bool serve_openai_embeddings(serve_call *c);
extern const serve_field *const serve_openai_embeddings_fields[];
bool serve_openai_models(serve_call *c);
bool serve_openai_model(serve_call *c);

/* Reads what a chat of this form says, but for its sampling; shared with what describes chats alone. */
bool serve_openai_read_conversation(serve_call *c, serve_conversation *k);

/* "stop", "length" or "tool_calls". */
const char *serve_openai_finish(const serve_answer *a);
/* {"prompt_tokens": ...}. */
ht_json *serve_openai_usage(serve_usage u);
/* The data of the event that ends a stream. */
#define SERVE_OPENAI_DONE "[DONE]"
/* Whether an answer is a stream, and whether stream_options asks for usage. */
extern const serve_field serve_openai_stream_fields[];
void serve_openai_read_stream(serve_generation *g, const ht_json *body);

#endif
