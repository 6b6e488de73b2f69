/* Directories of a pulled model in the cache: ORG/REPO, always complete, and the hidden stage ORG/.REPO.pull. */
#ifndef HEARTH_APP_PULL_STORE_H
#define HEARTH_APP_PULL_STORE_H

#include "formats/json.h"
#include "pull_hub.h"

typedef struct pull_store {
    char *target;       /* the model's directory; it need not exist yet */
    char *stage;        /* download directory, created by pull_store_lock */
    size_t models;      /* length of the prefix of these paths that is the directory of all models */
    int lock;           /* descriptor of the stage; -1: not locked */
    ht_json *installed; /* record of `target` */
    ht_json *staged;    /* record of `stage`; NULL until it is locked */
} pull_store;

/* `models`: the directory of all models, which need not exist. Call pull_store_close also after a failure. */
ht_status pull_store_open(const char *models, const char *repo, pull_store *out, ht_error *err);
/* Also removes an empty stage. */
void pull_store_close(pull_store *s);

/* Creates the stage, locks it for this process, and repairs an interrupted installation.
 * HT_ERR_BUSY when another process holds the lock. */
ht_status pull_store_lock(pull_store *s, ht_error *err);

/* Whether a stage exists, in use or left by an earlier process. */
bool pull_store_is_begun(const pull_store *s);
/* Removes staged files that the hub no longer has or that are already installed. */
ht_status pull_store_drop_stale(pull_store *s, const hub_listing *l, ht_error *err);

/* Joins directory and path and appends `suffix`, in fresh memory; NULL when memory ran out. */
char *pull_store_path(const char *directory, const char *within, const char *suffix);
/* Free bytes on the stage's file system; -1 if unknown. */
int64_t pull_store_free_bytes(const pull_store *s);

/* Whether a complete, verified file is in the model's directory, or in the stage. */
bool pull_store_has(const pull_store *s, const hub_file *f);
bool pull_store_has_staged(const pull_store *s, const hub_file *f);
/* Bytes fetched so far of an unfinished file. */
int64_t pull_store_part_bytes(const pull_store *s, const hub_file *f);

/* Installs the chosen files, all of which have been fetched, in one atomic step. Other models in the directory stay;
 * pulled safetensors files that are no longer chosen are removed. */
ht_status pull_store_install(pull_store *s, const hub *h, const char *revision, const pull_choice *c, ht_error *err);

/* Removes a pulled model's directory and stage; *found says whether they existed. `models` must not be empty. */
ht_status pull_store_remove(const char *models, const char *repo, bool *found, ht_error *err);
/* Removes a directory's additional pulled files when it has no models left. */
void pull_store_sweep(const char *directory);

/* ---- records of a directory's pulled files: hash, size and time, and ETags of unfinished files ---- */

/* Whether the directory was pulled: it has a record. */
bool pull_state_exists(const char *directory);
/* Replaces the record as a whole. */
ht_status pull_state_write(const char *directory, const ht_json *state, ht_error *err);

/* Records the repository, revision and commit of the files. */
ht_status pull_state_set_source(ht_json *state, const hub *h, const char *revision, ht_error *err);
/* Whether `revision` is the directory's last requested revision or its commit. */
bool pull_state_is_of(const char *directory, const char *revision);

/* Records that an existing file has f->hash. */
ht_status pull_state_add(ht_json *state, const char *directory, const hub_file *f, ht_error *err);

/* ETag of the unfinished file with that hash, "" if the server sent none; NULL when there is no such file. */
const char *pull_state_etag(const ht_json *state, const hub_file *f);
ht_status pull_state_set_etag(ht_json *state, const hub_file *f, const char *etag, ht_error *err);
void pull_state_drop_part(ht_json *state, const char *path);

/* ---- resumable, verified transfers into the stage, with retries (pull_file.c) ---- */

/* Fetches n files into s->stage and verifies them, with settings->connections in parallel. The first failure ends all
 * transfers; correct bytes are kept. HT_ERR_CANCELLED after an interruption. */
ht_status pull_files(const hub *h, pull_store *s, const hub_file *const *files, size_t n, ht_error *err);

/* Whether n bytes have the hash of a file. */
ht_status pull_hash_check(const hub_file *f, const char *bytes, size_t n, bool *good, ht_error *err);
/* Hashes an unrecorded file in the model's directory, and records it if it is correct. */
ht_status pull_file_adopt(pull_progress *show, pull_store *s, const hub_file *f, bool *good, ht_error *err);

#endif
