/* hearth man: manual pages, from the tables of commands and options. */
#include "command.h"
#include "options_table.h"
#include "terminal.h"

#include <hearth/version.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void put(const char *text) { output_write(text, strlen(text)); }

/* Text that troff takes as it is: hyphens are those that are typed, and no line begins with a request. */
static void escaped(const char *text) {
    for (const char *at = text; *at; at++) {
        const bool begins = at == text || at[-1] == '\n';
        if (begins && (*at == '.' || *at == '\'')) put("\\&");
        if (*at == '\\')
            put("\\e");
        else if (*at == '-')
            put("\\-");
        else if (*at == '`' || *at == '\'')
            put(*at == '`' ? "\\(ga" : "\\(aq");
        else if (*at == '"' || *at == '^' || *at == '~')
            put(*at == '"' ? "\\(dq" : *at == '^' ? "\\(ha" : "\\(ti");
        else
            output_write(at, 1);
    }
}

static void title(const char *name) {
    put(".TH \"");
    for (; *name; name++) {
        const char upper = (char)toupper((unsigned char)*name);
        output_write(&upper, 1);
    };
    put("\" 1 \"\" \"hearth ");
    put(ht_version());
    put("\" \"Hearth\"\n");
}

static void option_entry(const option_spec *spec) {
    put(".TP\n\\fB");
    if (spec->letter) {
        put("\\-");
        output_write(&spec->letter, 1);
        put("\\fR, \\fB");
    }
    put("\\-\\-");
    escaped(spec->name);
    put("\\fR");
    if (spec->value) {
        put(" \\fI");
        escaped(spec->value);
        put("\\fR");
    }
    put("\n");
    escaped(spec->help);
    put("\n");
}

/* A page of a command. */
static void command_page(const command *c) {
    char name[64];
    snprintf(name, sizeof name, "hearth-%s", c->name);
    title(name);
    put(".SH NAME\n");
    escaped(name);
    put(" \\- ");
    escaped(c->summary);
    put("\n.SH SYNOPSIS\n.B hearth ");
    escaped(c->name);
    put("\n");
    if (*c->arguments) {
        escaped(c->arguments);
        put("\n");
    }
    put(".SH DESCRIPTION\n");
    escaped(c->summary);
    put("\n");
    if (c->details) {
        put(".PP\n");
        escaped(c->details);
        put("\n");
    }
    if (c->takes_model) {
        put(".PP\n");
        escaped(options_of_model);
        put("\n");
    }
    put(".SH OPTIONS\n");
    for (int i = 0; i < option_count; i++)
        if (option_table[i].commands & c->bit) option_entry(&option_table[i]);
    put(".SH \"EXIT STATUS\"\n0 for success, 1 for a failure, 2 for a mistake in usage. An interrupted command ends by "
        "the "
        "signal.\n.SH \"SEE ALSO\"\n.BR hearth (1)\n");
}

static void whole_page(void) {
    title("hearth");
    put(".SH NAME\nhearth \\- run and fine\\-tune language models on this machine\n"
        ".SH SYNOPSIS\n.B hearth\n.I COMMAND\n[\\fIARGUMENT\\fR...]\n"
        ".SH DESCRIPTION\nResults go to standard output, everything else to standard error.\n.SH COMMANDS\n");
    for (int i = 0; i < command_count; i++) {
        put(".TP\n\\fBhearth\\-");
        escaped(command_table[i].name);
        put("\\fR(1)\n");
        escaped(command_table[i].summary);
        put("\n");
    }
    put(".SH ENVIRONMENT\n"
        ".TP\n.B HEARTH_DEVICE\nwhat computes where \\fB\\-\\-device\\fR does not say: cpu, cuda, cuda:1\n"
        ".TP\n.B HEARTH_PYTHON\nthe interpreter of the backend mlx_lm\n"
        ".TP\n.B XDG_CACHE_HOME\nwhere the directory hearth of models, packed weights and the history of hearth\\-chat "
        "lies "
        "(~/.cache)\n"
        ".TP\n.B NO_COLOR\nnothing is dimmed on a terminal\n");
}

int man_command(const options *o) {
    const char *name = o->arguments.n ? o->arguments.items[0] : NULL;
    if (!name) {
        whole_page();
        return output_finish(EXIT_OK);
    }
    for (int i = 0; i < command_count; i++)
        if (strcmp(command_table[i].name, name) == 0) {
            command_page(&command_table[i]);
            return output_finish(EXIT_OK);
        }
    fprintf(stderr, "hearth man: there is no command of that name (see hearth --help)\n");
    return EXIT_USAGE;
}
