/* hearth chat: state shared by its commands. */
#ifndef HEARTH_APP_CHAT_H
#define HEARTH_APP_CHAT_H

#include "chat_input.h"
#include "chat_talk.h"

typedef struct chat {
    talk t;
    chat_input *in;
    char *attached; /* texts of /attach for the next message; NULL: none */
    char *begun;    /* initial text of the next line, to be edited; NULL: none */
    bool leaves, failed;
} chat;

/* Runs a line that begins with a slash. */
void chat_run_command(chat *c, const char *line);
/* Generates an answer to the conversation, or reports the failure. */
void chat_answer(chat *c);
/* Reports a failure. It affects the exit status unless a user at a terminal has seen it. */
void chat_report(chat *c, const ht_error *err);

#endif
