/* API keys of clients, from a file with one per line.
 *
 * Keys are stored as SHA-256 hashes. Each check compares all of them, so that its duration reveals neither a key nor
 * its index. A list is immutable once loaded: any thread. */
#ifndef HT_HTTP_KEYS_H
#define HT_HTTP_KEYS_H

#include "http/head.h"

#include <hearth/status.h>

#include <sys/types.h>

typedef struct http_keys http_keys;

/* Reads a file with one key per line: visible ASCII characters without spaces. Empty lines and lines that begin with
 * '#' are skipped. HT_ERR_FORMAT if it has no key. The caller frees *out. */
ht_status http_keys_load(const char *path, http_keys **out, ht_error *err);
/* The same from n bytes; `name` is for messages. */
ht_status http_keys_parse(const char *name, const char *bytes, size_t n, http_keys **out, ht_error *err);
void http_keys_free(http_keys *keys); /* NULL is fine */

/* The index, from 0, of the request's key in "Authorization: Bearer KEY" or "x-api-key: KEY"; -1: no key, or an
 * unknown one. */
ssize_t http_keys_admit(const http_keys *keys, const http_head *head);

#endif
