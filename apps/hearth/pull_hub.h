/* A hub's HTTP API: resolves a revision to a commit and lists the repository's files at that commit, with URLs. */
#ifndef HEARTH_APP_PULL_HUB_H
#define HEARTH_APP_PULL_HUB_H

#include "pull_http.h"
#include "pull_name.h"

enum { COMMIT_BYTES = 65, HASH_BYTES = 80 };

typedef struct hub_file {
    char *path; /* in the repository: plain names separated by slashes */
    int64_t size;
    char hash[HASH_BYTES]; /* "sha256:..." of the bytes, or "git:..." of their git blob; "": unknown */
} hub_file;

typedef struct hub_listing {
    hub_file *file; /* sorted by path */
    size_t n;
} hub_listing;

typedef struct hub {
    http *http;
    const pull_settings *settings;
    pull_progress *show;
    const char *repo;
    char commit[COMMIT_BYTES];
} hub;

/* Resolves a revision (NULL: main) to its commit. */
ht_status hub_find_commit(hub *h, const char *revision, ht_error *err);
/* Lists all files of the commit. HT_ERR_FORMAT for a malformed listing or a path that would escape its directory. */
ht_status hub_list(const hub *h, hub_listing *out, ht_error *err);
void hub_listing_free(hub_listing *l);

/* Adds the files of one page, n bytes of JSON. */
ht_status hub_listing_add(hub_listing *l, const char *repo, const char *text, size_t n, ht_error *err);
/* Sorts the files, after the last page. HT_ERR_FORMAT for a duplicate path. */
ht_status hub_listing_finish(hub_listing *l, const char *repo, ht_error *err);
const hub_file *hub_find(const hub_listing *l, const char *path); /* NULL: none */

/* Downloads a small file, with retries, into fresh memory. The caller checks its hash. */
ht_status hub_read_file(const hub *h, const hub_file *f, char **text, size_t *n, ht_error *err);

/* The URL of a file in fresh memory; NULL when memory ran out. */
char *hub_file_address(const hub *h, const char *path);
/* Replaces the hub's error by one that says what to do. */
void hub_explain(const hub *h, const char *what, const http_answer *answer, ht_error *err);

/* ---- selection of one model's weights and additional files (pull_choose.c) ---- */

typedef struct pull_choice {
    const hub_file **file; /* borrowed from the listing */
    size_t n;
    const hub_file *gguf;  /* the GGUF file or its first part; NULL: safetensors */
    const hub_file *index; /* model.safetensors.index.json, whose shards choose_shards adds; NULL: none */
} pull_choice;

/* Chooses the files of `name` in h->repo. HT_ERR_ARGUMENT, with the available models, unless `name` selects exactly
 * one. The caller frees *out, also after a failure. */
ht_status choose_files(const hub *h, const hub_listing *l, const pull_name *name, pull_choice *out, ht_error *err);
/* Adds the shards named in the index, if there is one, and sorts all files by name. */
ht_status choose_shards(const hub *h, const hub_listing *l, const char *index, size_t n, pull_choice *c, ht_error *err);
void choice_free(pull_choice *c);

#endif
