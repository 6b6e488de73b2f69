/* Hashes by which a hub names bytes: SHA-256 of them, or git's hash of the blob that they are. */
#ifndef HEARTH_APP_PULL_HASH_H
#define HEARTH_APP_PULL_HASH_H

#include "pull_hub.h"

#include <stddef.h>

typedef struct pull_hash pull_hash;

/* Begins the hash of the kind that f->hash is. */
ht_status pull_hash_new(const hub_file *f, pull_hash **out, ht_error *err);
void pull_hash_free(pull_hash *h); /* NULL is fine */
/* False when the library failed, which it does not say why. */
bool pull_hash_restart(pull_hash *h);
bool pull_hash_add(pull_hash *h, const void *bytes, size_t n);
/* The hash in the form of f->hash; nothing can be added after it. */
bool pull_hash_end(pull_hash *h, char out[HASH_BYTES]);
/* Adds the first n bytes of a file; HT_ERR_IO when it has fewer, HT_ERR_CANCELLED when a signal came. `path` is for messages. */
ht_status pull_hash_file(pull_hash *h, int fd, int64_t n, const char *path, ht_error *err);

#endif
