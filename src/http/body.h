/* Bodies of HTTP requests, of a known length or in chunks (RFC 9112, 7.1), read byte by byte from whatever pieces they come in,
 * without a socket.
 *
 * Memory grows with the bytes that have come, not with the length that a head promises. Extensions of chunks and trailer fields
 * are read and forgotten, within bounds. Any thread, one at a time for a body. */
#ifndef HT_HTTP_BODY_H
#define HT_HTTP_BODY_H

#include "http/head.h"

/* Bounds of what is forgotten: extensions of all chunks together, and all trailer fields. */
enum { HTTP_EXTENSION_BYTES = 4096, HTTP_TRAILER_BYTES = 8192 };

typedef struct http_body_reader {
    char *bytes; /* n bytes and a NUL; NULL before the first. May be taken, and a reader of zeros left */
    size_t n;
    http_refusal refusal;

    /* Private. */
    size_t capacity, limit;
    uint64_t left; /* of the body, or of the chunk */
    http_body_kind kind;
    int state, digits;
    size_t extensions, trailers;
} http_body_reader;

/* Begins the body that `head` announces, of `limit` bytes at most. HTTP_DONE when there is none, HTTP_REFUSED (413) when it is longer by
 * the head's own word. */
http_progress http_body_begin(http_body_reader *r, const http_head *head, size_t limit);
/* As http_head_feed. */
http_progress http_body_feed(http_body_reader *r, const char *bytes, size_t n, size_t *used);
void http_body_discard(http_body_reader *r);

#endif
