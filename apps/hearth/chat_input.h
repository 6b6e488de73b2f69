/* Reads lines of user input: on a terminal with editing, history and multi-line paste (libedit), else unedited. */
#ifndef HEARTH_APP_CHAT_INPUT_H
#define HEARTH_APP_CHAT_INPUT_H

#include <stdbool.h>

typedef struct chat_input chat_input;

typedef enum chat_line { LINE_READ, LINE_END, LINE_INTERRUPTED, LINE_FAILED } chat_line;

chat_input *chat_input_open(void); /* NULL: memory ran out */
void chat_input_close(chat_input *in);
/* Whether lines are edited: standard input and output are both terminals. */
bool chat_input_is_terminal(const chat_input *in);
void chat_input_keep_history(chat_input *in, bool on);

/* Reads the next line without its newline; a multi-line paste is one line. `begun` (may be NULL) is the initial text
 * on a terminal. LINE_INTERRUPTED: Ctrl-C or another signal (interrupted()). *line is valid until the next call. */
chat_line chat_input_next(chat_input *in, const char *prompt, const char *begun, const char **line);

/* Asks a yes/no question; true for y or Y, false for anything else and without a terminal. */
bool chat_input_ask(chat_input *in, const char *question);

#endif
