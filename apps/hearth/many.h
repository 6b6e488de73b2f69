/* Commands on many prompts: the model, the prompts and the results of one, and how it ends. */
#ifndef HEARTH_APP_MANY_H
#define HEARTH_APP_MANY_H

#include "engine.h"
#include "prompts.h"
#include "terminal.h"

/* Results: a JSON object a line, in a file that an interrupted command goes on with. */
typedef struct result_file {
    FILE *file; /* NULL: standard output */
    const char *path;
    size_t done;  /* results that were there */
    ht_json *run; /* the first result's record of what they are of: model, prompts and options */
} result_file;

typedef struct many {
    const options *o;
    engine e;
    prompt_file prompts;
    result_file results;
    prompt_line line; /* the one that was read last */
    progress shown;
    size_t failed, done; /* prompts, those of an earlier run not counted */
    ht_error err;        /* of writing results, which stops all of it */
    double begin;
} many;

/* Opens all of it, for prompts that are as long as they come. Says a mistake of the command line itself; returns an exit status. */
int many_open(many *m, const options *o);
/* Closes and reports all that is left to say after a call that returned `status` with `err`. */
int many_close(many *m, ht_status status, const ht_error *err);

/* Prompts that are left, and the place of prompt i of them in the file. */
static inline size_t many_left(const many *m) { return m->prompts.n - m->results.done; }
static inline size_t many_index(const many *m, size_t i) { return m->results.done + i; }

/* The beginning of a result of prompt i of those: its number and the "id" of its line; with an error's message all of it. */
ht_json *many_result(many *m, size_t i, const char *error);
/* Writes the result of a prompt, counts it and shows the progress; false to stop. */
bool many_write(many *m, ht_json *result, bool failed);
/* Whether a result is not one, as the command was interrupted before it was whole. */
bool many_interrupted(ht_status status);

#endif
