/* Parser of HTTP request bodies, of a known length or chunked (RFC 9112, 7.1). It takes bytes as they arrive and
 * needs no socket.
 *
 * Memory grows with the bytes received, not with the announced length. Chunk extensions and trailer fields are read
 * and discarded, within limits. Any thread, one at a time per body. */
#ifndef HT_HTTP_BODY_H
#define HT_HTTP_BODY_H

#include "http/head.h"

/* Limits of the discarded bytes: all chunk extensions together, and all trailer fields. */
enum { HTTP_EXTENSION_BYTES = 4096, HTTP_TRAILER_BYTES = 8192 };

typedef struct http_body_reader {
    char *bytes; /* n bytes and a NUL; NULL before the first byte. A caller may take it and zero the reader */
    size_t n;
    http_refusal refusal;

    /* Private. */
    size_t capacity, limit;
    uint64_t left; /* bytes left of the body or of the current chunk */
    http_body_kind kind;
    int state, digits;
    size_t extensions, trailers;
} http_body_reader;

/* Begins the body that `head` announces, of at most `limit` bytes. HTTP_DONE without a body; HTTP_REFUSED (413) when
 * the announced length exceeds the limit. */
http_progress http_body_begin(http_body_reader *r, const http_head *head, size_t limit);
/* As http_head_feed. */
http_progress http_body_feed(http_body_reader *r, const char *bytes, size_t n, size_t *used);
void http_body_discard(http_body_reader *r);

#endif
