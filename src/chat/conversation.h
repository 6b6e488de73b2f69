/* Conversations as template values, and their rendering by chat templates. */
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

/* Adds a reference, released by ht_chat_free. */
ht_chat *ht_chat_retain(const ht_chat *chat);

/* The chat template that renders the conversation and whose tool-call format the answer has; NULL: none. */
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
/* The ids of rendered text, `flags` as of ht_chat_encode. */
ht_status ht_chat_encode_text(const ht_tokenizer *t, const ht_chat_text *text, unsigned flags, int32_t **ids,
                              size_t *n_ids, ht_error *err);

/* The grammar of answers that a conversation's tools and tool choice allow; NULL: unconstrained. Free it with
 * ht_grammar_free before the model. With `beside_text`, for HT_TOOL_CHOICE_AUTO: the grammar of answers that are
 * calls; NULL: none. Compiled at the first request; the model caches the latest few. */
ht_status ht_tool_cache_find(ht_model *m, const ht_chat *chat, bool beside_text, ht_grammar **out, ht_error *err);

#endif
