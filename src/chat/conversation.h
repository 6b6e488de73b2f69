/* Conversations as values of templates, and what chat templates make of them. */
#ifndef HT_CHAT_CONVERSATION_H
#define HT_CHAT_CONVERSATION_H

#include "checkpoint/chat_detection.h"
#include "template/value.h"

#include <hearth/chat.h>
#include <hearth/grammar.h>

#include <stdatomic.h>

struct ht_chat {
    _Atomic int refs;
    ht_jinja_arena arena; /* of all that follows */
    ht_jinja_list
        *messages;        /* dicts; their "role" is a string that is no input, their "content" a string or None, their
                                 "tool_calls" not empty, with arguments as they came */
    ht_jinja_value tools; /* a list, or None */
    ht_jinja_dict *variables; /* that were set */
    int64_t time;             /* 0: the present */
    ht_tool_choice tool_choice;
    const ht_jinja_string *tool_name; /* of HT_TOOL_CHOICE_NAMED; else NULL */
    bool parallel_calls;
    bool continues; /* the prompt ends within the last message */
};

/* One more hold on it, given back by ht_chat_free. */
ht_chat *ht_chat_retain(const ht_chat *chat);

/* The chat template that writes the conversation, and in whose tool-call format it is answered; NULL: none. `chat` may be NULL. */
const ht_chat_template *ht_chat_template_of(const ht_chat_setup *setup, const ht_chat *chat);

/* Rendered text, with the runs that came from the conversation. */
typedef ht_written ht_chat_text;

void ht_chat_text_free(const ht_chat_text *text);
/* bos and eos: the texts of these tokens, or NULL. */
ht_status ht_chat_write(const ht_chat_setup *setup, const char *bos, const char *eos, const ht_chat *chat,
                        ht_chat_text *out, ht_error *err);
/* The same with the tokens of a tokenizer, which may be NULL. */
ht_status ht_chat_write_with(const ht_chat_setup *setup, const ht_tokenizer *t, const ht_chat *chat, ht_chat_text *out,
                             ht_error *err);
/* The same for a model. */
ht_status ht_chat_write_for(const ht_model *m, const ht_chat *chat, ht_chat_text *out, ht_error *err);
/* The ids of what was written, `flags` as of ht_chat_encode. */
ht_status ht_chat_encode_text(const ht_tokenizer *t, const ht_chat_text *text, unsigned flags, int32_t **ids,
                              size_t *n_ids, ht_error *err);

/* The grammar of the answers that a conversation's tools and its choice of them allow, NULL where they are free; given back by
 * ht_grammar_free before the model is freed. With `beside_text`, for HT_TOOL_CHOICE_AUTO, that of the answers that are calls; NULL where
 * none can be. Compiled when it is first asked for; the model keeps the latest few. */
ht_status ht_tool_cache_find(ht_model *m, const ht_chat *chat, bool beside_text, ht_grammar **out, ht_error *err);

#endif
