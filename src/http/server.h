/* HTTP/1.1 server: listeners, connections, and one handler for all requests. It knows nothing of models.
 *
 * The thread that calls http_server_run does all input and output and calls the handler, which must not block. More
 * threads would not help: a machine generates only a few megabytes a second, and each byte is read once. Other
 * threads do the work and respond through http/exchange.h. */
#ifndef HT_HTTP_SERVER_H
#define HT_HTTP_SERVER_H

#include "http/exchange.h"
#include "http/hosts.h"

#include <hearth/status.h>

typedef struct http_server http_server;

/* A finished exchange, for a log. Valid during the call. */
typedef struct http_record {
    const char *method, *path, *id, *remote; /* method and path "" when the request line was refused */
    int status;                              /* 0: the client disconnected before the response */
    uint64_t bytes;                          /* sent, including head and framing */
    double milliseconds;                     /* since the request was received */
    bool complete;                           /* the whole response was sent */
} http_record;

/* Callbacks, all on the server's thread; `handle` is required. */
typedef struct http_handlers {
    /* Handles a complete request. */
    void (*handle)(http_exchange *x, void *user);
    /* Called after the head, before the body is read. A refusal whose status is not 0 is sent instead of reading it. */
    http_refusal (*admit)(http_exchange *x, void *user);
    /* Responds to a refused request with http_reply. If NULL or without a response: the server sends a line of text. */
    void (*refuse)(http_exchange *x, const http_refusal *why, void *user);
    void (*finished)(const http_record *record, void *user);
    void *user;
} http_handlers;

/* Zero selects the given default. */
typedef struct http_server_options {
    http_host_rules hosts;   /* lists that outlive the server */
    bool any_host;           /* Host and Origin are not checked: a proxy in front does that */
    size_t body_bytes;       /* of a request's body: 8 MiB (413) */
    size_t all_body_bytes;   /* of all bodies in memory: 256 MiB (503) */
    size_t stream_bytes;     /* queued for a client: 1 MiB */
    size_t connections;      /* 16384; beyond it, the longest idle one is closed, or the new one refused with 503 */
    double head_seconds;     /* for a head, and for a TLS handshake: 10 (408) */
    double body_seconds;     /* period in which 1 KiB or the rest of a body must arrive: 30 (408) */
    double idle_seconds;     /* between requests: 75 */
    double write_seconds;    /* period in which a client must read something: 60 */
    const char *certificate; /* PEM files; NULL: no TLS */
    const char *certificate_key;
} http_server_options;

/* The caller frees *out. Options and handlers are copied; what they point to is borrowed. */
ht_status http_server_new(const http_server_options *options, const http_handlers *handlers, http_server **out,
                          ht_error *err);

/* Call it before http_server_run, once per address: "host:port", "[address]:port", ":port" (every address of the
 * machine), port 0 for any free one, or "unix:PATH". */
ht_status http_server_listen(http_server *s, const char *address, ht_error *err);
/* Adds a socket that already listens; the server then owns it. */
ht_status http_server_adopt(http_server *s, int fd, ht_error *err);
/* Number of sockets that a service manager opened, from descriptor 3 on, by the values of LISTEN_PID and LISTEN_FDS;
 * 0 unless they are meant for this process. */
int http_inherited_sockets(const char *listen_pid, const char *listen_fds);
/* The address of listener i, "127.0.0.1:8080" or "unix:PATH"; NULL: out of range. Valid as long as the server. */
const char *http_server_address(const http_server *s, size_t i);

/* Serves on the calling thread until http_server_drain ends it; all connections are closed when it returns. Call it
 * once. It blocks SIGPIPE in this thread. */
ht_status http_server_run(http_server *s, ht_error *err);

/* Shuts down: refuses new connections, closes idle ones and finishes running requests. After `seconds` (0 or less:
 * immediately) it calls http_owner.expired for the rest, and cuts them a second later. A second call may shorten the
 * time; one with 0 also skips that second. Any thread, async-signal-safe. */
void http_server_drain(http_server *s, double seconds);

/* Reloads the certificate and its key for new connections; on failure the old ones stay. Any thread. */
ht_status http_server_reload(http_server *s, ht_error *err);

size_t http_server_connections(const http_server *s); /* open now; any thread */

/* Call it after http_server_run has returned, or without running. Exchanges still held stay valid, and are gone. */
void http_server_free(http_server *s);

#endif
