/* Records of what `hearth pull` has fetched into a directory: hash, size and time of each file, and the ETags of unfinished ones. */
#ifndef HEARTH_APP_PULL_STATE_H
#define HEARTH_APP_PULL_STATE_H

#include "formats/json.h"
#include "pull_hub.h"

/* The record's file in a directory; directories are searched for models without it, as its name is hidden. */
extern const char pull_state_name[];

/* The record of a directory, or an empty one where there is none or it cannot be understood; NULL when memory ran out. */
ht_json *pull_state_read(const char *directory);
/* Replaces the record as a whole. */
ht_status pull_state_write(const char *directory, const ht_json *state, ht_error *err);

/* Notes of which revision and commit of the repository the files are. */
ht_status pull_state_set_source(ht_json *state, const hub *h, const char *revision, ht_error *err);
/* Whether the files of a directory are of that revision: the one that was asked for last, or its commit. */
bool pull_state_is_of(const char *directory, const char *revision);

/* Notes that a file, which is there, has been found to have f->hash. */
ht_status pull_state_add(ht_json *state, const char *directory, const hub_file *f, ht_error *err);
/* Whether the file has been found to have f->hash, and has not been written to since. */
bool pull_state_has(const ht_json *state, const char *directory, const hub_file *f);

/* The ETag under which the unfinished file of that hash was fetched, "" when there was none; NULL when there is no such file. */
const char *pull_state_etag(const ht_json *state, const hub_file *f);
ht_status pull_state_set_etag(ht_json *state, const hub_file *f, const char *etag, ht_error *err);
void pull_state_drop_part(ht_json *state, const char *path);

#endif
