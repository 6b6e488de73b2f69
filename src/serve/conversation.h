/* Conversations of requests, and what their answers are constrained by: messages and tools in OpenAI's form, into which the other dialects are
 * translated, schemas and grammars. */
#ifndef HT_SERVE_CONVERSATION_H
#define HT_SERVE_CONVERSATION_H

#include "serve/generation.h"

/* Whether an answer has reasoning. */
typedef enum serve_thinking { SERVE_THINKING_DEFAULT, SERVE_THINKING_OFF, SERVE_THINKING_ON } serve_thinking;

/* A conversation in terms of OpenAI's chat. Values are lent. */
typedef struct serve_conversation {
    const ht_json *messages;  /* a list */
    const ht_json *tools;     /* a list, or NULL */
    const ht_json *allowed;   /* a list of the only tools that may be called, by their names; NULL: all may */
    const ht_json *variables; /* of the template, an object, or NULL */
    ht_tool_choice choice;    /* FREE as AUTO */
    const char *tool;         /* of HT_TOOL_CHOICE_NAMED */
    bool one_call;            /* at most one call in an answer */
    serve_thinking thinking;
    bool continues;     /* the answer continues the last message */
    bool unopened;      /* the prompt does not open the assistant's turn */
    const char *effort; /* "low", "medium", "high", for templates that know it; NULL: not said */
} serve_conversation;

/* Tools in OpenAI's form, and their functions. */
extern const serve_field serve_function_fields[];
extern const serve_shape serve_tool_shape;
/* The member "tool_choice" where it is one of these words; that of none is the first. */
extern const char *const serve_tool_choices[];
/* {"mode": "auto" | "required", "tools": [...]}, which allows some of the tools. */
extern const serve_field serve_allowed_fields[];
/* Reads "tool_choice", as chats or as the Responses interface have it, and "parallel_tool_calls". */
bool serve_read_tool_choice(serve_call *c, serve_conversation *k);
/* Reads how much is to be thought, one of the words from "none" to "max". */
extern const char *const serve_efforts[];
void serve_read_effort(const ht_json *object, const char *name, serve_conversation *k);
/* A tool of another dialect in OpenAI's form. One of another type than `function`, the dialect's word for functions, which a service would run,
 * has its type alone, by which it is ignored. `schema` is the name of its parameters. NULL when memory ran out. */
ht_json *serve_tool_from(const ht_json *tool, const char *function, const char *schema);

/* Whether the last message is an answer without calls, which clients send to have it continued. */
bool serve_ends_in_answer(const ht_json *messages);
/* Makes it the prompt of the generation, which has one. Tools of unknown types are ignored, with a note. */
bool serve_set_conversation(serve_generation *g, const serve_conversation *k);
/* The conversation itself, for what counts or writes it; the caller frees *out. */
bool serve_make_chat(serve_call *c, const serve_conversation *k, ht_chat **out);
/* The number of tokens of its prompt. */
bool serve_count_conversation(serve_call *c, const serve_conversation *k, int64_t *n);

/* ---- constraints of an answer ---- */

/* Schema NULL: any object. */
bool serve_hold_to_schema(serve_generation *g, const ht_json *schema, const char *member);

/* The members by which OpenAI's interface and others like it ask for one of them: response_format, grammar, json_schema, guided_*,
 * structured_outputs. */
extern const serve_field serve_structure_fields[];
bool serve_read_structure(serve_generation *g, const ht_json *body);
extern const serve_kind serve_formats[];
#define SERVE_IS_FORMAT                                                                                                \
    { .types = SERVE_JSON_OBJECT, .kinds = serve_formats, .first_kind = true }
/* {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", ...}; the schema lies in a member of that name, or next to it. */
bool serve_read_format(serve_generation *g, const ht_json *format, const char *member);

#endif
