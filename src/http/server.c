#include "http/error.h"
#include "http/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- mailbox ---- */

static http_exchange *take_ready(http_mailbox *m, bool last) {
    pthread_mutex_lock(&m->lock);
    http_exchange *list = NULL;
    for (http_exchange *x = m->ready, *next; x; x = next) { /* reverses the list into order of arrival */
        next = x->next_ready;
        x->next_taken = list;
        list = x;
        x->in_list = false;
    }
    m->ready = NULL;
    if (last) m->open = false;
    pthread_mutex_unlock(&m->lock);
    return list;
}

/* Drops the list's reference first, so that http_connection_take recognises an exchange that only the server holds. */
static void serve_ready(http_server *s) {
    for (http_exchange *x = take_ready(s->mailbox, false), *next; x; x = next) {
        next = x->next_taken;
        if (x->connection) {
            atomic_fetch_sub(&x->references, 1);
            http_connection_take(x->connection);
        } else
            http_exchange_release(x);
    }
}

static void close_mailbox(http_server *s) {
    for (http_exchange *x = take_ready(s->mailbox, true), *next; x; x = next) {
        next = x->next_taken;
        http_exchange_release(x);
    }
}

/* ---- connections ---- */

void http_server_reap(http_server *s) {
    while (s->closed) {
        http_connection *c = s->closed;
        s->closed = c->next;
        free(c);
    }
}

bool http_server_evict(http_server *s) {
    if (!s->oldest_idle) return false;
    http_connection_close(s->oldest_idle);
    return true;
}

void http_server_closed(http_server *s) {
    if (s->draining && atomic_load(&s->n_connections) == 0) event_base_loopbreak(s->base);
}

size_t http_server_connections(const http_server *s) { return atomic_load(&s->n_connections); }

/* ---- end ---- */

/* Seconds for the last messages of expired owners. */
enum { LAST_WORDS_SECONDS = 1 };

static bool ends_by_itself(http_connection *c) {
    return c->state == HTTP_FLUSHING || (c->state == HTTP_BUSY && http_exchange_expire(c->exchange));
}

/* The drain time has passed. A second call ends the loop immediately. */
static void expire(http_server *s) {
    const struct timeval last = {LAST_WORDS_SECONDS, 0};
    const bool again = s->expired;
    s->expired = true;
    for (http_connection *c = s->first, *next; c && !again; c = next) {
        next = c->next;
        if (!ends_by_itself(c)) http_connection_close(c);
    }
    if (again || atomic_load(&s->n_connections) == 0)
        event_base_loopbreak(s->base);
    else
        evtimer_add(s->deadline, &last);
}

static void begin_drain(http_server *s, long long ms) {
    const struct timeval after = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000) * 1000};
    if (!s->draining) {
        s->draining = true;
        atomic_store(&s->mailbox->draining, true);
        evtimer_del(s->accept_again);
        http_server_remove_listeners(s);
        for (http_connection *c = s->first, *next; c; c = next) {
            next = c->next;
            if (c->idle || c->state == HTTP_HANDSHAKE || c->state == HTTP_LINGERING) http_connection_close(c);
        }
    }
    if (atomic_load(&s->n_connections) == 0)
        event_base_loopbreak(s->base);
    else if (ms <= 0)
        expire(s);
    else if (!s->expired)
        evtimer_add(s->deadline, &after);
}

void http_server_drain(http_server *s, double seconds) {
    const double most = 1e9;
    const long long ms = seconds > 0 ? (long long)((seconds < most ? seconds : most) * 1e3) : 0;
    atomic_store(&s->drain_ms, ms);
    http_mailbox_wake(s->mailbox);
}

static void on_deadline(evutil_socket_t fd, short what, void *user) {
    (void)fd;
    (void)what;
    expire(user);
}

static void on_wake(evutil_socket_t fd, short what, void *user) {
    http_server *s = user;
    char bytes[256];
    (void)what;
    http_server_reap(s);
    while (read(fd, bytes, sizeof bytes) > 0) {}
    serve_ready(s);
    const long long ms = atomic_exchange(&s->drain_ms, -1);
    if (ms >= 0) begin_drain(s, ms);
}

static void on_accept_again(evutil_socket_t fd, short what, void *user) {
    (void)fd;
    (void)what;
    http_server_reap(user);
    http_server_accept(user, true);
}

/* ---- life ---- */

static void set_defaults(http_server_options *o) {
    if (!o->body_bytes) o->body_bytes = (size_t)8 << 20;
    if (!o->all_body_bytes) o->all_body_bytes = (size_t)256 << 20;
    if (!o->stream_bytes) o->stream_bytes = (size_t)1 << 20;
    if (!o->connections) o->connections = 16384;
    if (o->head_seconds <= 0) o->head_seconds = 10;
    if (o->body_seconds <= 0) o->body_seconds = 30;
    if (o->idle_seconds <= 0) o->idle_seconds = 75;
    if (o->write_seconds <= 0) o->write_seconds = 60;
}

/* Keeps libevent's warnings off standard error; the failures are returned as errors, too. */
static void ignore_log(int severity, const char *message) {
    (void)severity;
    (void)message;
}

static bool make_events(http_server *s) {
    event_set_log_callback(ignore_log);
    if (!(s->base = event_base_new())) return false;
    s->wake = event_new(s->base, s->mailbox->wake[0], EV_READ | EV_PERSIST, on_wake, s);
    s->accept_again = evtimer_new(s->base, on_accept_again, s);
    s->deadline = evtimer_new(s->base, on_deadline, s);
    return s->wake && s->accept_again && s->deadline && event_add(s->wake, NULL) == 0;
}

ht_status http_server_new(const http_server_options *options, const http_handlers *handlers, http_server **out,
                          ht_error *err) {
    *out = NULL;
    if (!handlers->handle) return http_fail(err, HT_ERR_ARGUMENT, "an HTTP server needs a handler of requests");
    http_server *s = calloc(1, sizeof *s);
    if (!s) return http_fail_memory(err, "an HTTP server");
    if (options) s->options = *options;
    set_defaults(&s->options);
    s->handlers = *handlers;
    pthread_mutex_init(&s->tls_lock, NULL);
    atomic_init(&s->n_connections, 0);
    atomic_init(&s->drain_ms, -1);
    ht_status st = http_tls_load(&s->options, &s->tls, err);
    if (!st && !(s->mailbox = http_mailbox_new(s->options.stream_bytes)))
        st = http_fail(err, HT_ERR_IO, "an HTTP server needs memory and two descriptors: %s", strerror(errno));
    if (!st && !make_events(s)) st = http_fail_memory(err, "the event loop of an HTTP server");
    if (st)
        http_server_free(s);
    else
        *out = s;
    return st;
}

/* Freed bufferevents close their sockets only after pending callbacks, and those that these cause, have run. */
static void close_all(http_server *s) {
    enum { PASSES = 4 };
    http_server_remove_listeners(s);
    while (s->first) http_connection_close(s->first);
    for (int i = 0; i < PASSES && s->base && s->ran; i++) event_base_loop(s->base, EVLOOP_NONBLOCK);
    http_server_reap(s);
    close_mailbox(s);
}

ht_status http_server_run(http_server *s, ht_error *err) {
    if (s->ran) return http_fail(err, HT_ERR_ARGUMENT, "an HTTP server runs once");
    s->ran = true;
    sigset_t of_pipe, before, pending;
    sigemptyset(&of_pipe);
    sigaddset(&of_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &of_pipe, &before);
    const int end = event_base_loop(s->base, EVLOOP_NO_EXIT_ON_EMPTY);
    close_all(s);
    /* Unless the caller had blocked SIGPIPE, consumes a pending one, which would kill the process now. */
    if (!sigismember(&before, SIGPIPE) && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1) {
        int signal;
        sigwait(&of_pipe, &signal);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return end < 0 ? http_fail(err, HT_ERR_IO, "the event loop of the HTTP server failed: %s", strerror(errno)) : HT_OK;
}

ht_status http_server_reload(http_server *s, ht_error *err) {
    SSL_CTX *tls, *before;
    const ht_status st = http_tls_load(&s->options, &tls, err);
    if (st || !tls) return st;
    pthread_mutex_lock(&s->tls_lock);
    before = s->tls;
    s->tls = tls;
    pthread_mutex_unlock(&s->tls_lock);
    SSL_CTX_free(before); /* connections hold their own references */
    return HT_OK;
}

void http_server_free(http_server *s) {
    if (!s) return;
    if (s->mailbox) close_all(s);
    for (size_t i = 0; i < s->n_listeners; i++) free(s->listener[i].address);
    free(s->listener);
    if (s->wake) event_free(s->wake);
    if (s->accept_again) event_free(s->accept_again);
    if (s->deadline) event_free(s->deadline);
    if (s->base) event_base_free(s->base);
    SSL_CTX_free(s->tls);
    http_mailbox_release(s->mailbox);
    pthread_mutex_destroy(&s->tls_lock);
    free(s);
}
