/* Lines that somebody types: edited on a terminal, with history and paste of several lines (libedit), and as they are elsewhere. */
#ifndef HEARTH_APP_CHAT_INPUT_H
#define HEARTH_APP_CHAT_INPUT_H

#include <stdbool.h>

typedef struct chat_input chat_input;

typedef enum chat_line { LINE_READ, LINE_END, LINE_INTERRUPTED, LINE_FAILED } chat_line;

chat_input *chat_input_open(void); /* NULL: memory ran out */
void chat_input_close(chat_input *in);
/* Whether a person types, and sees what is printed. */
bool chat_input_is_terminal(const chat_input *in);
void chat_input_keep_history(chat_input *in, bool on);

/* The next line, without its end: pasted lines are one. `prompt` is shown before it on a terminal, and `begun` (may be NULL) is what
 * the line holds already, to be edited. LINE_INTERRUPTED: Ctrl-C, or another signal (interrupted()). The line is lent until the next call. */
chat_line chat_input_next(chat_input *in, const char *prompt, const char *begun, const char **line);

/* Asks a question that y or Y answers; false where nobody is there to ask. */
bool chat_input_ask(chat_input *in, const char *question);

#endif
