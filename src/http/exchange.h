/* A request and its answer: what a handler is given, and how it answers, at once or later, whole or as a stream, from any thread.
 *
 * References: the server holds one while the client is there. A handler that answers later takes one of its own with
 * http_exchange_retain and gives it back with http_exchange_release. An exchange that nobody but the server holds any more, and that has no
 * complete answer, is answered with 500, or cut if a stream has begun: nothing hangs because an owner forgot it.
 *
 * No call waits for a client. What is sent is copied. After the client has gone, or after the end of the answer, calls do nothing and
 * say HTTP_GONE. Calls for one exchange may come from several threads; pieces are sent in the order of the calls. */
#ifndef HT_HTTP_EXCHANGE_H
#define HT_HTTP_EXCHANGE_H

#include "http/head.h"

typedef struct http_exchange http_exchange;

/* Owner of an answer that is given later. The functions are called on the server's thread; NULL: not called. */
typedef struct http_owner {
    /* The client has gone, or the server cuts the answer, before the owner ended it. Exactly once, and never after http_reply or
     * http_stream_end has returned HTTP_SENT. */
    void (*gone)(http_exchange *x, void *user);
    /* The server ends, and the time of its requests is over: the owner says so in its answer and ends it, or is cut a second later. Once
     * at most; NULL: it is cut now. */
    void (*expired)(http_exchange *x, void *user);
    /* The last call that gets `user`, when the last reference goes, on the thread that gives it back. */
    void (*free)(void *user);
    void *user;
} http_owner;

/* Only within the handler, once. */
void http_exchange_own(http_exchange *x, const http_owner *owner);
http_exchange *http_exchange_retain(http_exchange *x); /* returns x */
void http_exchange_release(http_exchange *x);          /* NULL is fine */

/* What is asked: unchanged once the handler has been called, for any thread that holds a reference. */
typedef struct http_request {
    http_head head; /* of a refused request, as far as it came */
    char *body;     /* n_body bytes and a NUL; NULL: none */
    size_t n_body;
    char id[129]; /* its X-Request-Id if that is sane, else a random one */
} http_request;

/* The first member of an exchange. */
static inline const http_request *http_exchange_request(const http_exchange *x) { return (const void *)x; }

/* ---- the answer: any thread ---- */

typedef enum http_sent {
    HTTP_SENT, /* taken; it will be sent */
    HTTP_SLOW, /* not taken: the client reads too slowly */
    HTTP_GONE, /* not taken: nobody is there, the answer has ended already, or memory ran out for it, which cuts it */
} http_sent;

/* Adds a field to the answer's head, before it begins. False when the name is no token or the value has control characters. */
bool http_exchange_field(http_exchange *x, const char *name, const char *value);

/* A whole answer. With HEAD, n bytes are announced and none sent. */
http_sent http_reply(http_exchange *x, int status, const char *content_type, const void *bytes, size_t n);

typedef struct http_stream_options {
    const char *content_type; /* NULL: text/event-stream */
    double alive_seconds;     /* a sign of life is sent after so long a silence; 0: never */
    const char *alive;        /* the sign, a constant; NULL: a comment of server-sent events */
} http_stream_options;

/* Begins an answer of unknown length, with status 200: in chunks, or up to the end of the connection with HTTP/1.0. */
http_sent http_stream_begin(http_exchange *x, const http_stream_options *options);
/* A server-sent event, all of it or nothing; one that is larger than the bound is taken when nothing else waits. Name NULL: without one. Each line of
 * the data is a line of the event. HTTP_GONE also when the name has a line break. */
http_sent http_stream_event(http_exchange *x, const char *name, const char *data, size_t n);
/* Likewise a line of NDJSON: n bytes without line breaks, and one after them. */
http_sent http_stream_line(http_exchange *x, const char *bytes, size_t n);
http_sent http_stream_end(http_exchange *x);
/* Ends a stream so that the client sees that it is not complete: the connection is cut. */
void http_stream_abort(http_exchange *x);

#endif
