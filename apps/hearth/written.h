/* Outputs of commands: overwrite checks and atomic writes. */
#ifndef HEARTH_APP_WRITTEN_H
#define HEARTH_APP_WRITTEN_H

#include "options.h"

#include <stdio.h>

/* HT_ERR_ARGUMENT if `path` exists and --force is not given. Empty directories, devices and pipes are allowed. */
ht_status output_check(const options *o, const char *path, ht_error *err);
/* Opens a temporary file that output_close renames to `path`, or removes after a failed write. NULL: failed. */
FILE *output_open(const char *path, ht_error *err);
ht_status output_close(FILE *f, const char *path, ht_error *err);
/* The same for the first argument after MODEL, a checkpoint, including its split parts. MODEL itself is skipped: the
 * library never overwrites it. `default` and names of cached models are HT_ERR_ARGUMENT, because they are ambiguous. */
ht_status checkpoint_output_check(const options *o, ht_error *err);

#endif
