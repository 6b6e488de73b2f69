/* Anthropic's interface: messages, whole and as streams, and what they would cost in tokens, as its own clients send and read them. */
#ifndef HT_SERVE_ANTHROPIC_ANTHROPIC_H
#define HT_SERVE_ANTHROPIC_ANTHROPIC_H

#include "serve/conversation.h"
#include "serve/generation.h"

/* Each answers a call, as a route runs it, with its tables of members. */
bool serve_anthropic_messages(serve_call *c);
bool serve_anthropic_count_tokens(serve_call *c);
extern const serve_field *const serve_anthropic_fields[], *const serve_anthropic_count_fields[];

/* What a request says, translated: lists in OpenAI's form, and the conversation that lends them. */
typedef struct serve_anthropic_request {
    ht_json *messages, *tools; /* owned */
    ht_json *referred;         /* tools by their names that results refer to, in that order; NULL: none */
    serve_conversation conversation;
    bool hides_thoughts; /* thinking blocks are to be empty */
} serve_anthropic_request;

/* Reads its messages; false with a failure in the call. */
bool serve_anthropic_read_messages(serve_call *c, serve_anthropic_request *r);

/* A result that refers to a tool: what the model reads of it goes to *text. A tool that has waited for this goes to *referred. False: memory
 * ran out. (anthropic_tools.c) */
bool serve_anthropic_refer(const ht_json *tools, const char *name, ht_json **referred, ht_text *text);
/* The tools of a request that are in its prompt: those that do not wait as they come, then those that are referred to, so that a prompt goes
 * on as far as it can as the one before. NULL when memory ran out; the caller gives it back. */
ht_json *serve_anthropic_loaded_tools(const ht_json *tools, ht_json *referred);

/* How answers are written. `extra` of the generation is a serve_anthropic_answer. */
typedef struct serve_anthropic_answer {
    bool hides_thoughts;
    ht_text hidden; /* of a stream's block that is open */
} serve_anthropic_answer;
extern const serve_dialect serve_anthropic_dialect;

#endif
