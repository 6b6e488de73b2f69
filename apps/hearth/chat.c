/* hearth chat: a conversation, a line at a time. */
#include "chat.h"

#include "base/grow.h"
#include "command.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char quotes[] = "\"\"\""; /* around a message of several lines */

void chat_report(chat *c, const ht_error *err) {
    report(err);
    c->failed |= !chat_input_is_terminal(c->in);
}

static void out_of_memory(chat *c) {
    fprintf(stderr, "hearth: out of memory for the message\n");
    c->failed = true;
}

/* ---- answers ---- */

/* What no longer fits: whether the oldest exchange may be forgotten is the user's to say. */
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
    if (!interrupted()) interrupt_taken(); /* the answer's end is all that was asked for */
    if (st && st != HT_ERR_CANCELLED && st != HT_ERR_LIMIT) report(&err);
    c->failed |= st && st != HT_ERR_CANCELLED;
}

static void say(chat *c, const char *text) {
    ht_error err = {0};
    char *whole = NULL;
    if (c->attached) {
        const size_t n = strlen(c->attached) + strlen(text) + 1;
        whole = malloc(n);
        if (!whole) {
            out_of_memory(c);
            return;
        }
        snprintf(whole, n, "%s%s", c->attached, text);
    }
    const ht_status st = talk_say(&c->t, whole ? whole : text, &err);
    free(whole);
    if (st) {
        chat_report(c, &err);
        return;
    }
    chat_answer(c);
    if (!talk_is_answered(&c->t)) c->begun = talk_undo(&c->t); /* to be tried again, with what was attached in it */
    free(c->attached);
    c->attached = NULL;
}

/* ---- lines ---- */

typedef struct text {
    char *bytes;
    size_t n, capacity;
    bool failed;
} text;

static void append(text *t, const char *bytes, size_t n) {
    t->failed = t->failed || !HT_GROW(t->bytes, t->capacity, t->n + n + 1);
    if (t->failed) return;
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    t->bytes[t->n] = '\0';
}

/* The message that begins with quotes: what follows up to others, which may be many lines below. False where the line was given up. */
static bool read_quoted(chat *c, const char *line, text *whole) {
    line += strlen(quotes);
    for (;;) {
        const char *end = strstr(line, quotes);
        append(whole, line, end ? (size_t)(end - line) : strlen(line));
        if (end) return true;
        if (whole->n) append(whole, "\n", 1);
        if (chat_input_next(c->in, "... ", NULL, &line) != LINE_READ) return false;
    }
}

static bool is_blank(const char *line) { return line[strspn(line, " \t\n")] == '\0'; }

static void take_line(chat *c, const char *line) {
    if (strncmp(line, quotes, strlen(quotes)) == 0) {
        text whole = {0};
        if (read_quoted(c, line, &whole) && !whole.failed && !is_blank(whole.bytes)) say(c, whole.bytes);
        if (whole.failed) out_of_memory(c);
        free(whole.bytes);
    } else if (line[0] == '/' && line[1] != '/') {
        chat_run_command(c, line);
    } else if (!is_blank(line)) {
        say(c, line[0] == '/' ? line + 1 : line); /* "//" is a slash */
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
        char *copy = strdup(line); /* as a command may read others */
        if (copy)
            take_line(c, copy);
        else
            out_of_memory(c);
        free(copy);
    }
}

/* ---- the command ---- */

/* PROMPT, and behind it what standard input holds where that is no terminal. */
static void say_prompt(chat *c, const char *prompt) {
    text whole = {0};
    char *input = NULL;
    size_t n = 0;
    ht_error err = {0};
    append(&whole, prompt, strlen(prompt));
    if (!chat_input_is_terminal(c->in)) {
        if (input_read_all("the rest of the prompt", &input, &n, &err)) {
            chat_report(c, &err);
            free(whole.bytes);
            return;
        }
        while (n && (input[n - 1] == '\n' || input[n - 1] == '\r')) n--;
        if (n && *prompt) append(&whole, "\n\n", 2);
        char *clean = n ? text_to_utf8(input, n) : NULL;
        if (n && !clean) whole.failed = true;
        if (clean) append(&whole, clean, strlen(clean));
        free(clean);
        free(input);
        c->leaves = true;
    }
    if (whole.failed)
        out_of_memory(c);
    else if (!is_blank(whole.bytes))
        say(c, whole.bytes);
    free(whole.bytes);
}

static void greet(const chat *c) {
    if (chat_input_is_terminal(c->in) && !c->t.o.quiet)
        fprintf(stderr, "%s. /help lists commands, Ctrl-D leaves.\n", c->t.o.model);
}

int chat_command(const options *o) {
    ht_error err = {0};
    chat c = {.in = chat_input_open("chat")};
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
