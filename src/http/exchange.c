#include "base/clock.h"
#include "http/internal.h"
#include "http/text.h"

#include <errno.h>
#include <event2/util.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(offsetof(struct http_exchange, request) == 0, "http_exchange_request reads it there");

/* Copies small buffers into one: separate allocations would take many times the counted bytes. */
bool http_buffer_move(struct evbuffer *out, struct evbuffer *from) {
    enum { SMALL = 4096 };
    const size_t n = evbuffer_get_length(from);
    if (n == 0) return true;
    if (n > SMALL) return evbuffer_add_buffer(out, from) == 0;
    const unsigned char *bytes = evbuffer_pullup(from, -1);
    return bytes && evbuffer_add(out, bytes, n) == 0 && evbuffer_drain(from, n) == 0;
}

/* ---- mailbox ---- */

http_mailbox *http_mailbox_new(size_t stream_bytes) {
    http_mailbox *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    if (pipe(m->wake) != 0) {
        free(m);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        evutil_make_socket_nonblocking(m->wake[i]);
        evutil_make_socket_closeonexec(m->wake[i]);
    }
    pthread_mutex_init(&m->lock, NULL);
    atomic_init(&m->references, 1);
    m->open = true;
    m->stream_bytes = stream_bytes;
    return m;
}

void http_mailbox_release(http_mailbox *m) {
    if (!m || atomic_fetch_sub(&m->references, 1) != 1) return;
    close(m->wake[0]);
    close(m->wake[1]);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* A full pipe has woken the reader already. */
void http_mailbox_wake(http_mailbox *m) {
    const int before = errno;
    ssize_t n;
    do n = write(m->wake[1], "", 1);
    while (n < 0 && errno == EINTR);
    errno = before;
}

/* ---- references ---- */

http_exchange *http_exchange_new(http_mailbox *m) {
    http_exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->out = evbuffer_new();
    x->fields = evbuffer_new();
    if (!x->out || !x->fields) {
        if (x->out) evbuffer_free(x->out);
        if (x->fields) evbuffer_free(x->fields);
        free(x);
        return NULL;
    }
    unsigned char random[12];
    evutil_secure_rng_get_bytes(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) snprintf(x->request.id + 2 * i, 3, "%02x", random[i]);
    atomic_init(&x->references, 1);
    atomic_fetch_add(&m->references, 1);
    x->mailbox = m;
    return x;
}

static void destroy(http_exchange *x) {
    if (x->owner.free) x->owner.free(x->owner.user);
    evbuffer_free(x->out);
    evbuffer_free(x->fields);
    http_head_discard(&x->request.head);
    free(x->request.body);
    http_mailbox_release(x->mailbox);
    free(x);
}

void http_exchange_own(http_exchange *x, const http_owner *owner) { x->owner = *owner; }

http_exchange *http_exchange_retain(http_exchange *x) {
    atomic_fetch_add(&x->references, 1);
    return x;
}

/* Under the lock. The list's reference keeps the exchange alive until the server's thread has processed it. */
static void notify(http_exchange *x) {
    http_mailbox *m = x->mailbox;
    if (x->in_list || !m->open) return;
    http_exchange_retain(x);
    x->in_list = true;
    x->next_ready = m->ready;
    if (!m->ready) http_mailbox_wake(m);
    m->ready = x;
}

/* When only the server's reference is left and the response has not ended, the server's thread must end it. The lock
 * makes the decrement and the notification one step, so that it sees the last release. */
void http_exchange_release(http_exchange *x) {
    if (!x) return;
    pthread_mutex_lock(&x->mailbox->lock);
    const int left = atomic_fetch_sub(&x->references, 1) - 1;
    if (left > 0 && !x->gone && x->phase != HTTP_ENDED) notify(x);
    pthread_mutex_unlock(&x->mailbox->lock);
    if (left == 0) destroy(x);
}

/* ---- response ---- */

static bool is_field(const char *name, const char *value) {
    if (*name == '\0') return false;
    for (const char *c = name; *c; c++)
        if (!http_is_token(*c)) return false;
    for (const char *c = value; *c; c++)
        if (!http_is_value(*c)) return false;
    return true;
}

bool http_exchange_field(http_exchange *x, const char *name, const char *value) {
    if (!is_field(name, value)) return false;
    pthread_mutex_lock(&x->mailbox->lock);
    const bool added = evbuffer_add_printf(x->fields, "%s: %s\r\n", name, value) >= 0;
    pthread_mutex_unlock(&x->mailbox->lock);
    return added;
}

static const char *reason(int status) {
    static const struct {
        int status;
        const char *text;
    } known[] = {{200, "OK"},
                 {204, "No Content"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {505, "HTTP Version Not Supported"},
                 {529, "Overloaded"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status) return known[i].text;
    return "";
}

/* "Sun, 06 Nov 1994 08:49:37 GMT", in any locale. */
static bool add_date(struct evbuffer *out) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const time_t now = time(NULL);
    struct tm t;
    if (!gmtime_r(&now, &t)) return true;
    return evbuffer_add_printf(out, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday, t.tm_mday,
                               months + 3 * t.tm_mon, 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec) >= 0;
}

/* Under the lock. Appends the response's head: status line and the server's fields. False: memory ran out. */
static bool add_head(http_exchange *x, const char *content_type, bool has_length, size_t length) {
    struct evbuffer *out = x->out;
    const bool bodiless = x->status == 204;
    if (x->request.head.minor == 0 && !has_length && !bodiless) x->close = true;
    if (atomic_load(&x->mailbox->draining)) x->close = true;
    bool good = evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n", x->status, reason(x->status)) >= 0 && add_date(out);
    good = good && evbuffer_add_printf(out, "X-Request-Id: %s\r\n", x->request.id) >= 0;
    if (content_type && !bodiless) good = good && evbuffer_add_printf(out, "Content-Type: %s\r\n", content_type) >= 0;
    if (has_length && !bodiless) good = good && evbuffer_add_printf(out, "Content-Length: %zu\r\n", length) >= 0;
    if (x->chunked) good = good && evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n") >= 0;
    if (x->close)
        good = good && evbuffer_add_printf(out, "Connection: close\r\n") >= 0;
    else if (x->request.head.minor == 0)
        good = good && evbuffer_add_printf(out, "Connection: keep-alive\r\n") >= 0;
    if (x->origin)
        good =
            good && evbuffer_add_printf(
                        out,
                        "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
                        "Access-Control-Expose-Headers: X-Request-Id, Request-Id, X-Seed, X-Ignored, Retry-After\r\n",
                        x->origin) >= 0;
    return good && evbuffer_add_buffer(out, x->fields) == 0 && evbuffer_add(out, "\r\n", 2) == 0;
}

/* Under the lock, after appending to `out`, which had `before` bytes. A failed allocation cuts the response: the
 * client would take a partial message for a whole one. */
static http_sent finish(http_exchange *x, size_t before, bool good) {
    x->queued += evbuffer_get_length(x->out) - before;
    x->last_write = ht_now_seconds();
    if (!good) x->aborted = true;
    if (!good) x->phase = HTTP_ENDED;
    notify(x);
    return good ? HTTP_SENT : HTTP_GONE;
}

http_sent http_reply(http_exchange *x, int status, const char *content_type, const void *bytes, size_t n) {
    http_sent sent = HTTP_GONE;
    pthread_mutex_lock(&x->mailbox->lock);
    if (!x->gone && x->phase == HTTP_WAITING) {
        const size_t before = evbuffer_get_length(x->out);
        x->status = status;
        x->phase = HTTP_ENDED;
        bool good = add_head(x, content_type, true, n);
        if (!x->is_head && n && status != 204) good = good && evbuffer_add(x->out, bytes, n) == 0;
        sent = finish(x, before, good);
    }
    pthread_mutex_unlock(&x->mailbox->lock);
    return sent;
}

http_sent http_stream_begin(http_exchange *x, const http_stream_options *o) {
    const char *type = o->content_type ? o->content_type : "text/event-stream";
    http_sent sent = HTTP_GONE;
    pthread_mutex_lock(&x->mailbox->lock);
    if (!x->gone && x->phase == HTTP_WAITING) {
        const size_t before = evbuffer_get_length(x->out);
        x->status = 200;
        x->phase = HTTP_STREAMING;
        x->chunked = x->request.head.minor > 0;
        x->alive_seconds = o->alive_seconds;
        x->alive = o->alive ? o->alive : ":\n\n";
        bool good = true;
        if (!strncmp(type, "text/event-stream", 17)) /* keeps proxies from buffering or caching it */
            good = evbuffer_add_printf(x->fields, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n") >= 0;
        sent = finish(x, before, good && add_head(x, type, false, 0));
    }
    pthread_mutex_unlock(&x->mailbox->lock);
    return sent;
}

/* Under the lock. Sends the bytes of `piece`. */
static http_sent send_piece(http_exchange *x, struct evbuffer *piece) {
    const size_t n = evbuffer_get_length(piece), before = evbuffer_get_length(x->out), bound = x->mailbox->stream_bytes;
    if (x->gone || x->phase != HTTP_STREAMING) return HTTP_GONE;
    if (n == 0 || x->is_head) return HTTP_SENT;
    if (x->queued && (n > bound || x->queued > bound - n)) return HTTP_SLOW;
    bool good = !x->chunked || evbuffer_add_printf(x->out, "%zx\r\n", n) >= 0;
    good = good && http_buffer_move(x->out, piece) && (!x->chunked || evbuffer_add(x->out, "\r\n", 2) == 0);
    return finish(x, before, good);
}

/* Sends and frees `piece`. If it is NULL or not `made`, memory ran out, and the response is aborted. */
static http_sent send_made(http_exchange *x, struct evbuffer *piece, bool made) {
    http_sent sent = HTTP_GONE;
    pthread_mutex_lock(&x->mailbox->lock);
    if (piece && made) sent = send_piece(x, piece);
    pthread_mutex_unlock(&x->mailbox->lock);
    if (!piece || !made) http_stream_abort(x);
    if (piece) evbuffer_free(piece);
    return sent;
}

http_sent http_stream_line(http_exchange *x, const char *bytes, size_t n) {
    struct evbuffer *piece = evbuffer_new();
    return send_made(x, piece, piece && evbuffer_add(piece, bytes, n) == 0 && evbuffer_add(piece, "\n", 1) == 0);
}

/* Splits at LF, CR and CRLF, which all end lines of server-sent events. */
static bool add_data(struct evbuffer *piece, const char *data, size_t n) {
    for (size_t i = 0;;) {
        const size_t from = i;
        while (i < n && data[i] != '\n' && data[i] != '\r') i++;
        if (evbuffer_add(piece, "data: ", 6) || evbuffer_add(piece, data + from, i - from) ||
            evbuffer_add(piece, "\n", 1))
            return false;
        if (i == n) return true;
        i += data[i] == '\r' && i + 1 < n && data[i + 1] == '\n' ? 2 : 1;
    }
}

http_sent http_stream_event(http_exchange *x, const char *name, const char *data, size_t n) {
    if (name && strpbrk(name, "\r\n")) return HTTP_GONE;
    struct evbuffer *piece = evbuffer_new();
    bool made = piece && (!name || evbuffer_add_printf(piece, "event: %s\n", name) >= 0);
    made = made && add_data(piece, data, n) && evbuffer_add(piece, "\n", 1) == 0;
    return send_made(x, piece, made);
}

http_sent http_stream_end(http_exchange *x) {
    http_sent sent = HTTP_GONE;
    pthread_mutex_lock(&x->mailbox->lock);
    if (!x->gone && x->phase == HTTP_STREAMING) {
        const size_t before = evbuffer_get_length(x->out);
        x->phase = HTTP_ENDED;
        sent = finish(x, before, !x->chunked || x->is_head || evbuffer_add(x->out, "0\r\n\r\n", 5) == 0);
    }
    pthread_mutex_unlock(&x->mailbox->lock);
    return sent;
}

void http_stream_abort(http_exchange *x) {
    pthread_mutex_lock(&x->mailbox->lock);
    if (!x->gone && x->phase != HTTP_ENDED) {
        x->phase = HTTP_ENDED;
        x->aborted = true;
        notify(x);
    }
    pthread_mutex_unlock(&x->mailbox->lock);
}

/* ---- the server's thread ---- */

void http_exchange_lose(http_exchange *x) {
    pthread_mutex_lock(&x->mailbox->lock);
    const bool tell = !x->gone && x->phase != HTTP_ENDED;
    x->gone = true;
    evbuffer_drain(x->out, evbuffer_get_length(x->out));
    pthread_mutex_unlock(&x->mailbox->lock);
    if (tell && x->owner.gone) x->owner.gone(x, x->owner.user);
}

bool http_exchange_expire(http_exchange *x) {
    pthread_mutex_lock(&x->mailbox->lock);
    const bool tell = !x->gone && x->phase != HTTP_ENDED && x->owner.expired;
    pthread_mutex_unlock(&x->mailbox->lock);
    if (tell) x->owner.expired(x, x->owner.user);
    return tell;
}

static bool send_alive(http_exchange *x) {
    if (!x->chunked) return evbuffer_add_printf(x->out, "%s", x->alive) >= 0;
    return evbuffer_add_printf(x->out, "%zx\r\n%s\r\n", strlen(x->alive), x->alive) >= 0;
}

double http_exchange_keep_alive(http_exchange *x) {
    double left = 0;
    pthread_mutex_lock(&x->mailbox->lock);
    if (x->phase == HTTP_STREAMING && x->alive_seconds > 0 && !x->gone) {
        left = x->last_write + x->alive_seconds - ht_now_seconds();
        if (left <= 0) {
            const size_t before = evbuffer_get_length(x->out);
            left = x->alive_seconds;
            if (x->queued || x->is_head) /* queued bytes keep the connection alive */
                x->last_write = ht_now_seconds();
            else
                finish(x, before, send_alive(x));
        }
    }
    pthread_mutex_unlock(&x->mailbox->lock);
    return left;
}
