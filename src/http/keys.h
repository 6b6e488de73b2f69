/* Keys that clients have to show, from a file with one a line.
 *
 * Kept and compared as SHA-256 hashes, every one of them each time, so that the time of a comparison tells nothing of any key or of their number's
 * order. A list is read-only once loaded: any thread. */
#ifndef HT_HTTP_KEYS_H
#define HT_HTTP_KEYS_H

#include "http/head.h"

#include <hearth/status.h>

#include <sys/types.h>

typedef struct http_keys http_keys;

/* Reads a file: one key a line, of visible ASCII characters, without spaces; empty lines and lines that begin with '#' are passed over. A file
 * without a key is HT_ERR_FORMAT. The caller frees *out. */
ht_status http_keys_load(const char *path, http_keys **out, ht_error *err);
/* The same from n bytes; `name` is for messages. */
ht_status http_keys_parse(const char *name, const char *bytes, size_t n, http_keys **out, ht_error *err);
void http_keys_free(http_keys *keys); /* NULL is fine */

/* The index in the list, from 0, of the key that a request shows, in "Authorization: Bearer KEY" or in "x-api-key: KEY"; -1: it shows none, or
 * none of them. */
ssize_t http_keys_admit(const http_keys *keys, const http_head *head);

#endif
