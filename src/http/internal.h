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

/* Exchanges that have something for the server's thread. It outlives the server as long as an exchange is held. */
typedef struct http_mailbox {
    atomic_int references;
    pthread_mutex_t lock; /* also of the fields "under the lock" of each exchange */
    int wake[2];          /* a pipe, of which the server's thread reads */
    bool open;            /* under the lock: somebody reads */
    http_exchange *ready; /* under the lock: list by next_ready, each with a reference */
    size_t stream_bytes;
    atomic_bool draining; /* answers that begin are the last of their connection */
} http_mailbox;

http_mailbox *http_mailbox_new(size_t stream_bytes);
void http_mailbox_release(http_mailbox *m);
/* From a signal handler, too. */
void http_mailbox_wake(http_mailbox *m);

/* ---- exchange ---- */

typedef enum http_phase { HTTP_WAITING, HTTP_STREAMING, HTTP_ENDED } http_phase;

struct http_exchange {
    http_request request;  /* the first: http_exchange_request */
    atomic_int references; /* the server's own, the list's, and the owners' */
    http_mailbox *mailbox;

    /* Unchanged once the handler has been called. */
    char remote[64];
    const char *origin; /* of the head, if it is of the list */
    bool is_head;
    http_owner owner;

    /* The server's thread alone. */
    struct http_connection *connection; /* NULL: the server has let go of it */
    http_exchange *next_taken;          /* of those that were in the mailbox */
    double began;

    /* Under the lock. */
    http_phase phase;
    bool gone, aborted, in_list, chunked, close;
    int status;
    struct evbuffer *fields; /* of the answer's head */
    struct evbuffer *out;    /* for the server's thread to take */
    size_t queued;           /* bytes that were taken and are not sent yet */
    uint64_t sent;
    double alive_seconds, last_write;
    const char *alive;
    http_exchange *next_ready;
};

/* NULL when memory runs out. The reference is the server's. */
http_exchange *http_exchange_new(http_mailbox *m);
/* Marks it as gone, and calls `gone` once if the answer had not ended. The server's thread. */
void http_exchange_lose(http_exchange *x);
/* Calls `expired` of an answer that has not ended; false: there is none to be called. The server's thread. */
bool http_exchange_expire(http_exchange *x);
/* Sends a sign of life if the stream is silent for alive_seconds, and says after how many seconds to ask again; 0: never. The server's thread. */
double http_exchange_keep_alive(http_exchange *x);
/* Appends the bytes of one buffer to another one. False: memory ran out. */
bool http_buffer_move(struct evbuffer *out, struct evbuffer *from);

/* ---- connection ---- */

typedef enum http_state {
    HTTP_HANDSHAKE, /* of TLS */
    HTTP_HEAD,      /* idle, or in a head */
    HTTP_BODY,
    HTTP_BUSY,      /* the handler has the request */
    HTTP_FLUSHING,  /* the answer has ended and is being sent */
    HTTP_LINGERING, /* what comes is thrown away until the client has read the answer */
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
    bool idle;     /* no byte of a head has come; in the list of the idle ones */
    bool paused;   /* reading is, while an answer is given */
    bool eof;      /* the client sends no more */
    bool overfull; /* there are too many: to be answered with 503 */
    bool unread;   /* the rest of a request is not read: the connection lingers */
    bool is_network;
    char remote[64], local[64];
    struct http_connection *previous, *next; /* all; or `next` alone, those to be freed */
    struct http_connection *older, *newer;   /* the idle ones */
} http_connection;

/* Takes over the descriptor, even on failure. */
void http_connection_open(http_server *s, evutil_socket_t fd, const struct sockaddr *from);
/* Sends what has been appended to its exchange, and sees to its end. */
void http_connection_take(http_connection *c);
/* Closes it and tells the owner. */
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
    bool expired;          /* the time to drain is over: owners have been told, and what is left is cut by `deadline` */
    atomic_llong drain_ms; /* as asked for; -1: not yet */
    pthread_mutex_t tls_lock;
    SSL_CTX *tls; /* under tls_lock */
};

bool http_server_evict(http_server *s);  /* closes the connection that is idle for longest; false: there is none */
void http_server_reap(http_server *s);   /* frees closed connections; nothing on the stack may know one */
void http_server_closed(http_server *s); /* a connection has been closed */
/* (http_listen.c) */
void http_server_accept(http_server *s, bool on);
void http_server_remove_listeners(http_server *s);
/* "address" of a socket address, without port, and the port; "unix" and 0. */
void http_address_text(const struct sockaddr *from, char *out, size_t room, int *port);

/* (http_tls.c) */
ht_status http_tls_load(const http_server_options *o, SSL_CTX **out, ht_error *err);
void http_tls_finish(SSL *ssl); /* tells the client that no more comes */

#endif
