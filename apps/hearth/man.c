/* hearth man: manual pages generated from the command and option tables, shown in a pager on a terminal. */
#include "command.h"
#include "options_table.h"
#include "terminal.h"

#include <hearth/version.h>

#include <ctype.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static FILE *to; /* memory stream of the page */

/* Escapes text for troff: hyphens stay ASCII, and no line begins with a request. */
static void escaped(const char *text) {
    static const char *const escapes[][2] = {{"\\", "\\e"},   {"-", "\\-"},   {"`", "\\(ga"}, {"'", "\\(aq"},
                                             {"\"", "\\(dq"}, {"^", "\\(ha"}, {"~", "\\(ti"}};
    enum { N_ESCAPES = sizeof escapes / sizeof *escapes };
    for (const char *at = text; *at; at++) {
        const bool begins = at == text || at[-1] == '\n';
        if (begins && (*at == '.' || *at == '\'')) fputs("\\&", to);
        size_t i = 0;
        while (i < N_ESCAPES && escapes[i][0][0] != *at) i++;
        if (i < N_ESCAPES)
            fputs(escapes[i][1], to);
        else
            fputc(*at, to);
    }
}

/* Writes escaped text between raw troff. */
static void put(const char *before, const char *text, const char *after) {
    fputs(before, to);
    escaped(text);
    fputs(after, to);
}

static void title(const char *name) {
    fputs(".TH \"", to);
    for (; *name; name++) fputc(toupper((unsigned char)*name), to);
    fprintf(to, "\" 1 \"\" \"hearth %s\" \"Hearth\"\n", ht_version());
}

static void option_entry(const option_spec *spec) {
    fputs(".TP\n\\fB", to);
    if (spec->letter) fprintf(to, "\\-%c\\fR, \\fB", spec->letter);
    put("\\-\\-", spec->name, "\\fR");
    if (spec->value) put(" \\fI", spec->value, "\\fR");
    put("\n", spec->help, "\n");
}

/* Paragraphs in the format of output_paragraphs. */
static void paragraphs(const char *text) {
    for (const char *end; *text; text = end + strspn(end, "\n")) {
        char paragraph[2048];
        end = strstr(text, "\n\n");
        if (!end) end = text + strlen(text);
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)(end - text), text);
        put(".PP\n", paragraph, "\n");
    }
}

/* A page of a command. */
static void command_page(const command *c) {
    char name[64];
    snprintf(name, sizeof name, "hearth-%s", c->name);
    title(name);
    put(".SH NAME\n", name, " \\- ");
    put("", c->summary, "\n.SH SYNOPSIS\n.B hearth ");
    put("", c->name, "\n");
    if (*c->arguments) put("", c->arguments, "\n");
    put(".SH DESCRIPTION\n", c->summary, "\n");
    if (c->details) paragraphs(c->details);
    if (c->takes_model) put(".PP\n", options_of_model, "\n");
    fputs(".SH OPTIONS\n", to);
    for (int i = 0; i < option_count; i++)
        if (option_table[i].commands & c->bit) option_entry(&option_table[i]);
    fputs(
        ".SH \"EXIT STATUS\"\n0 for success, 1 for a failure, 2 for a mistake in usage. An interrupted command ends by "
        "the signal.\n.SH \"SEE ALSO\"\n.BR hearth (1)\n",
        to);
}

static void whole_page(void) {
    title("hearth");
    fputs(".SH NAME\nhearth \\- run and fine\\-tune language models on this machine\n"
          ".SH SYNOPSIS\n.B hearth\n.I COMMAND\n[\\fIARGUMENT\\fR...]\n"
          ".SH DESCRIPTION\nResults go to standard output, everything else to standard error.\n.SH COMMANDS\n",
          to);
    for (int i = 0; i < command_count; i++) {
        if (i == 0 || strcmp(command_table[i].group, command_table[i - 1].group) != 0)
            fprintf(to, ".SS \"%s\"\n", command_table[i].group);
        put(".TP\n\\fBhearth\\-", command_table[i].name, "\\fR(1)\n");
        put("", command_table[i].summary, "\n");
    }
    fputs(
        ".SH ENVIRONMENT\n"
        ".TP\n.B HEARTH_DEVICE\ncompute device without \\fB\\-\\-device\\fR: cpu, cuda, cuda:1\n"
        ".TP\n.B HEARTH_PYTHON\nPython interpreter of the backend mlx_lm\n"
        ".TP\n.B XDG_CACHE_HOME\ncontains the directory hearth, with models, packed weights and the history of hearth "
        "chat (~/.cache)\n"
        ".TP\n.B NO_COLOR\ndo not dim text on a terminal\n",
        to);
}

/* ---- on a terminal ---- */

/* Pipes the page to a formatter that shows it; false if the program is missing or fails. */
static bool show_by(const char *const *words, const char *page, size_t n) {
    int ends[2], status = -1;
    pid_t child;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t as_usual;
    if (pipe(ends)) return false;
    sigemptyset(&as_usual);
    sigaddset(&as_usual, SIGPIPE);
    sigaddset(&as_usual, SIGINT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &as_usual);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
    posix_spawn_file_actions_addclose(&files, ends[0]);
    posix_spawn_file_actions_addclose(&files, ends[1]);
    signal(SIGINT, SIG_IGN); /* the pager handles Ctrl-C */
    const bool begun = posix_spawnp(&child, words[0], &files, &attributes, (char **)(uintptr_t)words, environ) == 0;
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(ends[0]);
    for (ssize_t written = 0; begun && n && (written = write(ends[1], page, n)) > 0; n -= (size_t)written)
        page += written;
    close(ends[1]);
    if (begun) waitpid(child, &status, 0);
    signal(SIGINT, SIG_DFL);
    return begun && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool show(const char *page, size_t n) {
    static const char *const man[] = {"man", "-l", "-", NULL}, *const mandoc[] = {"mandoc", "-a", NULL};
    return show_by(man, page, n) || show_by(mandoc, page, n);
}

int man_command(const options *o) {
    const char *name = o->arguments.n ? o->arguments.items[0] : NULL;
    const command *c = name ? command_named(name) : NULL;
    if (name && !c) {
        fprintf(stderr, "hearth man: there is no command of that name (see hearth --help)\n");
        return EXIT_USAGE;
    }
    char *page = NULL;
    size_t n = 0;
    to = open_memstream(&page, &n);
    if (!to) return EXIT_FAILED;
    if (c)
        command_page(c);
    else
        whole_page();
    const bool whole = fclose(to) == 0;
    if (!whole)
        fprintf(stderr, "hearth man: out of memory for the page\n");
    else if (!output_is_terminal())
        output_write(page, n);
    else if (!show(page, n)) /* fall back to plain text */
        c ? options_help(c) : commands_help();
    free(page);
    return output_finish(whole ? EXIT_OK : EXIT_FAILED);
}
