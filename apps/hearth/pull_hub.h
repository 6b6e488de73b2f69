/* A hub's interface of HTTP: the commit that a revision is, the files of a repository at that commit, and their addresses. */
#ifndef HEARTH_APP_PULL_HUB_H
#define HEARTH_APP_PULL_HUB_H

#include "pull_http.h"
#include "pull_name.h"

enum { COMMIT_BYTES = 65, HASH_BYTES = 80 };

typedef struct hub_file {
    char *path; /* in the repository: plain names between slashes */
    int64_t size;
    char hash[HASH_BYTES]; /* "sha256:..." of the bytes, or "git:..." of git's blob of them; "": unknown */
} hub_file;

typedef struct hub_listing {
    hub_file *file; /* in the order of their paths */
    size_t n;
} hub_listing;

typedef struct hub {
    http *http;
    const pull_settings *settings;
    pull_progress *show;
    const char *repo;
    char commit[COMMIT_BYTES];
} hub;

/* Finds the commit of a revision, NULL: main. */
ht_status hub_find_commit(hub *h, const char *revision, ht_error *err);
/* Lists all files of the commit. HT_ERR_FORMAT for an answer that is no listing, or names that would leave a directory. */
ht_status hub_list(const hub *h, hub_listing *out, ht_error *err);
void hub_listing_free(hub_listing *l);

/* Adds the files of one page, n bytes of JSON. */
ht_status hub_listing_add(hub_listing *l, const char *repo, const char *text, size_t n, ht_error *err);
/* Sorts the files, after the last page. HT_ERR_FORMAT for a name that comes twice, which could be either. */
ht_status hub_listing_finish(hub_listing *l, const char *repo, ht_error *err);
const hub_file *hub_find(const hub_listing *l, const char *path); /* NULL: none */

/* Reads a small file as a whole, however many tries it takes: *text in fresh memory, n bytes. Its hash is the caller's to check. */
ht_status hub_read_file(const hub *h, const hub_file *f, char **text, size_t *n, ht_error *err);

/* The address of a file in fresh memory; NULL when memory ran out. */
char *hub_file_address(const hub *h, const char *path);
/* Replaces a refusal of the hub by a sentence that says what to do. */
void hub_explain(const hub *h, const char *what, const http_answer *answer, ht_error *err);

/* ---- choice of the weights and what is read beside them, in one form out of many (pull_choose.c) ---- */

typedef struct pull_choice {
    const hub_file **file; /* of the listing */
    size_t n;
    const hub_file *gguf;  /* the GGUF file, or its first part; NULL: safetensors */
    const hub_file *index; /* model.safetensors.index.json, whose shards are not chosen yet; NULL: there is none */
} pull_choice;

/* Chooses the files that `name` means, of h->repo. HT_ERR_ARGUMENT, with what there is, when it is not one model. To be freed after a
 * failure, too. */
ht_status choose_files(const hub *h, const hub_listing *l, const pull_name *name, pull_choice *out, ht_error *err);
/* Adds the shards that the text of the index names, if there is one, and puts all files in the order of their names. */
ht_status choose_shards(const hub *h, const hub_listing *l, const char *index, size_t n, pull_choice *c, ht_error *err);
void choice_free(pull_choice *c);

#endif
