/* The built-in chat formats. A format's dialect (default system text, dates, thinking) is read off the checkpoint's own
 * template, so that the text is the one the template would write for system, user and assistant messages. */
#ifndef HT_GENERATE_CHAT_H
#define HT_GENERATE_CHAT_H

#include <hearth/session.h>

/* format: the name of one of HT_CHAT_FORMATS (models/talk.h), or NULL: an error; template: the checkpoint's, or NULL; bos
 * and eos: the texts of these tokens, or NULL. *text is allocated. */
ht_status ht_chat_write(const char *format, const char *template_text, const char *bos, const char *eos,
                        const ht_message *messages, size_t n, char **text, ht_error *err);

#endif
