/* hearth completion: shell completion scripts for bash, zsh and fish, generated from the command and option tables. */
#include "command.h"
#include "options_table.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

static bool has_value(const option_spec *spec) { return spec->kind != KIND_FLAG; }
static bool names_files(const option_spec *spec) { return spec->kind == KIND_PATH || spec->kind == KIND_PATHS; }
static bool names_models(const command *c) { return c->takes_model || c->bit == FOR_RM; }

/* Prints a single-quoted shell word, with a backslash before each character in `special`. */
static void quoted(const char *text, const char *special) {
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'')
            printf("'\\''");
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
    putchar('\'');
}

static void choices_of(const option_spec *spec) {
    for (int i = 0; spec->choices[i]; i++) printf("%s%s", i ? " " : "", spec->choices[i]);
}

/* ---- bash ---- */

/* Whether no earlier row has the same name. */
static bool is_first(int i) {
    for (int before = 0; before < i; before++)
        if (strcmp(option_table[before].name, option_table[i].name) == 0) return false;
    return true;
}

/* Prints a case branch that runs `action` for all options of a kind. */
static void bash_case(option_kind kind, const char *action) {
    bool any = false;
    for (int i = 0; i < option_count; i++) {
        const option_spec *spec = &option_table[i];
        if (spec->kind != kind || !is_first(i)) continue;
        printf("%s%s", any ? "|--" : "    --", spec->name);
        if (spec->letter) printf("|-%c", spec->letter);
        any = true;
    }
    if (any) printf(") %s ;;\n", action);
}

static void bash(void) {
    printf("# Completion of hearth in bash, made by: hearth completion bash\n"
           "_hearth() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=\n"
           "  COMPREPLY=()\n"
           "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "    COMPREPLY=($(compgen -W '");
    for (int i = 0; i < command_count; i++) printf("%s ", command_table[i].name);
    printf("--help --version' -- \"$cur\"))\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < command_count; i++) {
        printf("    %s) options='", command_table[i].name);
        for (int j = 0; j < option_count; j++)
            if (option_table[j].commands & command_table[i].bit) printf("--%s ", option_table[j].name);
        printf("' ;;\n");
    }
    printf("  esac\n  case $prev in\n");
    for (int i = 0; i < option_count; i++) {
        if (option_table[i].kind != KIND_CHOICE || !is_first(i)) continue;
        printf("    --%s) COMPREPLY=($(compgen -W '", option_table[i].name);
        choices_of(&option_table[i]);
        printf("' -- \"$cur\")); return ;;\n");
    }
    static const char files[] = "compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\")); return";
    static const option_kind plain[] = {KIND_INTEGER, KIND_SEED,  KIND_NUMBER, KIND_SIZE,
                                        KIND_TEXT,    KIND_ORDER, KIND_BIAS};
    bash_case(KIND_PATH, files);
    bash_case(KIND_PATHS, files);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) bash_case(plain[i], "return");
    printf("  esac\n"
           "  case $cur in\n"
           "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); return ;;\n"
           "  esac\n"
           "  compopt -o filenames 2>/dev/null\n"
           "  COMPREPLY=($(compgen -f -- \"$cur\"))\n"
           "  case ${COMP_WORDS[1]} in\n    ");
    const char *before = "";
    for (int i = 0; i < command_count; i++) {
        if (!names_models(&command_table[i])) continue;
        printf("%s%s", before, command_table[i].name);
        before = "|";
    }
    printf(
        ") COMPREPLY+=($(compgen -W \"default $(hearth list 2>/dev/null | sed -n '2,$s/.*  //p')\" -- \"$cur\")) ;;\n"
        "  esac\n"
        "}\n"
        "complete -F _hearth hearth\n");
}

/* ---- zsh ---- */

static void zsh_option(const option_spec *spec) {
    printf(" \\\n        %s--%s", option_is_list(spec) ? "*" : "", spec->name);
    quoted("[", "");
    quoted(spec->help, "[]:\\");
    quoted("]", "");
    if (!has_value(spec)) return;
    quoted(":", "");
    quoted(spec->value ? spec->value : "VALUE", "[]:\\");
    if (spec->kind == KIND_CHOICE) {
        printf("':(");
        choices_of(spec);
        printf(")'");
    } else
        quoted(names_files(spec) ? ":_files" : ": ", "");
}

static void zsh(void) {
    printf("#compdef hearth\n# Completion of hearth in zsh, made by: hearth completion zsh\n"
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
        printf("    %s", command_table[i].name);
        quoted(":", "");
        quoted(command_table[i].summary, ":\\");
        printf("\n");
    }
    printf("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
           "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n");
    for (int i = 0; i < command_count; i++) {
        const command *c = &command_table[i];
        printf("    %s)\n      _arguments", c->name);
        for (int j = 0; j < option_count; j++)
            if (option_table[j].commands & c->bit) zsh_option(&option_table[j]);
        printf(" \\\n        '*:%s' ;;\n", names_models(c) ? "model:_hearth_models" : "file:_files");
    }
    printf("  esac\n}\nif [ \"$funcstack[1]\" = _hearth ]; then _hearth \"$@\"; else compdef _hearth hearth; fi\n");
}

/* ---- fish ---- */

static void fish_option(const command *c, const option_spec *spec) {
    printf("complete -c hearth -n '__fish_seen_subcommand_from %s' -l %s", c->name, spec->name);
    if (spec->letter) printf(" -s %c", spec->letter);
    if (has_value(spec)) printf(names_files(spec) ? " -rF" : " -x");
    if (spec->kind == KIND_CHOICE) {
        printf(" -a '");
        choices_of(spec);
        printf("'");
    }
    printf(" -d ");
    quoted(spec->help, "\\");
    printf("\n");
}

static void fish(void) {
    printf("# Completion of hearth in fish, made by: hearth completion fish\n"
           "complete -c hearth -n __fish_use_subcommand -f\n");
    for (int i = 0; i < command_count; i++) {
        const command *c = &command_table[i];
        printf("complete -c hearth -n __fish_use_subcommand -f -a %s -d ", c->name);
        quoted(c->summary, "\\");
        printf("\n");
        for (int j = 0; j < option_count; j++)
            if (option_table[j].commands & c->bit) fish_option(c, &option_table[j]);
        if (names_models(c))
            printf(
                "complete -c hearth -n '__fish_seen_subcommand_from %s' -a '(echo default; hearth list 2>/dev/null | "
                "sed -n \"2,\\$s/.*  //p\")'\n",
                c->name);
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
    return usage_error(o, "bash, zsh or fish is needed");
}
