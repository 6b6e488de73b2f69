/* The one reader of conversations from JSON that is parsed already: what ht_chat_from_json takes. */
#ifndef HT_CHAT_READER_H
#define HT_CHAT_READER_H

#include "formats/json_value.h"

#include <hearth/chat.h>

/* A conversation from an object as of ht_chat_from_json, or from a list of messages. Errors begin with `name` (a file's; NULL: nothing),
 * and the line and column of the value where it was read from a text. The caller frees *out. */
ht_status ht_chat_from_value(const ht_json *document, const char *name, ht_chat **out, ht_error *err);
/* Sets a variable of the template, or the tools, with such errors. */
ht_status ht_chat_set_from_value(ht_chat *chat, const char *variable, const ht_json *value, const char *name,
                                 ht_error *err);

#endif
