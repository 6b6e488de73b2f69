/* Conversations of requests and the constraints on their answers. Other dialects are translated into OpenAI's messages
 * and tools; schemas and grammars constrain answers. */
#ifndef HT_SERVE_CONVERSATION_H
#define HT_SERVE_CONVERSATION_H

#include "serve/generation.h"

/* Whether the model reasons before it answers. */
typedef enum serve_thinking { SERVE_THINKING_DEFAULT, SERVE_THINKING_OFF, SERVE_THINKING_ON } serve_thinking;

/* A conversation in terms of OpenAI's chat. Values are lent. */
typedef struct serve_conversation {
    const ht_json *messages;  /* a list */
    const ht_json *tools;     /* a list, or NULL */
    const ht_json *allowed;   /* a list of the only callable tools, by name; NULL: all may be called */
    const ht_json *variables; /* an object of template variables, or NULL */
    ht_tool_choice choice;    /* FREE means AUTO */
    const char *tool;         /* the tool of HT_TOOL_CHOICE_NAMED */
    bool one_call;            /* at most one call in an answer */
    serve_thinking thinking;
    bool continues;     /* the answer continues the last message */
    bool unopened;      /* the prompt does not open the assistant's turn */
    const char *effort; /* "low", "medium" or "high", for templates that use it; NULL: unset */
} serve_conversation;

/* OpenAI's tools and their functions. */
extern const serve_field serve_function_fields[];
extern const serve_shape serve_tool_shape;
/* String values of "tool_choice"; the first is the default. */
extern const char *const serve_tool_choices[];
/* {"mode": "auto" | "required", "tools": [...]}, which restricts calls to these tools. */
extern const serve_field serve_allowed_fields[];
/* Reads "tool_choice", in the form of chats or of the Responses interface, and "parallel_tool_calls". */
bool serve_read_tool_choice(serve_call *c, serve_conversation *k);
/* Reads the reasoning effort, a word from "none" to "max". */
extern const char *const serve_efforts[];
void serve_read_effort(const ht_json *object, const char *name, serve_conversation *k);
/* Converts a dialect's tool to OpenAI's form. `function` is the dialect's type of functions, `schema` its field of
 * parameters. Other types run on a service: they keep only their type, and are ignored. NULL: out of memory. */
ht_json *serve_tool_from(const ht_json *tool, const char *function, const char *schema);

/* Whether the last message is an assistant message without calls, which the model continues. */
bool serve_ends_in_answer(const ht_json *messages);
/* Makes the conversation the generation's only prompt. Tools of unknown types are ignored and reported. */
bool serve_set_conversation(serve_generation *g, const serve_conversation *k);
/* The chat alone, to count or format it; the caller frees *out. */
bool serve_make_chat(serve_call *c, const serve_conversation *k, ht_chat **out);
/* Counts the tokens of the conversation's prompt. */
bool serve_count_conversation(serve_call *c, const serve_conversation *k, int64_t *n);

/* ---- constraints of an answer ---- */

/* Constrains the answer by a schema; NULL: any object. */
bool serve_hold_to_schema(serve_generation *g, const ht_json *schema, const char *member);

/* OpenAI's and compatible fields for structured output: response_format, grammar, json_schema, guided_*,
 * structured_outputs. */
extern const serve_field serve_structure_fields[];
bool serve_read_structure(serve_generation *g, const ht_json *body);
extern const serve_kind serve_formats[];
#define SERVE_IS_FORMAT                                                                                                \
    { .types = SERVE_JSON_OBJECT, .kinds = serve_formats, .first_kind = true }
/* {"type": "text"}, "json_object", or "json_schema" with the schema in "json_schema" or "schema". */
bool serve_read_format(serve_generation *g, const ht_json *format, const char *member);

#endif
