/* Literals in tool calls: values as Python writes them, or as Gemma does with bare keys and its own quotes. */
#ifndef HT_CHAT_LITERALS_H
#define HT_CHAT_LITERALS_H

#include "chat/span.h"

typedef struct ht_literals {
    ht_jinja_arena *a;
    ht_span s;
    const char *quote; /* around strings; NULL: Python's */
    int depth;
    bool is_cut; /* a word at the end of the text may be incomplete, and is not read */
} ht_literals;

bool ht_literal_read(ht_literals *l, ht_jinja_value *v);
/* Keys and values up to and past `close`. On failure *v has those before. */
bool ht_literal_read_members(ht_literals *l, char separator, char close, ht_jinja_value *v);

#endif
