/* Chat format writers: the conversation being written, shared by their files. */
#ifndef HT_GENERATE_CHAT_INTERNAL_H
#define HT_GENERATE_CHAT_INTERNAL_H

#include "base/text.h"
#include "generate/chat.h"

typedef struct ht_text_span {
    const char *text;
    size_t n;
} ht_text_span;

typedef struct ht_chat_writer {
    unsigned dialect;      /* of HT_CHAT_BOS and the format's own */
    const char *system;    /* that the template writes by itself; NULL: none */
    const char *bos, *eos; /* "" when there is none; what is written has begun with BOS */
    const ht_chat_message *messages;
    size_t n;
    ht_text out;
} ht_chat_writer;

static inline void ht_chat_put(ht_chat_writer *c, ht_text_span s) { ht_text_append(&c->out, s.text, s.n); }
static inline void ht_chat_put_text(ht_chat_writer *c, const char *text) { ht_text_append_str(&c->out, text); }
bool ht_chat_has_role(const ht_chat_message *m, const char *role);
bool ht_chat_begins_with_system(const ht_chat_writer *c);
/* Without the white space at both ends that Python's str.strip takes away. */
ht_text_span ht_chat_trim(const char *text, size_t n);
/* A user's message after the first `first` messages, then an answer, and so on; `format` for the message. */
ht_status ht_chat_check_turns(const ht_chat_writer *c, size_t first, const char *format, ht_error *err);

/* Formats with a file of their own. */
ht_status ht_chat_write_mistral(ht_chat_writer *c, ht_error *err);
ht_status ht_chat_write_llama2(ht_chat_writer *c, ht_error *err);

#endif
