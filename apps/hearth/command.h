/* Subcommands: their names, options and entry points; commands.c holds the table. */
#ifndef HEARTH_APP_COMMAND_H
#define HEARTH_APP_COMMAND_H

#include "options.h"

/* Exit statuses of the program. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct command {
    const char *group; /* heading in the list of commands */
    const char *name;
    const char *arguments; /* for the usage line */
    const char *summary;   /* one line, for the list of commands */
    const char *details;   /* paragraphs of the command's help, for output_paragraphs; or NULL */
    unsigned bit;          /* in option_spec.commands */
    bool takes_model;      /* MODEL comes first */
    int most_arguments;    /* after MODEL; -1: any number */
    int (*run)(const options *o);
} command;

extern const command command_table[];
extern const int command_count;

const command *command_named(const char *name); /* NULL: there is none */
/* Prints the list of commands to stdout. */
void commands_help(void);

int chat_command(const options *o);
int completion_command(const options *o);
int man_command(const options *o);
int run_command(const options *o);
int info_command(const options *o);
int discover_command(const options *o);
int list_command(const options *o);
int rm_command(const options *o);
int pull_command(const options *o);
int tokenize_command(const options *o);
int detokenize_command(const options *o);
int logits_command(const options *o);
int inspect_command(const options *o);
int embed_command(const options *o);
int rerank_command(const options *o);
int formats_command(const options *o);
int eval_command(const options *o);
int imatrix_command(const options *o);
int bench_command(const options *o);
int bench_report_command(const options *o); /* hearth bench --report */
int doctor_command(const options *o);
int template_command(const options *o);
int adapter_command(const options *o);
int finetune_command(const options *o);
int fuse_command(const options *o);
int convert_command(const options *o);
int quantize_command(const options *o);
int split_command(const options *o);
int merge_command(const options *o);
int classify_command(const options *o);
int batch_command(const options *o);
int score_command(const options *o);
int serve_command(const options *o);

#endif
