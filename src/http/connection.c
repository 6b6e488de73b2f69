/* Connections of the server: from accept, through successive requests, to close. */
#include "base/clock.h"
#include "http/internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* During a response, READ_AHEAD bytes of further requests are read; then a timer checks every LOOK_SECONDS for a
 * disconnected client. A body must bring PROGRESS_BYTES per period. EXCESS connections beyond the limit get a
 * response. */
enum { READ_AHEAD = 65536, PROGRESS_BYTES = 1024, EXCESS = 64 };
static const double LOOK_SECONDS = 0.5, LINGER_SECONDS = 5;

static void process(http_connection *c);

/* ---- lists and timers ---- */

static void set_timer(http_connection *c, double seconds) {
    const time_t whole = (time_t)seconds;
    const struct timeval after = {whole, (suseconds_t)((seconds - (double)whole) * 1e6)};
    if (seconds > 0)
        evtimer_add(c->timer, &after);
    else
        evtimer_del(c->timer);
}

static void set_idle(http_connection *c, bool idle) {
    http_server *s = c->server;
    if (idle == c->idle) return;
    c->idle = idle;
    if (idle) {
        c->older = s->newest_idle;
        c->newer = NULL;
        *(c->older ? &c->older->newer : &s->oldest_idle) = c;
        s->newest_idle = c;
        return;
    }
    *(c->older ? &c->older->newer : &s->oldest_idle) = c->newer;
    *(c->newer ? &c->newer->older : &s->newest_idle) = c->older;
}

/* ---- reading ---- */

/* Stops reading ahead at READ_AHEAD bytes. A high watermark would not do: libevent calls the reader endlessly at it. */
static void pause_reading(http_connection *c) {
    if (c->paused || c->eof || evbuffer_get_length(bufferevent_get_input(c->bev)) < READ_AHEAD) return;
    c->paused = true;
    bufferevent_disable(c->bev, EV_READ);
    if (c->state == HTTP_BUSY) set_timer(c, LOOK_SECONDS);
}

static void go_on_reading(http_connection *c) {
    if (c->paused && !c->eof) bufferevent_enable(c->bev, EV_READ);
    c->paused = false;
}

/* ---- end ---- */

/* Logs a finished exchange and drops it. */
static void leave_exchange(http_connection *c, bool complete) {
    http_exchange *x = c->exchange;
    http_server *s = c->server;
    if (!x) return;
    c->exchange = NULL;
    x->connection = NULL;
    s->body_bytes -= c->counted;
    c->counted = 0;
    if (s->handlers.finished) {
        pthread_mutex_lock(&x->mailbox->lock);
        const http_record record = {.method = x->request.head.method ? x->request.head.method : "",
                                    .path = x->request.head.path ? x->request.head.path : "",
                                    .id = x->request.id,
                                    .remote = x->remote,
                                    .status = x->status,
                                    .bytes = x->sent,
                                    .milliseconds = (ht_now_seconds() - x->began) * 1e3,
                                    .complete = complete};
        pthread_mutex_unlock(&x->mailbox->lock);
        s->handlers.finished(&record, s->handlers.user);
    }
    http_exchange_release(x);
}

/* Bytes written to the socket free capacity of the queue. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *user) {
    const http_connection *c = user;
    http_exchange *x = c->exchange;
    (void)out;
    if (!info->n_deleted || !x) return;
    pthread_mutex_lock(&x->mailbox->lock);
    x->queued -= info->n_deleted < x->queued ? info->n_deleted : x->queued;
    x->sent += info->n_deleted;
    pthread_mutex_unlock(&x->mailbox->lock);
}

void http_connection_close(http_connection *c) {
    http_server *s = c->server;
    if (c->state == HTTP_CLOSED) return;
    c->state = HTTP_CLOSED;
    set_idle(c, false);
    if (c->exchange) http_exchange_lose(c->exchange);
    leave_exchange(c, false);
    http_head_discard(&c->head);
    http_body_discard(&c->body);
    if (c->ssl) http_tls_finish(c->ssl);
    /* The bufferevent lives until its deferred callbacks have run, and may write until then. */
    evbuffer_remove_cb(bufferevent_get_output(c->bev), on_output, c);
    bufferevent_disable(c->bev, EV_READ | EV_WRITE);
    bufferevent_free(c->bev);
    event_free(c->timer);
    *(c->previous ? &c->previous->next : &s->first) = c->next;
    if (c->next) c->next->previous = c->previous;
    c->next = s->closed; /* callers may still read its state */
    s->closed = c;
    atomic_fetch_sub(&s->n_connections, 1);
    http_server_closed(s);
}

/* Ends sending and waits until the client has read the response: unread input would make close discard it. */
static void linger(http_connection *c) {
    c->state = HTTP_LINGERING;
    go_on_reading(c);
    if (c->ssl) http_tls_finish(c->ssl);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    struct evbuffer *in = bufferevent_get_input(c->bev);
    evbuffer_drain(in, evbuffer_get_length(in));
    set_timer(c, LINGER_SECONDS);
    if (c->eof) http_connection_close(c);
}

/* ---- responses ---- */

/* The whole response has been sent. */
static void after_answer(http_connection *c) {
    http_exchange *x = c->exchange;
    pthread_mutex_lock(&x->mailbox->lock);
    const bool ends = x->close;
    pthread_mutex_unlock(&x->mailbox->lock);
    leave_exchange(c, true);
    const bool unread = c->unread || evbuffer_get_length(bufferevent_get_input(c->bev)) > 0;
    if ((ends || c->server->draining) && unread)
        linger(c);
    else if (ends || c->server->draining)
        http_connection_close(c);
    else {
        c->state = HTTP_HEAD;
        go_on_reading(c);
        process(c);
    }
}

/* Sets the timer of a running response: for keep-alive data, and for checking the client while reading is paused. */
static void set_busy_timer(http_connection *c) {
    if (evtimer_pending(c->timer, NULL)) return;
    const double alive = http_exchange_keep_alive(c->exchange);
    set_timer(c, c->paused && (alive == 0 || alive > LOOK_SECONDS) ? LOOK_SECONDS : alive);
}

static void refuse(http_connection *c, http_refusal why);

void http_connection_take(http_connection *c) {
    static const http_refusal forgotten = {500, "The server has not answered the request."};
    http_exchange *x = c->exchange;
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (c->state != HTTP_BUSY) return;
    pthread_mutex_lock(&x->mailbox->lock);
    const bool orphan = x->phase != HTTP_ENDED && atomic_load(&x->references) == 1 + x->in_list;
    const bool good = http_buffer_move(out, x->out);
    const http_phase phase = x->phase;
    const bool cut = !good || x->aborted || (orphan && phase == HTTP_STREAMING);
    pthread_mutex_unlock(&x->mailbox->lock);
    if (cut) {
        http_connection_close(c);
        return;
    }
    if (orphan) {
        refuse(c, forgotten);
        return;
    }
    if (phase == HTTP_STREAMING) set_busy_timer(c);
    if (phase != HTTP_ENDED) return;
    c->state = HTTP_FLUSHING;
    set_timer(c, 0);
    if (evbuffer_get_length(out) == 0) after_answer(c);
}

static bool begin_exchange(http_connection *c) {
    if (c->exchange) return true;
    http_exchange *x = http_exchange_new(c->server->mailbox);
    if (!x) return false;
    x->connection = c;
    x->began = ht_now_seconds();
    x->request.head = c->head;
    c->head = (http_head){0};
    x->is_head = x->request.head.method && strcmp(x->request.head.method, "HEAD") == 0;
    x->close = !x->request.head.keep_alive;
    memcpy(x->remote, c->remote, sizeof x->remote);
    c->exchange = x;
    return true;
}

/* Responds to a refused request. If part of it is unread, the connection cannot be reused. */
static void refuse(http_connection *c, http_refusal why) {
    const http_handlers *h = &c->server->handlers;
    http_body_discard(&c->body);
    if (!begin_exchange(c)) {
        http_connection_close(c);
        return;
    }
    http_exchange *x = c->exchange;
    const bool reading = c->state == HTTP_BODY || c->state == HTTP_HEAD;
    c->state = HTTP_BUSY;
    if (reading) {
        c->unread = true;
        x->request.head.minor = x->request.head.method ? x->request.head.minor : 1;
        pthread_mutex_lock(&x->mailbox->lock);
        x->close = true;
        pthread_mutex_unlock(&x->mailbox->lock);
    }
    if (why.status == 503) http_exchange_field(x, "Retry-After", "1");
    if (h->refuse) h->refuse(x, &why, h->user);
    struct evbuffer *text = evbuffer_new(); /* http_reply does nothing if `refuse` has responded */
    if (text && evbuffer_add_printf(text, "%s\n", why.sentence) >= 0)
        http_reply(x, why.status, "text/plain; charset=utf-8", evbuffer_pullup(text, -1), evbuffer_get_length(text));
    if (text) evbuffer_free(text);
    if (!text) http_stream_abort(x);
    http_connection_take(c);
}

/* ---- requests ---- */

static void dispatch(http_connection *c) {
    http_exchange *x = c->exchange;
    x->request.body = c->body.bytes;
    x->request.n_body = c->body.n;
    c->body = (http_body_reader){0};
    c->state = HTTP_BUSY;
    set_timer(c, 0);
    x->began = ht_now_seconds();
    c->server->handlers.handle(x, c->server->handlers.user);
    http_connection_take(c);
    if (c->state == HTTP_BUSY && c->eof) http_connection_close(c);
}

/* Keeps a client's X-Request-Id only if all its characters are safe in logs and headers. */
static void take_id(http_exchange *x) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
    const char *id = http_head_value(&x->request.head, "x-request-id");
    const size_t n = id ? strlen(id) : 0;
    if (n > 0 && n < sizeof x->request.id && strspn(id, allowed) == n) memcpy(x->request.id, id, n + 1);
}

/* Whether this is a CORS preflight, which a browser sends before a cross-origin request. */
static bool is_preflight(const http_exchange *x) {
    return x->origin && strcmp(x->request.head.method, "OPTIONS") == 0 && x->request.head.body == HTTP_BODY_NONE &&
           http_head_value(&x->request.head, "access-control-request-method");
}

static void answer_preflight(http_connection *c) {
    http_exchange *x = c->exchange;
    const char *fields = http_head_value(&x->request.head, "access-control-request-headers");
    c->state = HTTP_BUSY;
    http_exchange_field(x, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    if (fields) http_exchange_field(x, "Access-Control-Allow-Headers", fields);
    if (http_head_value(&x->request.head, "access-control-request-private-network"))
        http_exchange_field(x, "Access-Control-Allow-Private-Network", "true");
    http_exchange_field(x, "Access-Control-Max-Age", "600");
    http_reply(x, 204, NULL, NULL, 0);
    http_connection_take(c);
}

/* Checks Host and Origin. */
static http_refusal look_at_head(http_connection *c) {
    const http_server *s = c->server;
    http_exchange *x = c->exchange;
    const http_host_rules *rules = &s->options.hosts;
    const char *origin = http_head_value(&x->request.head, "origin");
    const http_origin from = origin ? http_origin_of(origin, x->request.head.host, rules) : HTTP_ORIGIN_SAME;
    if (from == HTTP_ORIGIN_LISTED) x->origin = origin;
    if (!s->options.any_host && !http_host_allowed(x->request.head.host, c->is_network ? c->local : NULL, rules))
        return (http_refusal){403, http_host_refused};
    return !s->options.any_host && from == HTTP_ORIGIN_FOREIGN ? (http_refusal){403, http_origin_refused}
                                                               : (http_refusal){0};
}

static void begin_body(http_connection *c) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    http_exchange *x = c->exchange;
    const http_progress progress = http_body_begin(&c->body, &x->request.head, c->server->options.body_bytes);
    c->state = HTTP_BODY;
    if (progress == HTTP_REFUSED)
        refuse(c, c->body.refusal);
    else if (progress == HTTP_DONE)
        dispatch(c);
    else {
        if (x->request.head.expects_continue && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0)
            bufferevent_write(c->bev, go_on, sizeof go_on - 1);
        c->progress = 0;
        set_timer(c, c->server->options.body_seconds);
    }
}

static void begin_request(http_connection *c) {
    if (!begin_exchange(c)) {
        http_connection_close(c);
        return;
    }
    http_exchange *x = c->exchange;
    const http_handlers *h = &c->server->handlers;
    take_id(x);
    http_refusal why = look_at_head(c);
    const bool preflight = is_preflight(x);
    if (!why.status && !preflight && h->admit) why = h->admit(x, h->user);
    if (c->state == HTTP_CLOSED) return;
    if (why.status) {
        if (x->request.head.body == HTTP_BODY_NONE) c->state = HTTP_BUSY; /* the request is read completely */
        refuse(c, why);
    } else if (preflight)
        answer_preflight(c);
    else
        begin_body(c);
}

static void feed_body(http_connection *c, const char *bytes, size_t n, size_t *used) {
    static const http_refusal full = {503, "The server has too many requests to read at the moment."};
    http_server *s = c->server;
    const http_progress progress = http_body_feed(&c->body, bytes, n, used);
    evbuffer_drain(bufferevent_get_input(c->bev), *used);
    s->body_bytes += c->body.n - c->counted;
    c->counted = c->body.n;
    if (progress == HTTP_REFUSED)
        refuse(c, c->body.refusal);
    else if (s->body_bytes > s->options.all_body_bytes)
        refuse(c, full);
    else if (progress == HTTP_DONE)
        dispatch(c);
}

static void feed_head(http_connection *c, const char *bytes, size_t n, size_t *used) {
    if (c->idle || c->head.taken == 0) {
        set_idle(c, false);
        set_timer(c, c->server->options.head_seconds);
    }
    const http_progress progress = http_head_feed(&c->head, bytes, n, used);
    evbuffer_drain(bufferevent_get_input(c->bev), *used);
    if (progress == HTTP_REFUSED)
        refuse(c, c->head.refusal);
    else if (progress == HTTP_DONE)
        begin_request(c);
}

static void process(http_connection *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    while (c->state == HTTP_HEAD || c->state == HTTP_BODY) {
        const size_t n = evbuffer_get_contiguous_space(in);
        size_t used = 0;
        if (n == 0) break;
        const char *bytes = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        if (c->state == HTTP_HEAD)
            feed_head(c, bytes, n, &used);
        else
            feed_body(c, bytes, n, &used);
    }
    if (c->state == HTTP_LINGERING) evbuffer_drain(in, evbuffer_get_length(in));
    if (c->state == HTTP_BUSY || c->state == HTTP_FLUSHING) pause_reading(c);
    if ((c->state == HTTP_HEAD || c->state == HTTP_BODY) && c->eof) http_connection_close(c);
    if (c->state == HTTP_HEAD && c->head.taken == 0) {
        if (c->server->draining)
            http_connection_close(c);
        else if (!c->idle) {
            set_idle(c, true);
            set_timer(c, c->server->options.idle_seconds);
        }
    }
}

/* ---- events ---- */

static void on_read(struct bufferevent *bev, void *user) {
    http_connection *c = user;
    (void)bev;
    http_server_reap(c->server);
    process(c);
}

static void on_write(struct bufferevent *bev, void *user) {
    http_connection *c = user;
    http_server_reap(c->server);
    if (c->state == HTTP_FLUSHING && evbuffer_get_length(bufferevent_get_output(bev)) == 0) after_answer(c);
}

static void begin_requests(http_connection *c) {
    static const http_refusal full = {503, "The server has too many connections."};
    c->state = HTTP_HEAD;
    if (c->overfull)
        refuse(c, full);
    else
        process(c);
}

static void on_event(struct bufferevent *bev, short what, void *user) {
    http_connection *c = user;
    (void)bev;
    http_server_reap(c->server);
    if (what & BEV_EVENT_CONNECTED) {
        set_timer(c, 0);
        if (c->state == HTTP_HANDSHAKE) begin_requests(c);
        return;
    }
    /* End of input and an error may arrive together. */
    const bool lost = (what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)) != 0;
    if (lost || c->state == HTTP_HANDSHAKE || c->state == HTTP_LINGERING || c->state == HTTP_BUSY) {
        http_connection_close(c);
        return;
    }
    c->eof = true;
    process(c);
}

static bool has_left(const http_connection *c) {
    short wanted = 0;
#ifdef POLLRDHUP
    wanted = POLLRDHUP;
#endif
    struct pollfd at = {.fd = bufferevent_getfd(c->bev), .events = wanted};
    return poll(&at, 1, 0) > 0 && (at.revents & (wanted | POLLHUP | POLLERR)) != 0;
}

static void on_timer(evutil_socket_t fd, short what, void *user) {
    static const http_refusal late_head = {408, "The head of the request did not come in time."},
                              late_body = {408, "The body of the request did not come in time."};
    http_connection *c = user;
    (void)fd;
    (void)what;
    http_server_reap(c->server);
    if (c->state == HTTP_BUSY) {
        if (has_left(c))
            http_connection_close(c);
        else
            set_busy_timer(c);
    } else if (c->state == HTTP_BODY && c->body.n - c->progress >= PROGRESS_BYTES) {
        c->progress = c->body.n;
        set_timer(c, c->server->options.body_seconds);
    } else if (c->state == HTTP_BODY)
        refuse(c, late_body);
    else if (c->state == HTTP_HEAD && !c->idle)
        refuse(c, late_head);
    else
        http_connection_close(c);
}

/* ---- beginning ---- */

static void name_ends(http_connection *c, evutil_socket_t fd, const struct sockaddr *from) {
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    const int on = 1;
    int port;
    http_address_text(from, c->remote, sizeof c->remote, &port);
    if (getsockname(fd, (struct sockaddr *)&at, &n) != 0) at.ss_family = AF_UNSPEC;
    http_address_text((struct sockaddr *)&at, c->local, sizeof c->local, &port);
    c->is_network = at.ss_family != AF_UNIX;
    if (!c->is_network) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static struct bufferevent *make_bufferevent(http_connection *c, evutil_socket_t fd) {
    http_server *s = c->server;
    const int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
    pthread_mutex_lock(&s->tls_lock);
    const bool tls = s->tls != NULL;
    if (tls) c->ssl = SSL_new(s->tls);
    pthread_mutex_unlock(&s->tls_lock);
    if (!tls) return bufferevent_socket_new(s->base, fd, options);
    if (!c->ssl) return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(s->base, fd, c->ssl, BUFFEREVENT_SSL_ACCEPTING, options);
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else
        SSL_free(c->ssl);
    return bev;
}

/* Creates timer and bufferevent. When memory runs out, frees both, closes the descriptor and returns false. */
static bool make(http_connection *c, evutil_socket_t fd) {
    const double seconds = c->server->options.write_seconds;
    const struct timeval write = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    c->timer = evtimer_new(c->server->base, on_timer, c);
    c->bev = c->timer ? make_bufferevent(c, fd) : NULL;
    if (!c->bev) {
        if (c->timer) event_free(c->timer);
        close(fd);
        return false;
    }
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_set_timeouts(c->bev, NULL, &write);
    if (evbuffer_add_cb(bufferevent_get_output(c->bev), on_output, c) &&
        bufferevent_enable(c->bev, EV_READ | EV_WRITE) == 0)
        return true;
    bufferevent_free(c->bev);
    event_free(c->timer);
    return false;
}

void http_connection_open(http_server *s, evutil_socket_t fd, const struct sockaddr *from) {
    const size_t most = s->options.connections;
    if (atomic_load(&s->n_connections) >= most) http_server_evict(s);
    const size_t n = atomic_load(&s->n_connections);
    http_connection *c = n < most + EXCESS ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        close(fd);
        return;
    }
    c->server = s;
    c->overfull = n >= most;
    name_ends(c, fd, from);
    if (!make(c, fd)) {
        free(c);
        return;
    }
    c->next = s->first;
    if (s->first) s->first->previous = c;
    s->first = c;
    atomic_fetch_add(&s->n_connections, 1);
    if (c->ssl) {
        c->state = HTTP_HANDSHAKE;
        set_timer(c, s->options.head_seconds);
    } else
        begin_requests(c);
}
