/* Outputs of commands: whether they may be written, and files that appear whole. */
#ifndef HEARTH_APP_WRITTEN_H
#define HEARTH_APP_WRITTEN_H

#include "options.h"

#include <stdio.h>

/* HT_ERR_ARGUMENT where something is at `path` and --force is not given; an empty directory is nothing, and a device or a pipe. */
ht_status output_check(const options *o, const char *path, ht_error *err);
/* Opens a temporary file that output_close renames to `path`, or removes if writing failed. NULL, with the error, if it cannot be
 * opened. */
FILE *output_open(const char *path, ht_error *err);
ht_status output_close(FILE *f, const char *path, ht_error *err);
/* The same of the checkpoint that a command writes, its first argument behind MODEL, with any parts of it beside each other. Not of MODEL
 * itself, which the library replaces in no case. A name that means a model of the cache is HT_ERR_ARGUMENT, too: it could not be loaded. */
ht_status checkpoint_output_check(const options *o, ht_error *err);

#endif
