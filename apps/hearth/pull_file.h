/* Transfer of one file into the stage: from where an earlier one ended, checked by its hash, repeated as long as that helps. */
#ifndef HEARTH_APP_PULL_FILE_H
#define HEARTH_APP_PULL_FILE_H

#include "pull_store.h"

/* Fetches f into s->stage, which has it whole and checked afterwards. After a failure the bytes that came stay, unless they are wrong.
 * `before` are the bytes of other files that are done, for the progress of h->show. HT_ERR_CANCELLED when a signal came. */
ht_status pull_file(const hub *h, pull_store *s, const hub_file *f, int64_t before, ht_error *err);

/* Whether a file in the model's directory that no record vouches for has the right bytes; it is recorded then. */
ht_status pull_file_adopt(pull_progress *show, pull_store *s, const hub_file *f, bool *good, ht_error *err);

#endif
