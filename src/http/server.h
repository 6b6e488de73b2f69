/* HTTP/1.1 server: listeners, connections, and requests handed to one handler. It knows nothing of models.
 *
 * One thread, the one that calls http_server_run, does all input and output, and calls the handler; it must not wait for anything. More
 * threads would not serve more: what a machine generates is some megabytes a second, and the memory of a stream's bytes is read once. Work
 * belongs to other threads, which answer through http_exchange.h. */
#ifndef HT_HTTP_SERVER_H
#define HT_HTTP_SERVER_H

#include "http/exchange.h"
#include "http/hosts.h"

#include <hearth/status.h>

typedef struct http_server http_server;

/* An exchange that is over, for a log. Lent for the call. */
typedef struct http_record {
    const char *method, *path, *id, *remote; /* method and path "" when the request line was refused */
    int status;                              /* 0: the client had gone before there was one */
    uint64_t bytes;                          /* that were sent, head and framing included */
    double milliseconds;                     /* since the head had come */
    bool complete;                           /* the whole answer was sent */
} http_record;

/* What a server calls, all on its thread; `handle` must be there. */
typedef struct http_handlers {
    /* A whole request. */
    void (*handle)(http_exchange *x, void *user);
    /* The head has come, and the body is yet to be read. A refusal with a status that is not 0 is given instead of reading it. */
    http_refusal (*admit)(http_exchange *x, void *user);
    /* Answers a refused request with http_reply, in the form that its clients expect; NULL, or when it does not: a line of text. */
    void (*refuse)(http_exchange *x, const http_refusal *why, void *user);
    void (*finished)(const http_record *record, void *user);
    void *user;
} http_handlers;

/* Zero: the default that is given. */
typedef struct http_server_options {
    http_host_rules hosts; /* lists that live as long as the server */
    bool any_host;         /* Host and Origin are not looked at: a proxy in front does */
    size_t body_bytes;     /* of a request's body: 8 MiB (413) */
    size_t all_body_bytes; /* of all bodies that wait: 256 MiB (503) */
    size_t stream_bytes;   /* that may wait for a client: 1 MiB */
    size_t connections;    /* 16384: then the one that is idle for longest goes, or the new one is answered with 503 */
    double head_seconds;   /* for a head, and for a TLS handshake: 10 (408) */
    double body_seconds;   /* in each of which 1 KiB of a body, or its rest, has to come: 30 (408) */
    double idle_seconds;   /* between requests: 75 */
    double write_seconds;  /* in each of which a client has to take something: 60 */
    const char *certificate; /* PEM files; NULL: no TLS */
    const char *certificate_key;
} http_server_options;

/* The caller frees *out. Options and handlers are copied, what they point to is lent. */
ht_status http_server_new(const http_server_options *options, const http_handlers *handlers, http_server **out,
                          ht_error *err);

/* Before http_server_run, as often as there are addresses: "host:port", "[address]:port", ":port" (every address of the machine), port 0
 * for any that is free, or "unix:PATH". */
ht_status http_server_listen(http_server *s, const char *address, ht_error *err);
/* The same for a socket that listens already, which the server then owns. */
ht_status http_server_adopt(http_server *s, int fd, ht_error *err);
/* Sockets that a service manager has opened, from descriptor 3 on: their number, by the values of LISTEN_PID and LISTEN_FDS; 0 unless
 * they are meant for this process. */
int http_inherited_sockets(const char *listen_pid, const char *listen_fds);
/* The address of listener i, "127.0.0.1:8080" or "unix:PATH"; NULL: there are fewer. Valid as long as the server. */
const char *http_server_address(const http_server *s, size_t i);

/* Serves on the calling thread until it is told to stop; no client is there when it returns. Once. SIGPIPE is blocked in this thread
 * meanwhile. */
ht_status http_server_run(http_server *s, ht_error *err);

/* Ends http_server_run: no new connections, idle ones are closed, requests under way are answered. Owners of what is left after so many
 * seconds, with 0 or less at once, are told (http_owner.expired), and what they have not ended a second later is cut. Any thread, and from
 * a signal handler; a second call may shorten the time, and one with 0 that second, too. */
void http_server_drain(http_server *s, double seconds);

/* Reads the certificate and its key again, for connections that come from now on. On failure those before stay. Any thread. */
ht_status http_server_reload(http_server *s, ht_error *err);

size_t http_server_connections(const http_server *s); /* open now; any thread */

/* After http_server_run has returned, or instead of it. Exchanges that are still held live on, and are gone. */
void http_server_free(http_server *s);

#endif
