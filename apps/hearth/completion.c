/* hearth completion: what completes the words of the command in bash, zsh and fish, from the tables of commands and options. */
#include "command.h"
#include "options_table.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

static bool takes(const command *c, const option_spec *spec) { return (spec->commands & c->bit) != 0; }
static bool has_value(const option_spec *spec) { return spec->kind != KIND_FLAG; }
static bool names_files(const option_spec *spec) { return spec->kind == KIND_PATH || spec->kind == KIND_PATHS; }

/* Text in single quotes, with what ends them, and the characters of `special` behind a backslash, written so that the shell has it back. */
static void quoted(const char *text, const char *special) {
    output_write("'", 1);
    for (; *text; text++) {
        if (*text == '\'')
            output_write("'\\''", 4);
        else if (strchr(special, *text)) {
            output_write("\\", 1);
            output_write(text, 1);
        } else
            output_write(text, 1);
    }
    output_write("'", 1);
}

static void put(const char *text) { output_write(text, strlen(text)); }

static void choices_of(const option_spec *spec) {
    for (int i = 0; spec->choices[i]; i++) {
        put(i ? " " : "");
        put(spec->choices[i]);
    }
}

/* ---- bash ---- */

/* Whether no row before has the name. */
static bool is_first(int i) {
    for (int before = 0; before < i; before++)
        if (strcmp(option_table[before].name, option_table[i].name) == 0) return false;
    return true;
}

/* A pattern of `case` for the options of a kind. */
static bool bash_pattern(option_kind kind) {
    bool any = false;
    for (int i = 0; i < option_count; i++) {
        const option_spec *spec = &option_table[i];
        const char letter[] = {'|', '-', spec->letter, '\0'};
        if (spec->kind != kind || !is_first(i)) continue;
        put(any ? "|--" : "    --");
        put(spec->name);
        if (spec->letter) put(letter);
        any = true;
    }
    return any;
}

static void bash(void) {
    put("# Completion of hearth in bash, made by: hearth completion bash\n"
        "_hearth() {\n"
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=\n"
        "  COMPREPLY=()\n"
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "    COMPREPLY=($(compgen -W '");
    for (int i = 0; i < command_count; i++) {
        put(command_table[i].name);
        put(" ");
    }
    put("--help --version' -- \"$cur\"))\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < command_count; i++) {
        put("    ");
        put(command_table[i].name);
        put(") options='");
        for (int j = 0; j < option_count; j++) {
            if (!takes(&command_table[i], &option_table[j])) continue;
            put("--");
            put(option_table[j].name);
            put(" ");
        }
        put("' ;;\n");
    }
    put("  esac\n  case $prev in\n");
    for (int i = 0; i < option_count; i++) {
        if (option_table[i].kind != KIND_CHOICE || !is_first(i)) continue;
        put("    --");
        put(option_table[i].name);
        put(") COMPREPLY=($(compgen -W '");
        choices_of(&option_table[i]);
        put("' -- \"$cur\")); return ;;\n");
    }
    static const option_kind files[] = {KIND_PATH, KIND_PATHS};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (bash_pattern(files[i]))
            put(") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
    static const option_kind plain[] = {KIND_INTEGER, KIND_SEED,  KIND_NUMBER, KIND_SIZE,
                                        KIND_TEXT,    KIND_ORDER, KIND_BIAS};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (bash_pattern(plain[i])) put(") return ;;\n");
    put("  esac\n"
        "  case $cur in\n"
        "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); return ;;\n"
        "  esac\n"
        "  compopt -o filenames 2>/dev/null\n"
        "  COMPREPLY=($(compgen -f -- \"$cur\"))\n"
        "  case ${COMP_WORDS[1]} in\n    ");
    bool first = true;
    for (int i = 0; i < command_count; i++) {
        if (!command_table[i].takes_model && command_table[i].bit != FOR_RM) continue;
        put(first ? "" : "|");
        put(command_table[i].name);
        first = false;
    }
    put(") COMPREPLY+=($(compgen -W \"default $(hearth list 2>/dev/null | sed -n '2,$s/.*  //p')\" -- \"$cur\")) ;;\n"
        "  esac\n"
        "}\n"
        "complete -F _hearth hearth\n");
}

/* ---- zsh ---- */

static void zsh_option(const option_spec *spec) {
    char word[160];
    snprintf(word, sizeof word, "%s--%s", option_is_list(spec) ? "*" : "", spec->name);
    put(" \\\n        ");
    put(word);
    quoted("[", "");
    quoted(spec->help, "[]:\\");
    quoted("]", "");
    if (!has_value(spec)) return;
    quoted(":", "");
    quoted(spec->value ? spec->value : "VALUE", "[]:\\");
    if (names_files(spec)) quoted(":_files", "");
    if (spec->kind == KIND_CHOICE) {
        put("':(");
        choices_of(spec);
        put(")'");
    } else if (!names_files(spec))
        quoted(": ", "");
}

static void zsh(void) {
    put("#compdef hearth\n# Completion of hearth in zsh, made by: hearth completion zsh\n"
        "_hearth_models() {\n"
        "  local -a models\n"
        "  models=(default ${(f)\"$(hearth list 2>/dev/null | sed -n '2,$s/.*  //p')\"})\n"
        "  compadd -a models\n"
        "  _files\n"
        "}\n"
        "_hearth() {\n"
        "  local -a commands\n"
        "  commands=(\n");
    for (int i = 0; i < command_count; i++) {
        put("    ");
        put(command_table[i].name);
        quoted(":", "");
        quoted(command_table[i].summary, ":\\");
        put("\n");
    }
    put("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
        "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n");
    for (int i = 0; i < command_count; i++) {
        const command *c = &command_table[i];
        put("    ");
        put(c->name);
        put(")\n      _arguments");
        for (int j = 0; j < option_count; j++)
            if (takes(c, &option_table[j])) zsh_option(&option_table[j]);
        put(c->takes_model || c->bit == FOR_RM ? " \\\n        '*:model:_hearth_models' ;;\n"
                                               : " \\\n        '*:file:_files' ;;\n");
    }
    put("  esac\n}\nif [ \"$funcstack[1]\" = _hearth ]; then _hearth \"$@\"; else compdef _hearth hearth; fi\n");
}

/* ---- fish ---- */

static void fish(void) {
    put("# Completion of hearth in fish, made by: hearth completion fish\n"
        "complete -c hearth -n __fish_use_subcommand -f\n");
    for (int i = 0; i < command_count; i++) {
        const command *c = &command_table[i];
        put("complete -c hearth -n __fish_use_subcommand -f -a ");
        put(c->name);
        put(" -d ");
        quoted(c->summary, "\\");
        put("\n");
        for (int j = 0; j < option_count; j++) {
            const option_spec *spec = &option_table[j];
            if (!takes(c, spec)) continue;
            put("complete -c hearth -n '__fish_seen_subcommand_from ");
            put(c->name);
            put("' -l ");
            put(spec->name);
            if (spec->letter) {
                const char letter[] = {' ', '-', 's', ' ', spec->letter, '\0'};
                put(letter);
            }
            if (has_value(spec)) put(names_files(spec) ? " -rF" : " -x");
            if (spec->kind == KIND_CHOICE) {
                put(" -a '");
                choices_of(spec);
                put("'");
            }
            put(" -d ");
            quoted(spec->help, "\\");
            put("\n");
        }
        if (!c->takes_model && c->bit != FOR_RM) continue;
        put("complete -c hearth -n '__fish_seen_subcommand_from ");
        put(c->name);
        put("' -a '(echo default; hearth list 2>/dev/null | sed -n \"2,\\$s/.*  //p\")'\n");
    }
}

int completion_command(const options *o) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    const char *name = o->arguments.n ? o->arguments.items[0] : "";
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(name, shells[i].name) == 0) {
            shells[i].print();
            return output_finish(EXIT_OK);
        }
    fprintf(stderr, "hearth completion: bash, zsh or fish is needed (see hearth completion --help)\n");
    return EXIT_USAGE;
}
