/* Chat templates: a checkpoint's jinja2 program that renders a conversation as text.
 *
 * Output equals that of the Python package `transformers` (trim_blocks, lstrip_blocks, loop controls, `generation`
 * blocks, tojson as json.dumps, raise_exception, strftime_now), byte for byte. Templates can access only their
 * variables, and are limited in steps, nesting, memory and output, so untrusted templates are safe to render. */
#ifndef HEARTH_TEMPLATE_H
#define HEARTH_TEMPLATE_H

#include <hearth/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_chat_template ht_chat_template; /* immutable: any number of threads may render one at once */

/* Parses n bytes of UTF-8; `name` is used in messages. HT_ERR_FORMAT, with line and column, for an invalid template.
 * The caller frees *out. */
HT_API ht_status ht_chat_template_parse(const char *source, size_t n, const char *name, ht_chat_template **out,
                                        ht_error *err);
HT_API void ht_chat_template_free(ht_chat_template *t); /* NULL is fine */

/* A variable as n bytes of JSON; with `name` NULL an object whose fields are variables. */
typedef struct ht_template_variable {
    const char *name;
    const char *json;
    size_t n;
} ht_template_variable;

/* Renders the template with its variables: `messages`, `tools`, `add_generation_prompt`, `bos_token` and others. A
 * later variable replaces an earlier one of its name; `tools` and `documents` default to None. Variables are passed
 * unchanged: ht_chat_format (chat.h) prepares a conversation for a template. The caller frees *text, which has
 * *text_n bytes and a NUL, with ht_text_free. HT_ERR_ARGUMENT if the template rejects the conversation
 * (raise_exception), HT_ERR_FORMAT if it fails or a variable is not JSON, HT_ERR_LIMIT if it exceeds its limits. */
HT_API ht_status ht_chat_template_render(const ht_chat_template *t, const ht_template_variable *variables, size_t n,
                                         char **text, size_t *text_n, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
