/* hearth chat: a conversation, a line at a time. */
#include "chat.h"

#include "command.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char quotes[] = "\"\"\""; /* delimit a multi-line message */

void chat_report(chat *c, const ht_error *err) {
    report(err);
    c->failed |= !chat_input_is_terminal(c->in);
}

static void out_of_memory(chat *c) {
    fprintf(stderr, "hearth: out of memory for the message\n");
    c->failed = true;
}

/* ---- answers ---- */

/* After a full context, asks the user whether to discard the oldest exchange. */
static bool makes_room(chat *c, const ht_error *err) {
    fprintf(stderr, "hearth: %s\n", err->message);
    if (!chat_input_is_terminal(c->in)) {
        fprintf(stderr, "hearth: --sliding discards the oldest positions, --context allows more, /clear starts over\n");
        return false;
    }
    return talk_length(&c->t) > 1 && chat_input_ask(c->in, "Forget the oldest exchange, and go on? [y/N] ") &&
           talk_forget_oldest(&c->t);
}

void chat_answer(chat *c) {
    ht_error err = {0};
    ht_status st = talk_answer(&c->t, &err);
    while (st == HT_ERR_LIMIT && makes_room(c, &err)) st = talk_answer(&c->t, &err);
    if (!interrupted()) interrupt_taken(); /* Ctrl-C only ended the answer */
    if (st && st != HT_ERR_CANCELLED && st != HT_ERR_LIMIT) report(&err);
    c->failed |= st && st != HT_ERR_CANCELLED;
}

static void say(chat *c, const char *text) {
    ht_error err = {0};
    char *whole = NULL;
    if (asprintf(&whole, "%s%s", c->attached ? c->attached : "", text) < 0) {
        out_of_memory(c);
        return;
    }
    const ht_status st = talk_say(&c->t, whole, &err);
    free(whole);
    if (st) {
        chat_report(c, &err);
        return;
    }
    chat_answer(c);
    if (!talk_is_answered(&c->t)) c->begun = talk_undo(&c->t); /* retry: edit the message with its attachments */
    free(c->attached);
    c->attached = NULL;
}

/* ---- lines ---- */

/* Reads a multi-line message up to the closing quotes; false when the user cancelled it. */
static bool read_quoted(chat *c, const char *line, ht_text *whole) {
    line += strlen(quotes);
    for (;;) {
        const char *end = strstr(line, quotes);
        ht_text_append(whole, line, end ? (size_t)(end - line) : strlen(line));
        if (end) return true;
        if (whole->len) ht_text_append_str(whole, "\n");
        if (chat_input_next(c->in, "... ", NULL, &line) != LINE_READ) return false;
    }
}

static bool is_blank(const char *line) { return line[strspn(line, " \t\n")] == '\0'; }

static void say_text(chat *c, const ht_text *whole) {
    if (whole->failed)
        out_of_memory(c);
    else if (!is_blank(whole->data))
        say(c, whole->data);
}

static void take_line(chat *c, const char *line) {
    if (strncmp(line, quotes, strlen(quotes)) == 0) {
        ht_text whole = {0};
        if (read_quoted(c, line, &whole)) say_text(c, &whole);
        ht_text_discard(&whole);
    } else if (line[0] == '/' && line[1] != '/') {
        chat_run_command(c, line);
    } else if (!is_blank(line)) {
        say(c, line[0] == '/' ? line + 1 : line); /* "//" escapes a leading slash */
    }
}

static void read_lines(chat *c) {
    bool asked_to_leave = false;
    while (!c->leaves && !interrupted() && !output_reader_gone()) {
        const char *line;
        char *begun = c->begun;
        c->begun = NULL;
        const chat_line read = chat_input_next(c->in, "> ", begun, &line);
        free(begun);
        if (read == LINE_END) return;
        if (read == LINE_FAILED) {
            out_of_memory(c);
            return;
        }
        if (read == LINE_INTERRUPTED) {
            interrupt_taken();
            if (interrupted() || asked_to_leave) return;
            asked_to_leave = true;
            fprintf(stderr, "Ctrl-C once more ends the program.\n");
            continue;
        }
        asked_to_leave = false;
        char *copy = strdup(line); /* a command may read more lines into the same buffer */
        if (copy)
            take_line(c, copy);
        else
            out_of_memory(c);
        free(copy);
    }
}

/* ---- the command ---- */

/* Sends PROMPT, followed by standard input unless that is a terminal. */
static void say_prompt(chat *c, const char *prompt) {
    ht_text whole = {0};
    char *input = NULL, *clean = NULL;
    size_t n = 0;
    ht_error err = {0};
    ht_text_append_str(&whole, prompt);
    c->leaves = !chat_input_is_terminal(c->in);
    const ht_status st = c->leaves ? input_read_all("the rest of the prompt", &input, &n, &err) : HT_OK;
    while (n && (input[n - 1] == '\n' || input[n - 1] == '\r')) n--;
    if (n && *prompt) ht_text_append_str(&whole, "\n\n");
    if (n) clean = text_to_utf8(input, n);
    if (clean) ht_text_append_str(&whole, clean);
    whole.failed = whole.failed || (n && !clean);
    if (st)
        chat_report(c, &err);
    else
        say_text(c, &whole);
    free(clean);
    free(input);
    ht_text_discard(&whole);
}

static void greet(const chat *c) {
    if (chat_input_is_terminal(c->in) && !c->t.o.quiet)
        fprintf(stderr, "%s. /help lists commands, Ctrl-D leaves.\n", c->t.o.model);
}

int chat_command(const options *o) {
    ht_error err = {0};
    chat c = {.in = chat_input_open()};
    if (!c.in) {
        fprintf(stderr, "hearth: the terminal cannot be opened for editing\n");
        return EXIT_FAILED;
    }
    const ht_status st = talk_open(&c.t, o, &err);
    if (!st && chat_input_is_terminal(c.in) && !interrupts_count()) {
        fprintf(stderr, "hearth: the system has no descriptors left\n");
        c.failed = true;
    } else if (!st) {
        greet(&c);
        if (o->arguments.n) say_prompt(&c, o->arguments.items[0]);
        read_lines(&c);
    } else {
        report(&err);
        c.failed = true;
    }
    talk_close(&c.t);
    chat_input_close(c.in);
    free(c.attached);
    free(c.begun);
    return output_finish(c.failed ? EXIT_FAILED : EXIT_OK);
}
