/* Commands on many prompts: shared setup, resumable results, and the final report. */
#ifndef HEARTH_APP_MANY_H
#define HEARTH_APP_MANY_H

#include "engine.h"
#include "prompts.h"
#include "terminal.h"

/* Results: one JSON object per line, in a file that an interrupted command can resume. */
typedef struct result_file {
    FILE *file; /* NULL: standard output */
    const char *path;
    size_t done;  /* results of an earlier run */
    ht_json *run; /* record of model, prompts and options, stored in the first result */
} result_file;

typedef struct many {
    const options *o;
    engine e;
    prompt_file prompts;
    result_file results;
    prompt_line line; /* latest line read */
    progress shown;
    size_t failed, done; /* prompts of this run */
    ht_error err;        /* of writing results, which ends the run */
    double begin;
} many;

/* Opens model, prompts and results. Prints usage errors itself; returns an exit status. */
int many_open(many *m, const options *o);
/* Closes everything and prints the final report, including a failure `status` with `err`. */
int many_close(many *m, ht_status status, const ht_error *err);

/* Number of remaining prompts, and the file index of the i-th of them. */
static inline size_t many_left(const many *m) { return m->prompts.n - m->results.done; }
static inline size_t many_index(const many *m, size_t i) { return m->results.done + i; }

/* Starts the result of the i-th remaining prompt with its index and "id"; with `error` the result is complete. */
ht_json *many_result(many *m, size_t i, const char *error);
/* Writes and counts a result and shows progress; false to stop. */
bool many_write(many *m, ht_json *result, bool failed);
/* Whether an interruption left the result incomplete, so that it must not be written. */
bool many_interrupted(ht_status status);

#endif
