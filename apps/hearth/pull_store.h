/* Places of a pulled model in the cache: ORG/REPO, which is always whole, and beside it the hidden ORG/.REPO.pull, where files come in. */
#ifndef HEARTH_APP_PULL_STORE_H
#define HEARTH_APP_PULL_STORE_H

#include "formats/json.h"
#include "pull_hub.h"

typedef struct pull_store {
    char *target;       /* the model's directory; it need not be there yet */
    char *stage;        /* where its files are fetched to; made by pull_store_lock */
    size_t models;      /* bytes of these paths that are the directory of all models */
    int lock;           /* descriptor of the stage; -1: not locked */
    ht_json *installed; /* record of `target` */
    ht_json *staged;    /* record of `stage`; NULL until it is locked */
} pull_store;

/* `models` is the directory of all models, which need not be there. To be closed after a failure, too. */
ht_status pull_store_open(const char *models, const char *repo, pull_store *out, ht_error *err);
/* Takes away a stage that holds nothing. */
void pull_store_close(pull_store *s);

/* Makes the stage, which is this process's alone from now on, and puts in order what an earlier one may have left. HT_ERR_BUSY when another
 * process has it. */
ht_status pull_store_lock(pull_store *s, ht_error *err);

/* Whether there is a stage, of another process or left by an earlier one. */
bool pull_store_is_begun(const pull_store *s);
/* Removes from the stage what the hub has no longer and what the model's directory has. */
ht_status pull_store_drop_stale(pull_store *s, const hub_listing *l, ht_error *err);

/* Paths in fresh memory; NULL when memory ran out. `suffix` is put behind. */
char *pull_store_path(const char *directory, const char *within, const char *suffix);
/* The bytes that are free for files of the model; -1 where the system does not say. */
int64_t pull_store_free_bytes(const pull_store *s);

/* Whether a file is there, whole and checked: in the model's directory, or in the stage. */
bool pull_store_has(const pull_store *s, const hub_file *f);
bool pull_store_has_staged(const pull_store *s, const hub_file *f);
/* Bytes of an unfinished file that are there. */
int64_t pull_store_part_bytes(const pull_store *s, const hub_file *f);

/* Puts the chosen files, which are all there, into the model's directory, with those of other models that it holds: in one step, so that it
 * is whole at any time. Files of safetensors that are no longer chosen go. */
ht_status pull_store_install(pull_store *s, const hub *h, const char *revision, const pull_choice *c, ht_error *err);

/* Removes a model's directory that was pulled, whole or not; *found says whether there was one. `models` must not be empty. */
ht_status pull_store_remove(const char *models, const char *repo, bool *found, ht_error *err);
/* Removes what pulling put beside the models of a directory, when none of them is left. */
void pull_store_sweep(const char *directory);

/* ---- records of what has been fetched into a directory: hash, size and time of each file, and the ETags of unfinished ones ---- */

/* Whether the directory was pulled: it has a record. */
bool pull_state_exists(const char *directory);
/* Replaces the record as a whole. */
ht_status pull_state_write(const char *directory, const ht_json *state, ht_error *err);

/* Notes of which revision and commit of the repository the files are. */
ht_status pull_state_set_source(ht_json *state, const hub *h, const char *revision, ht_error *err);
/* Whether the files of a directory are of that revision: the one that was asked for last, or its commit. */
bool pull_state_is_of(const char *directory, const char *revision);

/* Notes that a file, which is there, has been found to have f->hash. */
ht_status pull_state_add(ht_json *state, const char *directory, const hub_file *f, ht_error *err);

/* The ETag under which the unfinished file of that hash was fetched, "" when there was none; NULL when there is no such file. */
const char *pull_state_etag(const ht_json *state, const hub_file *f);
ht_status pull_state_set_etag(ht_json *state, const hub_file *f, const char *etag, ht_error *err);
void pull_state_drop_part(ht_json *state, const char *path);

/* ---- transfer of files into the stage: from where an earlier one ended, checked by their hashes, repeated as long as that helps (pull_file.c) ---- */

/* Fetches n files into s->stage, which has them whole and checked afterwards, as many at once as the settings say. The first failure ends the
 * others; the bytes that came stay, unless they are wrong. HT_ERR_CANCELLED when it was to stop. */
ht_status pull_files(const hub *h, pull_store *s, const hub_file *const *files, size_t n, ht_error *err);

/* Whether n bytes have the hash of a file. */
ht_status pull_hash_check(const hub_file *f, const char *bytes, size_t n, bool *good, ht_error *err);
/* Whether a file in the model's directory that no record vouches for has the right bytes; it is recorded then. */
ht_status pull_file_adopt(pull_progress *show, pull_store *s, const hub_file *f, bool *good, ht_error *err);

#endif
