/* hearth chat: what its commands share. */
#ifndef HEARTH_APP_CHAT_H
#define HEARTH_APP_CHAT_H

#include "chat_input.h"
#include "chat_talk.h"

typedef struct chat {
    talk t;
    chat_input *in;
    char *attached; /* texts of /attach for the next message; NULL: none */
    char *begun;    /* what the next line begins with; NULL: nothing */
    bool leaves, failed;
} chat;

/* Runs a line that begins with a slash. */
void chat_run_command(chat *c, const char *line);
/* Answers what has been said, or reports why there is no answer. */
void chat_answer(chat *c);
/* Reports what failed. It counts for the exit status unless somebody at a terminal has seen it. */
void chat_report(chat *c, const ht_error *err);

#endif
