/* Conversations: the messages and tools of a chat, and their rendering by a checkpoint's chat template as text and
 * ids.
 *
 * An ht_chat is a growing list of messages with the tools that the model may call. It owns copies of its texts and
 * belongs to one thread at a time. ht_generate_chat (generate.h) answers it. The checkpoint's own chat template
 * (template.h) renders the conversation, as in `transformers`; with tools, the template named "tool_use" if the
 * checkpoint has one. A checkpoint without a template uses a built-in format, detected from its vocabulary.
 *
 * The contents of messages, calls and tools never become special tokens, nor other tokens of the form "<|...|>". Only
 * the template's own text does. */
#ifndef HEARTH_CHAT_H
#define HEARTH_CHAT_H

#include <hearth/answer.h>
#include <hearth/model.h>
#include <hearth/template.h>
#include <hearth/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_chat ht_chat;

/* A conversation without messages. The caller frees *out. */
HT_API ht_status ht_chat_new(ht_chat **out, ht_error *err);
HT_API void ht_chat_free(ht_chat *chat); /* NULL is fine */

/* Appends a message; both texts are NUL-terminated UTF-8, and copied. `role` is "system", "developer" (as "system"
 * where the template has no such role), "user", "assistant" or "tool", else HT_ERR_ARGUMENT. A failure changes
 * nothing. */
HT_API ht_status ht_chat_add(ht_chat *chat, const char *role, const char *content, ht_error *err);
HT_API size_t ht_chat_length(const ht_chat *chat); /* messages in it */

/* A message with more than a role and a text. Texts are NUL-terminated UTF-8. */
typedef struct ht_chat_message {
    size_t size; /* of the struct, set by ht_chat_message_init */
    const char *role;
    const char *content;       /* default NULL: an empty text; with calls, none (null in JSON) */
    const char *thinking;      /* of an answer: the reasoning before it; default NULL: none */
    const ht_tool_call *calls; /* [n_calls], of an answer; default none */
    size_t n_calls;
    const char *name;    /* of a tool's result: the tool; default NULL */
    const char *call_id; /* and the id of its call; default NULL */
} ht_chat_message;
HT_API void ht_chat_message_init(ht_chat_message *message, size_t size);
/* As ht_chat_add. */
HT_API ht_status ht_chat_add_message(ht_chat *chat, const ht_chat_message *message, ht_error *err);

/* A conversation from n bytes of JSON, an object as chat clients send it:
 *
 *   {"messages": [{"role": "user", "content": "Hello"}, ...], "tools": [...], "tool_choice": "auto",
 *    "parallel_tool_calls": true, "chat_template_kwargs": {...}, "continue_final_message": false}
 *
 * or the list of messages alone. `content` is a string, null, or a list of parts {"type": "text", "text": "..."},
 * whose texts are joined; other parts are HT_ERR_UNSUPPORTED. An empty list of `tool_calls` means none. Arguments of
 * calls are objects or JSON text; empty text is {}. Results of a message's calls are sorted into the order of the
 * calls by their `tool_call_id`. Unknown fields of messages are passed to the template unchanged.
 *
 * `tools` is as in ht_chat_set_tools, and each field of `chat_template_kwargs` as in ht_chat_set_variable.
 * `tool_choice` is "none", "auto", "required" or {"type": "function", "function": {"name": ...}}; it and
 * `parallel_tool_calls` are as in ht_chat_set_tool_choice. `continue_final_message` is as in ht_chat_set_continue.
 * `add_generation_prompt`, a boolean, is a template variable: false leaves the assistant's turn unopened.
 *
 * Other top-level fields with a value are HT_ERR_UNSUPPORTED, with their name. JSON of another shape is
 * HT_ERR_FORMAT; roles are checked as in ht_chat_add. The caller frees *out. */
HT_API ht_status ht_chat_from_json(const char *json, size_t n, ht_chat **out, ht_error *err);

/* The conversation as such JSON, with all that was added and set, for a program's own backend (backend.h). The caller
 * frees *json, NUL-terminated, with ht_text_free. */
HT_API ht_status ht_chat_to_json(const ht_chat *chat, char **json, ht_error *err);

/* The tools that the model may call: n bytes of JSON, a list passed to the template unchanged. Its items are
 * descriptions such as {"type": "function", "function": {"name": ..., "description": ..., "parameters": {a JSON
 * schema}}}. Replaces earlier tools; HT_ERR_FORMAT if the JSON is not a list. */
HT_API ht_status ht_chat_set_tools(ht_chat *chat, const char *json, size_t n, ht_error *err);
/* A variable of the template, as n bytes of JSON ("chat_template_kwargs" elsewhere). It overrides the variable that
 * Hearth sets under the same name. "tools" is as in ht_chat_set_tools; "messages" is HT_ERR_ARGUMENT. */
HT_API ht_status ht_chat_set_variable(ht_chat *chat, const char *name, const char *json, size_t n, ht_error *err);
/* Turns reasoning on or off where the template supports it, through the variables that templates use
 * (`enable_thinking`, `thinking`; off also `thinking_budget` and `reasoning`). By default the template decides. */
HT_API ht_status ht_chat_set_thinking(ht_chat *chat, bool on, ht_error *err);
/* Which calls of its tools an answer makes. */
typedef enum ht_tool_choice {
    HT_TOOL_CHOICE_FREE = 0, /* unconstrained: calls may name unknown tools or violate schemas */
    HT_TOOL_CHOICE_NONE,     /* no calls: none can begin */
    HT_TOOL_CHOICE_AUTO,     /* the model decides: text and reasoning are free; a call that begins is valid */
    HT_TOOL_CHOICE_REQUIRED, /* one or more calls after the reasoning, and nothing else */
    HT_TOOL_CHOICE_NAMED     /* the same, of one tool */
} ht_tool_choice;
/* Sets the choice for answers to this conversation; default HT_TOOL_CHOICE_FREE. `name` is a tool's for
 * HT_TOOL_CHOICE_NAMED, else NULL. Without `parallel` an answer has at most one call.
 *
 * A valid call names one of the conversation's tools and is written in the chat template's tool-call format. Its
 * arguments match the tool's JSON Schema `parameters`, read as by ht_grammar_from_json_schema with default
 * options, but in any order; a tool without `parameters` takes no arguments. An unsupported schema is logged as a
 * warning (log.h), and the tool's arguments may be any JSON object. Formats that write parameters one by one use
 * the order of `properties`, allow no other parameters, and ignore constraints on several parameters at once.
 *
 * An answer that requires a call is HT_ERR_ARGUMENT without a tool of that name, and HT_ERR_UNSUPPORTED if the
 * template's tool-call format is unknown. With HT_TOOL_CHOICE_AUTO and _NONE such answers are free.
 *
 * A grammar in ht_generate_options applies after the reasoning. With HT_TOOL_CHOICE_AUTO the answer is either
 * calls and nothing else, or text of the grammar: an answer that begins as a call is one; any other is text,
 * whatever it looks like. With HT_TOOL_CHOICE_NONE, and where no call is possible, it is text of the grammar. With
 * HT_TOOL_CHOICE_REQUIRED and _NAMED it is calls, and the grammar is ignored. With HT_TOOL_CHOICE_FREE it is text
 * of the grammar, and a call where that text parses as one. */
HT_API ht_status ht_chat_set_tool_choice(ht_chat *chat, ht_tool_choice choice, const char *name, bool parallel,
                                         ht_error *err);
/* With `on` the prompt ends after the content of the last message, and the answer continues that text (transformers'
 * continue_final_message). The answer is the continuation alone. Default false: the prompt opens the assistant's
 * turn. Rendering fails with HT_ERR_ARGUMENT if the last message has no text, or if the template does not write its
 * end. */
HT_API void ht_chat_set_continue(ht_chat *chat, bool on);
/* The current time for templates that write a date, in seconds since 1970. Default 0: the system's clock. */
HT_API void ht_chat_set_time(ht_chat *chat, int64_t seconds);

/* Renders the conversation with the chat template. The assistant's turn is opened or the last message continued; BOS
 * is included where the template writes it.
 *
 * Messages are prepared as in `transformers`: null fields are omitted. Reasoning is in both `thinking` and
 * `reasoning_content`, whichever of these or `reasoning` it came in. Two choices depend on the template; loading a
 * model makes them by rendering a call. Arguments are objects, but JSON text (unchanged if they came as text) for
 * templates that fail on objects or write them as Python does. Null content is "", but stays null for templates that
 * write the call only with null, or with less text. gpt-oss' template writes one text before a call: reasoning and
 * content become that text. Templates such as Phi-4-mini's write the tools of a system message: they get them there;
 * SmolLM3's reads them as `xml_tools`. Templates without a field for calls get them in their tool-call format at the
 * end of the text; GLM 4's gets each as a message, with the name as `metadata`, and results as "observation".
 *
 * The caller frees *text with ht_text_free. HT_ERR_UNSUPPORTED if the model has no tokenizer, or neither a chat
 * template nor a built-in format; HT_ERR_ARGUMENT for messages that the template rejects; HT_ERR_FORMAT for a broken
 * template; HT_ERR_LIMIT if it exceeds its limits. */
HT_API ht_status ht_chat_format(const ht_model *m, const ht_chat *chat, char **text, ht_error *err);
/* The ids of that text. `flags` is 0, or HT_ENCODE_PARSE_SPECIAL to also recognise special tokens in messages, as
 * `transformers` does. Both give the same ids for messages without special tokens. The caller frees *ids with
 * ht_ids_free. */
HT_API ht_status ht_chat_encode(const ht_model *m, const ht_chat *chat, unsigned flags, int32_t **ids, size_t *n_ids,
                                ht_error *err);
/* The same without a model. ht_chat_find_template returns the chat template that a model with this tokenizer uses for
 * the conversation; HT_ERR_UNSUPPORTED without one. The caller frees *out. ht_chat_render returns the rendered text,
 * n bytes and a NUL. `tokenizer` provides the BOS and EOS tokens; NULL: none. The caller frees *text with
 * ht_text_free. */
HT_API ht_status ht_chat_find_template(const ht_tokenizer *tokenizer, const ht_chat *chat, ht_chat_template **out,
                                       ht_error *err);
HT_API ht_status ht_chat_render(const ht_chat_template *t, const ht_tokenizer *tokenizer, const ht_chat *chat,
                                char **text, size_t *n, ht_error *err);

/* Splits an answer of n bytes into its parts, in the formats that the template uses. The schemas of the conversation's
 * tools distinguish strings from other values in formats without quotes; `chat` may be NULL: no tools. `prompt` is the
 * answered text, which may have opened reasoning, or NULL. HT_ERR_CANCELLED when fn returned false. */
HT_API ht_status ht_chat_read_answer(const ht_chat *chat, const ht_chat_template *t, const char *prompt,
                                     const char *text, size_t n, ht_answer_fn *fn, void *user, ht_error *err);
/* The chat format: "template" if the checkpoint has its own template; else the built-in format detected from the
 * vocabulary ("chatml", "gemma", "gemma4", "llama3", "deepseek", "llama2" or "mistral"), or NULL. A constant, never
 * freed. */
HT_API const char *ht_chat_format_name(const ht_model *m);

#ifdef __cplusplus
}
#endif
#endif
