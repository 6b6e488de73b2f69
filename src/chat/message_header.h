/* Headers and ends of an answer's messages, by the table of formats. */
#ifndef HT_CHAT_MESSAGE_HEADER_H
#define HT_CHAT_MESSAGE_HEADER_H

#include "chat/answer_formats.h"

typedef enum ht_header_match {
    HT_HEADER_NONE,
    HT_HEADER_WHOLE,
    HT_HEADER_BEGUN /* all of the text may begin a header */
} ht_header_match;

typedef struct ht_message_header {
    size_t n;              /* bytes through `body` */
    size_t n_role;         /* through `begin` and the role; 0: they did not come */
    const char *recipient; /* [n_recipient] NULL: none */
    size_t n_recipient;
    bool is_reasoning, has_field;
} ht_message_header;

/* Matches a header at the beginning of n bytes. It may lack `begin` and the role, which the prompt has written. */
ht_header_match ht_message_header_match(const ht_message_format *m, const char *text, size_t n, ht_message_header *out);

typedef struct ht_message_end {
    size_t at;   /* the length of the text: none */
    size_t skip; /* bytes after which the text goes on: the mark's, or none if it belongs to what follows */
} ht_message_end;

/* The first end of a message from an index on: its own mark, or the beginning of the next message. */
ht_message_end ht_message_end_find(const ht_message_format *m, const char *text, size_t n, size_t from);
/* Index of the longest suffix that begins such an end, or n. */
size_t ht_message_end_beginning(const ht_message_format *m, const char *text, size_t n);
/* Whether a token is such an end. */
bool ht_message_is_end(const ht_message_format *m, const char *token);

#endif
