/* Built-in chat formats, in the dialects of the templates that are known (models/template.h): the text is the one that the
 * template would write for system, user and assistant messages. */
#ifndef HT_GENERATE_CHAT_H
#define HT_GENERATE_CHAT_H

#include "models/template.h"

#include <hearth/chat.h>

typedef struct ht_chat_message {
    char *role, *content; /* owned, neither is NULL; the role is one that exists */
} ht_chat_message;

struct ht_chat {
    ht_chat_message *messages; /* [n] */
    size_t n, capacity;
};

/* A template without a format is an error that names the one it resembles. bos and eos: the texts of these tokens, or NULL.
 * *text is allocated. */
ht_status ht_chat_write(const ht_template *template, const char *bos, const char *eos, const ht_chat *chat, char **text,
                        ht_error *err);

#endif
