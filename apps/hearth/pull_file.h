/* Transfer of one file into the stage: from where an earlier one ended, checked by its hash, repeated as long as that helps. */
#ifndef HEARTH_APP_PULL_FILE_H
#define HEARTH_APP_PULL_FILE_H

#include "pull_store.h"

/* Fetches f into s->stage, which has it whole and checked afterwards. After a failure the bytes that came stay, unless they are wrong.
 * HT_ERR_CANCELLED when it was to stop. Different files may be fetched at once. */
ht_status pull_file(const hub *h, pull_store *s, const hub_file *f, ht_error *err);

/* Fetches n files, as many at once as the settings say. The first failure ends the others. (pull_files.c) */
ht_status pull_files(const hub *h, pull_store *s, const hub_file *const *files, size_t n, ht_error *err);

/* Whether a file in the model's directory that no record vouches for has the right bytes; it is recorded then. */
ht_status pull_file_adopt(pull_progress *show, pull_store *s, const hub_file *f, bool *good, ht_error *err);

#endif
