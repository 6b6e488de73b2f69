/* Conversations: messages of a chat, and the text that a checkpoint's chat format makes of them.
 *
 * An ht_chat is a list of messages that grows; it owns copies of its texts and belongs to one thread at a time.
 * ht_generate_chat (generate.h) answers it. */
#ifndef HEARTH_CHAT_H
#define HEARTH_CHAT_H

#include <hearth/model.h>
#include <hearth/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_chat ht_chat;

/* A conversation without messages. The caller frees *out. */
HT_API ht_status ht_chat_new(ht_chat **out, ht_error *err);
HT_API void ht_chat_free(ht_chat *chat); /* NULL is fine */

/* Appends a message; both texts are NUL-terminated UTF-8, and copied. `role` is "system", "user" or "assistant", else
 * HT_ERR_ARGUMENT. A failure changes nothing. */
HT_API ht_status ht_chat_add(ht_chat *chat, const char *role, const char *content, ht_error *err);
HT_API size_t ht_chat_length(const ht_chat *chat); /* messages in it */

/* A conversation from n bytes of JSON, an object as chat clients send it:
 *
 *   {"messages": [{"role": "user", "content": "Hello"}, ...]}
 *
 * A content is a string, null (an empty text), or a list of parts {"type": "text", "text": "..."}, whose texts are joined.
 * Other members with a value (tools, tool calls, other parts) are HT_ERR_UNSUPPORTED with their name; what is no such
 * object is HT_ERR_FORMAT; a role as in ht_chat_add. The caller frees *out. */
HT_API ht_status ht_chat_from_json(const char *json, size_t n, ht_chat **out, ht_error *err);

/* The conversation as the checkpoint's chat format writes it, with the assistant's turn opened, BOS included where the
 * format has it, and with the checkpoint's own default system text when there is no system message. The caller frees
 * *text with ht_text_free. HT_ERR_UNSUPPORTED when the model has no chat format that Hearth knows, or no tokenizer;
 * HT_ERR_ARGUMENT for messages that the format does not have in this order. */
HT_API ht_status ht_chat_format(const ht_model *m, const ht_chat *chat, char **text, ht_error *err);
/* The name of the model's chat format: "chatml", "gemma", "gemma4", "llama3", "deepseek", "llama2" or "mistral"; NULL when
 * the model has none that Hearth writes. A constant, never freed. */
HT_API const char *ht_chat_format_name(const ht_model *m);

#ifdef __cplusplus
}
#endif
#endif
