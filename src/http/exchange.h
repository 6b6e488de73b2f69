/* A request and its response. A handler may respond at once or later, whole or as a stream, from any thread.
 *
 * References: the server holds one while the client is connected. A handler that responds later takes another with
 * http_exchange_retain and drops it with http_exchange_release. If only the server's reference is left before the
 * response is complete, the server sends 500, or cuts a stream, so that no client waits forever.
 *
 * No call waits for a client, and all data is copied. After a disconnect or the end of the response, calls do
 * nothing and return HTTP_GONE. Calls for one exchange may come from several threads; data is sent in their order. */
#ifndef HT_HTTP_EXCHANGE_H
#define HT_HTTP_EXCHANGE_H

#include "http/head.h"

typedef struct http_exchange http_exchange;

/* Owner of a response that is sent later. The server's thread calls these functions; NULL ones are skipped. */
typedef struct http_owner {
    /* The client disconnected or the server cut the response before the owner ended it. Called once, and never after
     * http_reply or http_stream_end has returned HTTP_SENT. */
    void (*gone)(http_exchange *x, void *user);
    /* The server is shutting down and the drain time has passed: the owner reports that and ends the response, or it
     * is cut a second later. Called at most once; NULL: it is cut immediately. */
    void (*expired)(http_exchange *x, void *user);
    /* Called when the last reference is dropped, on the thread that drops it. No call with `user` follows. */
    void (*free)(void *user);
    void *user;
} http_owner;

/* Call it once, and only within the handler. */
void http_exchange_own(http_exchange *x, const http_owner *owner);
http_exchange *http_exchange_retain(http_exchange *x); /* returns x */
void http_exchange_release(http_exchange *x);          /* NULL is fine */

/* The request. Immutable once the handler has been called; any thread that holds a reference may read it. */
typedef struct http_request {
    http_head head; /* of a refused request, as far as it was received */
    char *body;     /* n_body bytes and a NUL; NULL: none */
    size_t n_body;
    char id[129]; /* its X-Request-Id if that is valid, else a random one */
} http_request;

/* The request is the first field of an exchange. */
static inline const http_request *http_exchange_request(const http_exchange *x) { return (const void *)x; }

/* ---- response: any thread ---- */

typedef enum http_sent {
    HTTP_SENT, /* accepted; it will be sent */
    HTTP_SLOW, /* rejected: the client reads too slowly */
    HTTP_GONE, /* rejected: the client disconnected, the response has ended, or memory ran out, which cuts it */
} http_sent;

/* Adds a header field, before the response begins. False: the name is no token, or the value has control codes. */
bool http_exchange_field(http_exchange *x, const char *name, const char *value);

/* Sends a whole response. For HEAD, it announces n bytes and sends none. */
http_sent http_reply(http_exchange *x, int status, const char *content_type, const void *bytes, size_t n);

typedef struct http_stream_options {
    const char *content_type; /* NULL: text/event-stream */
    double alive_seconds;     /* silence after which `alive` is sent; 0: never */
    const char *alive;        /* a constant that keeps the connection alive; NULL: a comment of server-sent events */
} http_stream_options;

/* Begins a response of unknown length with status 200: chunked, or ended by closing the connection for HTTP/1.0. */
http_sent http_stream_begin(http_exchange *x, const http_stream_options *options);
/* Sends a server-sent event whole or not at all. One above the limit is accepted when nothing else is queued. Name
 * NULL: unnamed. Each line of data becomes a line of the event. HTTP_GONE also when the name has a line break. */
http_sent http_stream_event(http_exchange *x, const char *name, const char *data, size_t n);
/* Sends a line of NDJSON likewise: n bytes without line breaks, and a line feed. */
http_sent http_stream_line(http_exchange *x, const char *bytes, size_t n);
http_sent http_stream_end(http_exchange *x);
/* Cuts the connection, so that the client sees that the stream is incomplete. */
void http_stream_abort(http_exchange *x);

#endif
