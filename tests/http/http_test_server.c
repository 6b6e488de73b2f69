/* Server for test_http_server.py: handlers that echo, wait, stream and forget, on the options that its arguments name.
 *
 * Arguments are NAME=VALUE; listen= and inherit= are taken in their order. Standard output has a line "listening ADDRESS" for each, and one per
 * exchange that is over. SIGTERM drains, SIGINT stops at once, SIGHUP reads the certificate again. */
#include "http/keys.h"
#include "http/server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static http_server *server;
static double drain_seconds = 5;
static http_keys *keys;
static atomic_bool ended;
static atomic_int n_gone, n_freed, n_waiting, n_slow;
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static long parameter(http_exchange *x, const char *name, long otherwise) {
    char text[32];
    return http_query_value(http_exchange_head(x)->query, name, text, sizeof text) ? strtol(text, NULL, 10) : otherwise;
}

/* ---- work on other threads ---- */

typedef struct work {
    http_exchange *x;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool gone, drained; /* under the lock */
    long left, size;    /* of a flood and of its pieces, on the server's thread */
} work;

static void set(work *w, bool *flag) {
    pthread_mutex_lock(&w->lock);
    *flag = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static bool is_gone(work *w) {
    pthread_mutex_lock(&w->lock);
    const bool gone = w->gone;
    pthread_mutex_unlock(&w->lock);
    return gone;
}

static void on_gone(http_exchange *x, void *user) {
    work *w = user;
    (void)x;
    atomic_fetch_add(&n_gone, w->gone ? 1000000 : 1); /* twice would show */
    set(w, &w->gone);
}

static void on_drained(http_exchange *x, void *user) {
    work *w = user;
    (void)x;
    set(w, &w->drained);
}

static void on_free(void *user) {
    work *w = user;
    atomic_fetch_add(&n_freed, 1);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w);
}

static work *own(http_exchange *x, void (*gone)(http_exchange *, void *), void (*drained)(http_exchange *, void *)) {
    work *w = calloc(1, sizeof *w);
    if (!w) abort();
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->x = x;
    http_exchange_own(x, &(http_owner){.gone = gone, .drained = drained, .free = on_free, .user = w});
    return w;
}

/* Writes one piece, the last byte of which is a line break, however slowly it is read. False: the client is gone. */
static bool write_piece(work *w, const char *bytes, size_t n) {
    for (;;) {
        pthread_mutex_lock(&w->lock);
        w->drained = false;
        pthread_mutex_unlock(&w->lock);
        const http_sent sent = http_stream_line(w->x, bytes, n - 1);
        if (sent != HTTP_SLOW) return sent == HTTP_SENT;
        atomic_fetch_add(&n_slow, 1);
        pthread_mutex_lock(&w->lock);
        while (!w->drained && !w->gone) pthread_cond_wait(&w->changed, &w->lock);
        pthread_mutex_unlock(&w->lock);
    }
}

static void *run_slow(void *user) {
    work *w = user;
    const long ms = parameter(w->x, "ms", 100);
    for (long i = 0; i < ms && !is_gone(w); i += 10) sleep_ms(10);
    http_reply(w->x, 200, "text/plain", "slow", 4);
    atomic_fetch_sub(&n_waiting, 1);
    http_exchange_release(w->x);
    return NULL;
}

static void *run_silent(void *user) {
    work *w = user;
    sleep_ms(parameter(w->x, "ms", 100));
    http_stream_end(w->x);
    atomic_fetch_sub(&n_waiting, 1);
    http_exchange_release(w->x);
    return NULL;
}

static void *run_stream(void *user) {
    work *w = user;
    const long n = parameter(w->x, "n", 10), ms = parameter(w->x, "ms", 0), size = parameter(w->x, "size", 10);
    char *piece = malloc((size_t)size);
    if (!piece) abort();
    http_stream_begin(w->x, &(http_stream_options){.content_type = "application/octet-stream"});
    for (long i = 0; i < n; i++) {
        memset(piece, 'a' + (int)(i % 26), (size_t)size);
        if (!write_piece(w, piece, (size_t)size)) break;
        if (ms) sleep_ms(ms);
    }
    if (parameter(w->x, "abort", 0))
        http_stream_abort(w->x);
    else
        http_stream_end(w->x);
    free(piece);
    atomic_fetch_sub(&n_waiting, 1);
    http_exchange_release(w->x);
    return NULL;
}

static void start(http_exchange *x, void *(*run)(void *)) {
    pthread_t thread;
    pthread_attr_t attributes;
    work *w = own(x, on_gone, on_drained);
    atomic_fetch_add(&n_waiting, 1);
    http_exchange_retain(x);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 18);
    if (pthread_create(&thread, &attributes, run, w) != 0) abort();
    pthread_attr_destroy(&attributes);
}

/* ---- work on the server's thread ---- */

static void flood(http_exchange *x, void *user) {
    static const char piece[16384];
    work *w = user;
    while (w->left > 0) {
        const size_t n = (size_t)(w->left < w->size ? w->left : w->size);
        const http_sent sent = http_stream_line(x, piece, n - 1);
        if (sent == HTTP_SLOW) {
            atomic_fetch_add(&n_slow, 1);
            return;
        }
        if (sent == HTTP_GONE) return;
        w->left -= (long)n;
    }
    http_stream_end(x);
    http_exchange_release(x);
}

/* Of a flood, whose reference is given back when nobody reads it any more. */
static void flood_gone(http_exchange *x, void *user) {
    on_gone(x, user);
    http_exchange_release(x);
}

static void begin_flood(http_exchange *x) {
    work *w = own(x, flood_gone, flood);
    w->left = parameter(x, "bytes", 1 << 20);
    w->size = parameter(x, "size", 16384);
    http_exchange_retain(x);
    http_stream_begin(x, &(http_stream_options){.content_type = "application/octet-stream"});
    flood(x, w);
}

/* A stream that ends when the server's time is over, or not even then. */
static void last_words(http_exchange *x, void *user) {
    (void)user;
    if (!parameter(x, "words", 1)) return;
    http_stream_line(x, "the end", 7);
    http_stream_end(x);
    http_exchange_release(x);
}

static void begin_endless(http_exchange *x) {
    static const http_owner owner = {.gone = flood_gone, .expired = last_words, .free = on_free};
    work *w = calloc(1, sizeof *w);
    if (!w) abort();
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    http_owner mine = owner;
    mine.user = w;
    http_exchange_own(x, &mine);
    http_exchange_retain(x);
    http_stream_begin(x, &(http_stream_options){.content_type = "application/octet-stream"});
}

static void send_events(http_exchange *x) {
    http_stream_begin(x, NULL);
    http_stream_event(x, "first", "one\ntwo\r\nthree", 14);
    http_stream_event(x, NULL, "", 0);
    if (http_stream_event(x, "bad\nname", "x", 1) != HTTP_GONE) abort();
    http_stream_event(x, NULL, "[DONE]", 6);
    http_stream_end(x);
}

/* Silence, with signs of life. */
static void be_silent(http_exchange *x) {
    const char *query = http_exchange_head(x)->query;
    const char *sign = query && strstr(query, "ping") ? "event: ping\ndata: {}\n\n" : NULL;
    http_stream_begin(x, &(http_stream_options){.alive_seconds = 0.2, .alive = sign});
    start(x, run_silent);
}

static void send_lines(http_exchange *x) {
    http_stream_begin(x, &(http_stream_options){.content_type = "application/x-ndjson"});
    http_stream_line(x, "{\"a\":1}", 7);
    http_stream_line(x, "{\"a\":2}", 7);
    http_stream_end(x);
}

static void show(http_exchange *x) {
    char text[1024];
    const http_head *h = http_exchange_head(x);
    const int n = snprintf(text, sizeof text, "%s|%s|%s|%s|%s", h->method, h->path, h->query ? h->query : "-",
                           h->host ? h->host : "-", http_exchange_id(x));
    if (!http_exchange_field(x, "X-Test", "yes") || http_exchange_field(x, "X-Test", "a\r\nb") ||
        http_exchange_field(x, "X Test", "a"))
        abort();
    http_reply(x, 200, "text/plain", text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void tell(http_exchange *x) {
    char text[256];
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    const int n = snprintf(text, sizeof text,
                           "{\"gone\": %d, \"freed\": %d, \"waiting\": %d, \"slow\": %d, \"connections\": %zu, "
                           "\"peak_kib\": %ld, \"cpu\": %.3f}",
                           atomic_load(&n_gone), atomic_load(&n_freed), atomic_load(&n_waiting), atomic_load(&n_slow),
                           http_server_connections(server), use.ru_maxrss,
                           (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                               1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec));
    http_reply(x, 200, "application/json", text, (size_t)n);
}

/* ---- the handlers ---- */

static void handle(http_exchange *x, void *user) {
    const char *path = http_exchange_head(x)->path;
    size_t n;
    (void)user;
    const char *body = http_exchange_body(x, &n);
    if (strcmp(path, "/echo") == 0)
        http_reply(x, 200, "application/octet-stream", body, n);
    else if (strcmp(path, "/slow") == 0)
        start(x, run_slow);
    else if (strcmp(path, "/stream") == 0)
        start(x, run_stream);
    else if (strcmp(path, "/flood") == 0)
        begin_flood(x);
    else if (strcmp(path, "/endless") == 0)
        begin_endless(x);
    else if (strcmp(path, "/events") == 0)
        send_events(x);
    else if (strcmp(path, "/silent") == 0)
        be_silent(x);
    else if (strcmp(path, "/lines") == 0)
        send_lines(x);
    else if (strcmp(path, "/show") == 0)
        show(x);
    else if (strcmp(path, "/stats") == 0)
        tell(x);
    else if (strcmp(path, "/half") == 0)
        http_stream_begin(x, NULL); /* and forgotten */
    else if (strcmp(path, "/forget") != 0)
        http_reply(x, 404, "text/plain", "no such path", 12);
}

static http_refusal admit(http_exchange *x, void *user) {
    (void)user;
    if (keys && http_keys_admit(keys, http_exchange_head(x)) < 0) return (http_refusal){401, "A key is needed."};
    if (strcmp(http_exchange_head(x)->path, "/no-body") == 0) return (http_refusal){404, "There is no such path."};
    return (http_refusal){0};
}

static void refuse(http_exchange *x, const http_refusal *why, void *user) {
    char text[256];
    (void)user;
    const int n = snprintf(text, sizeof text, "{\"error\": \"%s\", \"status\": %d}", why->sentence, why->status);
    http_reply(x, why->status, "application/json", text, (size_t)n);
}

static void finished(const http_record *r, void *user) {
    (void)user;
    pthread_mutex_lock(&printing);
    printf("log %s %s %d %llu %s %s %d\n", *r->method ? r->method : "-", *r->path ? r->path : "-", r->status,
           (unsigned long long)r->bytes, r->id, r->remote, r->complete);
    fflush(stdout);
    pthread_mutex_unlock(&printing);
}

/* ---- signals and arguments ---- */

static void on_signal(int signal) { http_server_drain(server, signal == SIGTERM ? drain_seconds : 0); }

static void *watch_hangup(void *user) {
    sigset_t *hangup = user;
    int signal;
    while (sigwait(hangup, &signal) == 0 && !atomic_load(&ended)) {
        ht_error err = {0};
        const ht_status st = http_server_reload(server, &err);
        pthread_mutex_lock(&printing);
        printf("reloaded %s\n", st ? err.message : "ok");
        fflush(stdout);
        pthread_mutex_unlock(&printing);
    }
    return NULL;
}

static const char *value_of(const char *argument, const char *name) {
    const size_t n = strlen(name);
    return strncmp(argument, name, n) == 0 && argument[n] == '=' ? argument + n + 1 : NULL;
}

static void read_option(http_server_options *o, const char *argument) {
    static const char *host[8], *origin[8];
    const char *value;
    if ((value = value_of(argument, "connections"))) o->connections = strtoul(value, NULL, 10);
    if ((value = value_of(argument, "head"))) o->head_seconds = atof(value);
    if ((value = value_of(argument, "body"))) o->body_seconds = atof(value);
    if ((value = value_of(argument, "idle"))) o->idle_seconds = atof(value);
    if ((value = value_of(argument, "write"))) o->write_seconds = atof(value);
    if ((value = value_of(argument, "stream_bytes"))) o->stream_bytes = strtoul(value, NULL, 10);
    if ((value = value_of(argument, "body_bytes"))) o->body_bytes = strtoul(value, NULL, 10);
    if ((value = value_of(argument, "all_body_bytes"))) o->all_body_bytes = strtoul(value, NULL, 10);
    if ((value = value_of(argument, "certificate"))) o->certificate = value;
    if ((value = value_of(argument, "key"))) o->certificate_key = value;
    if ((value = value_of(argument, "drain"))) drain_seconds = atof(value);
    if ((value = value_of(argument, "host")) && o->hosts.n_hosts < 8) host[o->hosts.n_hosts++] = value;
    if ((value = value_of(argument, "origin")) && o->hosts.n_origins < 8) origin[o->hosts.n_origins++] = value;
    o->hosts.host = host;
    o->hosts.origin = origin;
}

static ht_status listen_at(const char *argument, ht_error *err) {
    const char *value;
    ht_status st = HT_OK;
    if ((value = value_of(argument, "listen"))) st = http_server_listen(server, value, err);
    if ((value = value_of(argument, "keys")) && !st) st = http_keys_load(value, &keys, err);
    if (value_of(argument, "inherit"))
        for (int i = 0, n = http_inherited_sockets(getenv("LISTEN_PID"), getenv("LISTEN_FDS")); i < n && !st; i++)
            st = http_server_adopt(server, 3 + i, err);
    return st;
}

int main(int argc, char **argv) {
    static const http_handlers handlers = {handle, admit, refuse, finished, NULL};
    http_server_options options = {0};
    ht_error err = {0};
    sigset_t hangup;
    pthread_t watcher;
    for (int i = 1; i < argc; i++) read_option(&options, argv[i]);
    ht_status st = http_server_new(&options, &handlers, &server, &err);
    for (int i = 1; i < argc && !st; i++) st = listen_at(argv[i], &err);
    if (st) {
        printf("error %s\n", err.message);
        http_server_free(server);
        return 1;
    }
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &hangup, NULL);
    if (pthread_create(&watcher, NULL, watch_hangup, &hangup) != 0) abort();
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    for (size_t i = 0; http_server_address(server, i); i++) printf("listening %s\n", http_server_address(server, i));
    printf("ready\n");
    fflush(stdout);
    st = http_server_run(server, &err);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = SIG_IGN}, NULL); /* the server is about to go */
    sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    while (atomic_load(&n_waiting)) sleep_ms(1); /* they notice that nobody listens any more */
    atomic_store(&ended, true);
    pthread_kill(watcher, SIGHUP);
    pthread_join(watcher, NULL);
    http_server_free(server);
    http_keys_free(keys);
    printf("end %d\n", st);
    return st != HT_OK;
}
