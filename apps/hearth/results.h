/* Results of many prompts: a JSON object a line, in a file that an interrupted command goes on with. */
#ifndef HEARTH_APP_RESULTS_H
#define HEARTH_APP_RESULTS_H

#include "prompts.h"

typedef struct result_file {
    FILE *file; /* NULL: standard output */
    const char *path;
    size_t done;  /* results that were there */
    ht_json *run; /* the first result's record of what they are of: model, prompts and options */
} result_file;

/* Opens the file of --out, whose whole lines have to be results of prompts 0, 1 and so on, of which there are n; a line that is torn
 * goes, and with `replace` all of them. NULL: standard output. To be closed after a failure, too. */
ht_status results_open(const char *path, size_t n, bool replace, result_file *out, ht_error *err);
/* Compares results that were there with a run: "command", "model", "prompts" and "options", an object; what `run` lacks is not compared.
 * HT_ERR_ARGUMENT names the first difference. */
ht_status results_check(const result_file *r, const ht_json *run, ht_error *err);
/* Writes a line and gives the value back; the first one of a file with the record in r->run. */
ht_status results_write(result_file *r, ht_json *value, ht_error *err);
ht_status results_close(result_file *r, ht_error *err);
/* The beginning of a result: the number of the prompt and the "id" of its line; with an error's message all of it. */
ht_json *result_of(prompt_file *prompts, size_t index, const char *error);

#endif
