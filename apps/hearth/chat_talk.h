/* A conversation of hearth chat: its messages, what answers them, and how. */
#ifndef HEARTH_APP_CHAT_TALK_H
#define HEARTH_APP_CHAT_TALK_H

#include "answer.h"
#include "engine.h"

typedef enum thinking_switch { THINKING_BY_TEMPLATE, THINKING_ON, THINKING_OFF } thinking_switch;

typedef struct talk {
    options o; /* numbers in it may be set */
    engine e;
    ht_json *messages; /* a list, as chat clients send it; a system message is the first */
    ht_json *more;     /* the conversation's other members: tools, variables of the template */
    thinking_switch thinking;
    bool shows_statistics;
    uint64_t regenerated; /* answers to the last message that /regen has replaced; added to the seed */
    ht_metrics last;      /* of the last answer */
    int64_t answers, computed, reused, generated; /* tokens of all answers */
} talk;

/* Opens the model, and the conversation that the options begin with. It is to be closed after a failure too. */
ht_status talk_open(talk *t, const options *o, ht_error *err);
void talk_close(talk *t);

/* NULL: none. An empty text takes it away. */
const char *talk_system(const talk *t);
ht_status talk_set_system(talk *t, const char *text, ht_error *err);

/* Messages but the system's. */
size_t talk_length(const talk *t);
/* Forgets them. */
void talk_clear(talk *t);
/* Whether the last message is no message of the user. */
bool talk_is_answered(const talk *t);
/* Takes the latest answers and the user's message before them back: its text in fresh memory, or NULL where there is none. */
char *talk_undo(talk *t);
/* Forgets the oldest message of the user and what answered it; false where there is but one. */
bool talk_forget_oldest(talk *t);

/* Adds a message of the user. */
ht_status talk_say(talk *t, const char *text, ht_error *err);
/* Answers the messages, shown as it comes, and adds the answer, also one that was interrupted: that is HT_ERR_CANCELLED. Otherwise a
 * failure changes nothing. HT_ERR_LIMIT: they do not fit into the context. */
ht_status talk_answer(talk *t, ht_error *err);

/* The sampler's options in effect. */
ht_status talk_sampler(const talk *t, ht_sampler_options *out, ht_error *err);

/* Tokens of the messages as the template writes them. */
ht_status talk_count(talk *t, size_t *n, ht_error *err);

/* The conversation as a file of JSON, which --messages takes, and in the place of this one from such a file. */
ht_status talk_save(const talk *t, const char *path, ht_error *err);
ht_status talk_load(talk *t, const char *path, ht_error *err);

/* Uses other adapters from now on: words as of --adapter. */
ht_status talk_set_adapters(talk *t, const char *const *words, int n, ht_error *err);

#endif
