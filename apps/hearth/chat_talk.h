/* A conversation of hearth chat: its messages, engine and options. */
#ifndef HEARTH_APP_CHAT_TALK_H
#define HEARTH_APP_CHAT_TALK_H

#include "answer.h"
#include "engine.h"

typedef enum thinking_switch { THINKING_BY_TEMPLATE, THINKING_ON, THINKING_OFF } thinking_switch;

typedef struct talk {
    options o; /* a copy: /set changes numbers in it */
    engine e;
    ht_json *messages; /* a list, as chat clients send it; any system message comes first */
    ht_json *more;     /* the conversation's other fields: tools, template variables */
    thinking_switch thinking;
    bool shows_statistics;
    uint64_t regenerated;                         /* times that /regen replaced the last answer; added to the seed */
    ht_metrics last;                              /* of the last answer */
    int64_t answers, computed, reused, generated; /* totals over all answers, in tokens except `answers` */
} talk;

/* Opens the model and the options' initial conversation. Call talk_close also after a failure. */
ht_status talk_open(talk *t, const options *o, ht_error *err);
void talk_close(talk *t);

/* The system prompt; NULL: none. Setting an empty text removes it. */
const char *talk_system(const talk *t);
ht_status talk_set_system(talk *t, const char *text, ht_error *err);

/* Number of messages, without the system prompt. */
size_t talk_length(const talk *t);
/* Removes all messages except the system prompt. */
void talk_clear(talk *t);
/* Whether the last message is not the user's. */
bool talk_is_answered(const talk *t);
/* Removes the latest answer and the user's message before it; returns that message's text in fresh memory, or NULL. */
char *talk_undo(talk *t);
/* Discards the user's oldest message and its answer; false when it is the only one. */
bool talk_forget_oldest(talk *t);

/* Appends a user message. */
ht_status talk_say(talk *t, const char *text, ht_error *err);
/* Streams an answer and appends it to the messages, also when it is interrupted (HT_ERR_CANCELLED). Any other failure
 * changes nothing. HT_ERR_LIMIT: the messages do not fit into the context. */
ht_status talk_answer(talk *t, ht_error *err);

/* The sampler's options in effect. */
ht_status talk_sampler(const talk *t, ht_sampler_options *out, ht_error *err);

/* Counts the tokens of the conversation as the chat template renders it. */
ht_status talk_count(talk *t, size_t *n, ht_error *err);

/* Saves the conversation as JSON that --messages accepts, and replaces it from such a file. */
ht_status talk_save(const talk *t, const char *path, ht_error *err);
ht_status talk_load(talk *t, const char *path, ht_error *err);

/* Replaces the adapters; words as in --adapter. */
ht_status talk_set_adapters(talk *t, const char *const *words, int n, ht_error *err);

#endif
