/* Conversations: messages of a chat, tools and their calls, and the text and ids that a checkpoint's chat template makes of
 * them.
 *
 * An ht_chat is a list of messages that grows, with the tools that the model may call; it owns copies of its texts and belongs
 * to one thread at a time. ht_generate_chat (generate.h) answers it. Conversations are written by the checkpoint's own chat
 * template (template.h), as `transformers` does: by the one named "tool_use" when tools are given, if there is one. A checkpoint
 * without a template uses a built-in format that its vocabulary tells.
 *
 * What messages, calls and tools say never becomes a special token, nor another one that is written as those are ("<|...|>"),
 * whatever it spells: only the template's own text does. */
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

/* Appends a message; both texts are NUL-terminated UTF-8, and copied. `role` is "system", "developer" (as "system" where the
 * template has no such role), "user", "assistant" or "tool", else HT_ERR_ARGUMENT. A failure changes nothing. */
HT_API ht_status ht_chat_add(ht_chat *chat, const char *role, const char *content, ht_error *err);
HT_API size_t ht_chat_length(const ht_chat *chat); /* messages in it */

/* A message with more than a role and a text. Texts are NUL-terminated UTF-8. */
typedef struct ht_chat_message {
    size_t size; /* of the struct, set by ht_chat_message_init */
    const char *role;
    const char *content;       /* default NULL: an empty text; beside calls, none (null in JSON) */
    const char *thinking;      /* of an answer: the thoughts before it; default NULL: none */
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
 * or the list of messages alone. A content is a string, null, or a list of parts {"type": "text", "text": "..."}, whose texts are joined; other parts are
 * HT_ERR_UNSUPPORTED. An empty list of `tool_calls` is as none. Arguments of calls are objects, or texts of them; an empty text is {}.
 * The results of a message's calls are put into the order of the calls by their `tool_call_id`. Members of messages that are not
 * known reach the template as they are; `tools` does so unchanged, as ht_chat_set_tools, and the members of
 * `chat_template_kwargs` as ht_chat_set_variable. `tool_choice` is "none", "auto", "required" or {"type": "function", "function":
 * {"name": ...}}; it and `parallel_tool_calls` are as ht_chat_set_tool_choice. `continue_final_message` is as ht_chat_set_continue,
 * and `add_generation_prompt`, a boolean, a variable of the template: false leaves the assistant's turn unopened. Other members of the whole with a value are HT_ERR_UNSUPPORTED with their
 * name; what is no such object is HT_ERR_FORMAT; a role as in ht_chat_add. The caller frees *out. */
HT_API ht_status ht_chat_from_json(const char *json, size_t n, ht_chat **out, ht_error *err);

/* The conversation as such JSON, all that was added and set, for a backend of a program's own (backend.h). The caller frees
 * *json, NUL-terminated, with ht_text_free. */
HT_API ht_status ht_chat_to_json(const ht_chat *chat, char **json, ht_error *err);

/* The tools that the model may call: n bytes of JSON, a list that reaches the template unchanged (descriptions such as
 * {"type": "function", "function": {"name": ..., "description": ..., "parameters": {a JSON schema}}}). Replaces what was set
 * before; HT_ERR_FORMAT for what is no list. */
HT_API ht_status ht_chat_set_tools(ht_chat *chat, const char *json, size_t n, ht_error *err);
/* A variable of the template, as n bytes of JSON ("chat_template_kwargs" elsewhere). It goes before the one that Hearth sets
 * under the same name; "tools" is as ht_chat_set_tools, and "messages" HT_ERR_ARGUMENT. */
HT_API ht_status ht_chat_set_variable(ht_chat *chat, const char *name, const char *json, size_t n, ht_error *err);
/* Turns the thoughts before an answer on or off where the template can, by the variables that templates have for it
 * (`enable_thinking`, `thinking`). Without it the template decides. */
HT_API ht_status ht_chat_set_thinking(ht_chat *chat, bool on, ht_error *err);
/* Which calls of its tools an answer makes. */
typedef enum ht_tool_choice {
    HT_TOOL_CHOICE_FREE =
        0, /* whatever the model writes: calls of tools that there are not, arguments that no schema allows */
    HT_TOOL_CHOICE_NONE, /* none: no call can be begun */
    HT_TOOL_CHOICE_AUTO, /* as the model decides: text and thoughts are free, and what begins as a call is a valid one */
    HT_TOOL_CHOICE_REQUIRED, /* one or more, behind the thoughts, and nothing else */
    HT_TOOL_CHOICE_NAMED     /* the same, of one tool */
} ht_tool_choice;
/* Sets it for the answers to this conversation; default HT_TOOL_CHOICE_FREE. `name` is a tool's for HT_TOOL_CHOICE_NAMED, else
 * NULL; without `parallel` there is at most one call.
 *
 * A valid call is one of the conversation's tools, in the tool-call format of the chat template, whose arguments are valid by the JSON
 * Schema `parameters` of the tool (none where a tool has no `parameters`), as ht_grammar_from_json_schema with default options
 * reads it. What that refuses in a schema is a warning (log.h), and the tool's arguments may be any JSON object. Where a format writes parameters
 * one by one they come in the order of `properties`, no others among them, and what the schema says of several at once is
 * not seen. An answer that needs a call is HT_ERR_ARGUMENT without a tool of that name and HT_ERR_UNSUPPORTED where the template writes
 * calls in no known tool-call format; with HT_TOOL_CHOICE_AUTO and _NONE such answers are free.
 *
 * With a grammar of ht_generate_options an answer with HT_TOOL_CHOICE_AUTO is, behind its thoughts, either calls and nothing else or a
 * text of the grammar: what begins as a call does is one, and what does not is text, whatever it reads as. With HT_TOOL_CHOICE_NONE, and
 * where no call can be made, it is the text; with HT_TOOL_CHOICE_REQUIRED and _NAMED it is calls, and the grammar holds nothing. With
 * HT_TOOL_CHOICE_FREE it is a text of the grammar, and a call where it reads as one. */
HT_API ht_status ht_chat_set_tool_choice(ht_chat *chat, ht_tool_choice choice, const char *name, bool parallel,
                                         ht_error *err);
/* With `on` the prompt ends within the last message, after its content, and the answer continues that text (as transformers'
 * continue_final_message); the answer is the continuation alone. Default false: the prompt opens the assistant's turn. A last message
 * without text, or one whose end the template does not write, is HT_ERR_ARGUMENT when the conversation is written. */
HT_API void ht_chat_set_continue(ht_chat *chat, bool on);
/* The time that a template is told which writes a date, in seconds since 1970; without it, or 0, the present. */
HT_API void ht_chat_set_time(ht_chat *chat, int64_t seconds);

/* The conversation as the chat template writes it, with the assistant's turn opened or its last message continued, BOS included where the template has it.
 * Messages are prepared as `transformers` does: null fields are left out; reasoning is in `thinking` and `reasoning_content`,
 * whichever of these or `reasoning` it came in. Two choices depend on the template, and are made when a model is loaded, by
 * rendering a call. Arguments are objects, but JSON text (unchanged where they came as text) for templates that fail on objects or
 * write them as Python does. A null content is "", but null for templates that write the call with null alone, or with less text.
 * The caller frees *text with ht_text_free. HT_ERR_UNSUPPORTED when the model has neither a chat template nor a built-in
 * format, or no tokenizer; HT_ERR_ARGUMENT for messages that the template refuses; HT_ERR_FORMAT when the template is broken,
 * and HT_ERR_LIMIT when it takes too much. */
HT_API ht_status ht_chat_format(const ht_model *m, const ht_chat *chat, char **text, ht_error *err);
/* The ids of that text; `flags` is 0, or HT_ENCODE_PARSE_SPECIAL to recognise special tokens that messages spell as well, as
 * `transformers` does. Both give the same ids where none does. The caller frees *ids with ht_ids_free. */
HT_API ht_status ht_chat_encode(const ht_model *m, const ht_chat *chat, unsigned flags, int32_t **ids, size_t *n_ids,
                                ht_error *err);
/* The same without a model. ht_chat_find_template: the chat template that a model with this tokenizer writes the conversation with;
 * HT_ERR_UNSUPPORTED without one. The caller frees *out. ht_chat_render: the text that a template makes of the conversation, n bytes and a
 * NUL; `tokenizer` has the BOS and EOS tokens, NULL: none. The caller frees *text with ht_text_free. */
HT_API ht_status ht_chat_find_template(const ht_tokenizer *tokenizer, const ht_chat *chat, ht_chat_template **out,
                                       ht_error *err);
HT_API ht_status ht_chat_render(const ht_chat_template *t, const ht_tokenizer *tokenizer, const ht_chat *chat,
                                char **text, size_t *n, ht_error *err);
/* How the model's conversations are written: "template" when the checkpoint has its own, the name of the built-in format
 * ("chatml", "gemma", "gemma4", "llama3", "deepseek", "llama2" or "mistral") when its vocabulary tells one; else NULL. A
 * constant, never freed. */
HT_API const char *ht_chat_format_name(const ht_model *m);

#ifdef __cplusplus
}
#endif
#endif
