/* Structures of the HTTP server, shared by its files: server, connection, exchange, and the mailbox between threads. */
#ifndef HT_HTTP_INTERNAL_H
#define HT_HTTP_INTERNAL_H

#include "http/body.h"
#include "http/server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- between threads ---- */

/* Queue of exchanges for the server's thread. It outlives the server while an exchange is held. */
typedef struct http_mailbox {
    atomic_int references;
    pthread_mutex_t lock; /* also guards the fields "under the lock" of each exchange */
    int wake[2];          /* a pipe that the server's thread reads */
    bool open;            /* under the lock: the server's thread still reads */
    http_exchange *ready; /* under the lock: list by next_ready, each with a reference */
    size_t stream_bytes;
    atomic_bool draining; /* responses that begin now close their connection */
} http_mailbox;

http_mailbox *http_mailbox_new(size_t stream_bytes);
void http_mailbox_release(http_mailbox *m);
/* Async-signal-safe. */
void http_mailbox_wake(http_mailbox *m);

/* ---- exchange ---- */

typedef enum http_phase { HTTP_WAITING, HTTP_STREAMING, HTTP_ENDED } http_phase;

struct http_exchange {
    http_request request;  /* the first: http_exchange_request */
    atomic_int references; /* the server's own, the list's, and the owners' */
    http_mailbox *mailbox;

    /* Unchanged once the handler has been called. */
    char remote[64];
    const char *origin; /* of the head, if it is listed */
    bool is_head;
    http_owner owner;

    /* The server's thread alone. */
    struct http_connection *connection; /* NULL: the server has dropped the exchange */
    http_exchange *next_taken;          /* list of exchanges taken from the mailbox */
    double began;

    /* Under the lock. */
    http_phase phase;
    bool gone, aborted, in_list, chunked, close;
    int status;
    struct evbuffer *fields; /* of the response's head */
    struct evbuffer *out;    /* for the server's thread to take */
    size_t queued;           /* bytes accepted and not sent yet */
    uint64_t sent;
    double alive_seconds, last_write;
    const char *alive;
    http_exchange *next_ready;
};

/* NULL when memory runs out. The reference is the server's. */
http_exchange *http_exchange_new(http_mailbox *m);
/* Marks the exchange as gone, and calls the owner's `gone` unless the response had ended. The server's thread. */
void http_exchange_lose(http_exchange *x);
/* Calls the owner's `expired` unless the response has ended; false: nothing was called. The server's thread. */
bool http_exchange_expire(http_exchange *x);
/* Sends `alive` after alive_seconds of silence. Returns the delay until the next check; 0: never. Server's thread. */
double http_exchange_keep_alive(http_exchange *x);
/* Moves the bytes of `from` to the end of `out`. False: memory ran out. */
bool http_buffer_move(struct evbuffer *out, struct evbuffer *from);

/* ---- connection ---- */

typedef enum http_state {
    HTTP_HANDSHAKE, /* of TLS */
    HTTP_HEAD,      /* idle, or in a head */
    HTTP_BODY,
    HTTP_BUSY,      /* the handler has the request */
    HTTP_FLUSHING,  /* the response has ended and is being sent */
    HTTP_LINGERING, /* input is discarded until the client has read the response */
    HTTP_CLOSED     /* to be freed */
} http_state;

typedef struct http_connection {
    http_server *server;
    struct bufferevent *bev;
    struct event *timer;
    SSL *ssl; /* of bev; NULL: none */
    http_state state;
    http_head head;
    http_body_reader body;
    size_t counted;  /* bytes of the body that the server counts */
    size_t progress; /* bytes of the body when its timer was set */
    http_exchange *exchange;
    bool idle;     /* no byte of a head has arrived; in the list of idle connections */
    bool paused;   /* reading is paused until the response ends */
    bool eof;      /* the client has stopped sending */
    bool overfull; /* beyond the limit of connections: refused with 503 */
    bool unread;   /* the rest of a request is not read: the connection lingers */
    bool is_network;
    char remote[64], local[64];
    struct http_connection *previous, *next; /* all connections; of closed ones, `next` alone */
    struct http_connection *older, *newer;   /* idle connections */
} http_connection;

/* Takes ownership of the descriptor, even on failure. */
void http_connection_open(http_server *s, evutil_socket_t fd, const struct sockaddr *from);
/* Sends what was appended to its exchange, and completes a response that has ended. */
void http_connection_take(http_connection *c);
/* Closes the connection and calls the owner's `gone`. */
void http_connection_close(http_connection *c);

/* ---- server ---- */

typedef struct http_listener {
    struct evconnlistener *listener;
    char *address, *path; /* path of a unix socket, to be removed */
    unsigned long long device, inode;
} http_listener;

struct http_server {
    http_server_options options;
    http_handlers handlers;
    http_mailbox *mailbox;
    struct event_base *base;
    struct event *wake, *accept_again, *deadline;
    http_listener *listener;
    size_t n_listeners;
    http_connection *first, *closed, *oldest_idle, *newest_idle;
    atomic_size_t n_connections;
    size_t body_bytes;
    bool draining, ran;
    bool expired;          /* the drain time has passed: `expired` was called, and `deadline` cuts what is left */
    atomic_llong drain_ms; /* requested drain time; -1: none */
    pthread_mutex_t tls_lock;
    SSL_CTX *tls; /* under tls_lock */
};

bool http_server_evict(http_server *s);  /* closes the longest idle connection; false: none */
void http_server_reap(http_server *s);   /* frees closed connections; no caller may hold a pointer to one */
void http_server_closed(http_server *s); /* a connection has been closed */
/* (http_listen.c) */
void http_server_accept(http_server *s, bool on);
void http_server_remove_listeners(http_server *s);
/* The address of a socket without its port, and the port; "unix" and 0. */
void http_address_text(const struct sockaddr *from, char *out, size_t room, int *port);

/* (http_tls.c) */
ht_status http_tls_load(const http_server_options *o, SSL_CTX **out, ht_error *err);
void http_tls_finish(SSL *ssl); /* sends close_notify */

#endif
