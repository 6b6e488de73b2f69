/* A hub's interface of HTTP: the commit that a revision is, the files of a repository at that commit, and their addresses. */
#ifndef HEARTH_APP_PULL_HUB_H
#define HEARTH_APP_PULL_HUB_H

#include "pull_http.h"
#include "pull_name.h"
#include "pull_retry.h"

enum { COMMIT_BYTES = 65, HASH_BYTES = 80 };

typedef struct hub_file {
    char *path; /* in the repository: plain names between slashes */
    int64_t size;
    char
        hash[HASH_BYTES]; /* "sha256:..." of the bytes, or "git:..." of git's blob of them; "" when the hub told none */
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

/* Adds the files of one page, n bytes of JSON. (pull_listing.c) */
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

#endif
