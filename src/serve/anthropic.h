/* Anthropic's interface: messages, whole and as streams, and what they would cost in tokens, as its own clients send and read them. */
#ifndef HT_SERVE_ANTHROPIC_H
#define HT_SERVE_ANTHROPIC_H

#include "serve/conversation.h"
#include "serve/generation.h"

/* Each answers a call, as a route runs it, with its tables of members. */
bool serve_anthropic_messages(serve_call *c);
bool serve_anthropic_count_tokens(serve_call *c);
extern const serve_field *const serve_anthropic_fields[], *const serve_anthropic_count_fields[];

/* What a request says, translated: lists in OpenAI's form, and the conversation that lends them. */
typedef struct serve_anthropic_request {
    json_t *messages, *tools; /* owned */
    serve_conversation conversation;
    bool hides_thoughts; /* thinking blocks are to be empty */
} serve_anthropic_request;

/* Zero-initialised before. False with a failure in the call; to be freed in any case. */
bool serve_anthropic_read(serve_call *c, serve_anthropic_request *r);
void serve_anthropic_free(serve_anthropic_request *r);
/* Its messages alone. */
bool serve_anthropic_read_messages(serve_call *c, serve_anthropic_request *r);

/* How answers are written. `extra` of the generation is a serve_anthropic_answer. */
typedef struct serve_anthropic_answer {
    bool hides_thoughts;
    ht_text hidden; /* of a stream's block that is open */
} serve_anthropic_answer;
extern const serve_dialect serve_anthropic_dialect;

#endif
