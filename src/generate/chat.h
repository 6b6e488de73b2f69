/* Built-in chat formats, in the dialects of the templates that are known (models/template.h): the text is the one that the
 * template would write for system, user and assistant messages. */
#ifndef HT_GENERATE_CHAT_H
#define HT_GENERATE_CHAT_H

#include "models/template.h"

#include <hearth/session.h>

/* A template without a format is an error that names the one it resembles. bos and eos: the texts of these tokens, or NULL.
 * *text is allocated. */
ht_status ht_chat_write(const ht_template *template, const char *bos, const char *eos, const ht_message *messages,
                        size_t n, char **text, ht_error *err);

#endif
