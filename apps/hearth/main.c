/* The `hearth` command: dispatches to the subcommand with its parsed options. */
#include "command.h"
#include "model_path.h"
#include "nearest.h"
#include "terminal.h"

#include <hearth/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The word is untrusted: warn() keeps it on one line, without control characters. */
static int refuse_word(const char *word, const char *why) {
    warn("\"%.80s\" %s (see hearth --help)", word, why);
    return EXIT_USAGE;
}

static int refuse_command(const char *name) {
    char why[512] = "is no command; ";
    nearest best = nearest_to(name, strlen(name));
    for (int i = 0; i < command_count; i++) nearest_try(&best, command_table[i].name);
    if (best.word) snprintf(why, sizeof why, "is no command, the nearest is %s", best.word);
    for (int i = 0; i < command_count && !best.word; i++) {
        const char *before = i == 0 ? "" : i == command_count - 1 ? " and " : ", ";
        const size_t n = strlen(why);
        snprintf(why + n, sizeof why - n, "%s%s%s", before, command_table[i].name,
                 i == command_count - 1 ? " are" : "");
    }
    return refuse_word(name, why);
}

static int run_subcommand(const command *c, int argc, char **argv) {
    options o;
    int status = EXIT_USAGE;
    if (options_parse(c, argc, argv, &o)) {
        if (o.help) {
            options_help(c);
            status = output_finish(EXIT_OK);
        } else {
            if (!o.quiet) notes_begin();
            status = c->run(&o);
        }
    }
    options_free(&o);
    return interrupt_end(status);
}

/* First steps, for new users. */
static int say_what_to_type(void) {
    char *path;
    ht_error missing = {0};
    const bool has_default = model_path("default", &path, &missing) == HT_OK;
    fprintf(stderr, "hearth runs language models on this machine.\n\n");
    if (has_default)
        fprintf(stderr, "  %-30s %s\n", "hearth chat default", "Talk with the small model that has been fetched.");
    else
        fprintf(stderr, "  %-30s %s\n", "scripts/fetch-model", "Fetch a small model, from the sources' directory.");
    fprintf(stderr, "  %-30s %s\n  %-30s %s\n  %-30s %s\n  %-30s %s\n  %-30s %s\n", "hearth pull ORG/REPO",
            "Fetch a model from the Hugging Face hub.", "hearth chat model.gguf", "Talk with another.",
            "hearth discover DIR", "Find the models under a directory.", "hearth list", "List those in the cache.",
            "hearth --help", "List all commands.");
    free(path);
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    terminal_begin();
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) return say_what_to_type();
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    bool version = strcmp(name, "--version") == 0;
    if (argc > (help ? 3 : 2) && (help || version)) return refuse_word(argv[help ? 3 : 2], "is an unexpected argument");
    if (help && argc > 2) {
        name = argv[2];
    } else if (help) {
        commands_help();
        return output_finish(EXIT_OK);
    }
    if (version) {
        printf("hearth %s\n", ht_version());
        return output_finish(EXIT_OK);
    }
    const command *c = command_named(name);
    if (!c) return refuse_command(name);
    if (help) {
        options_help(c);
        return output_finish(EXIT_OK);
    }
    return run_subcommand(c, argc - 2, argv + 2);
}
