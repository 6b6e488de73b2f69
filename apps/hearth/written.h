/* Outputs of commands: overwrite checks and atomic writes. */
#ifndef HEARTH_APP_WRITTEN_H
#define HEARTH_APP_WRITTEN_H

#include "options.h"

#include <stdio.h>

/* HT_ERR_ARGUMENT if `path` exists and --force is not given. Empty directories, devices and pipes are allowed. */
ht_status output_check(const options *o, const char *path, ht_error *err);
/* Opens a temporary file that output_close renames to `path`, or removes if writing failed. NULL with *err on failure. */
FILE *output_open(const char *path, ht_error *err);
ht_status output_close(FILE *f, const char *path, ht_error *err);
/* The same for the first argument after MODEL, a checkpoint, including its split parts. The library itself refuses to
 * overwrite MODEL. The name of a cached model is HT_ERR_ARGUMENT, too: it would hide the new checkpoint. */
ht_status checkpoint_output_check(const options *o, ht_error *err);

#endif
