/* OpenAI's Responses interface: requests of items, answers of items, and the events by which they come. Nothing is kept: each request has
 * the whole conversation. */
#ifndef HT_SERVE_RESPONSES_RESPONSES_H
#define HT_SERVE_RESPONSES_RESPONSES_H

#include "serve/conversation.h"
#include "serve/generation.h"

/* Each answers a call, as a route runs it; both have one table of members, and shapes of their own for answers. */
bool serve_responses(serve_call *c);
bool serve_responses_input_tokens(serve_call *c);
extern const serve_field *const serve_responses_fields[];
/* What an answer gives back of a request. */

/* What a request says, translated: lists in the form of OpenAI's chat, and the conversation that lends them. */
typedef struct serve_responses_request {
    ht_json *messages, *tools; /* owned */
    serve_conversation conversation;
} serve_responses_request;

/* Its instructions and input as messages; false with a failure in the call. */
bool serve_responses_read_input(serve_call *c, serve_responses_request *r);
/* Its tools, and which of them may be called. */
bool serve_responses_read_tools(serve_call *c, serve_responses_request *r);

/* Whether a tool is a group of tools, {"type": "namespace", "name", "tools"}. (responses_namespaces.c) */
bool serve_is_namespace(const ht_json *tool);
/* The one name that a function of a namespace has in a prompt; the caller frees it. */
char *serve_namespace_join(const char *namespace, const char *name);
/* A tool of a namespace with that name. These are NULL when memory ran out; the caller gives it back. */
ht_json *serve_namespace_tool(const ht_json *namespace, const ht_json *tool);
/* The name, and *namespace, NULL for none, of the function that is called so; lent from the request's tools, or the name itself. */
const char *serve_namespace_split(const ht_json *tools, const char *joined, const char **namespace);

/* What is written of an answer: `extra` of its generation. */
typedef struct serve_responses_answer {
    bool seals_thoughts; /* items of reasoning have them sealed as well */
    ht_json *output;     /* items that are complete */
    /* Of a stream. */
    int64_t sequence;    /* of the next event */
    char item[SERVE_ID]; /* the item that is open */
    ht_text text;        /* of it, so far */
    ht_json *logprobs;   /* likewise; NULL: none */
} serve_responses_answer;

/* False, with a failure in the call, when memory ran out. */
bool serve_responses_answer_new(serve_generation *g);

typedef enum serve_response_status { SERVE_IN_PROGRESS, SERVE_COMPLETED, SERVE_INCOMPLETE } serve_response_status;
/* How an answer has ended. */
serve_response_status serve_response_status_of(const serve_answer *a);

/* Items and their parts. */
/* Text and logprobs are lent, and those that are NULL are empty. */
ht_json *serve_message_item(const char *id, serve_response_status status, const ht_text *text, const ht_json *logprobs);
ht_json *serve_reasoning_item(const serve_generation *g, const char *id, serve_response_status status,
                              const ht_text *thoughts);
ht_json *serve_call_item(const serve_generation *g, const char *id, serve_response_status status,
                         const serve_tool_call *call, bool with_arguments);
/* A part of a message; an empty list without logprobs. */
ht_json *serve_text_part(const ht_text *text, const ht_json *logprobs);

/* The whole, with the items of `output`; the failure NULL: none. */
ht_json *serve_response_json(const serve_generation *g, serve_response_status status, const serve_failure *failure);

extern const serve_dialect serve_responses_dialect;

#endif
