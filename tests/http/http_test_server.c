/* Server for test_http_server.py: handlers that echo, wait, stream and forget, on the options that its arguments name.
 *
 * Arguments are NAME=VALUE; listen= are taken in their order. Standard output has a line "listening ADDRESS" for each, and one per exchange that is
 * over. SIGTERM drains, SIGINT stops at once. */
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
static atomic_int n_gone, n_freed, n_waiting, n_slow;

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static long parameter(http_exchange *x, const char *name, long otherwise) {
    char text[32];
    return http_query_value(http_exchange_request(x)->head.query, name, text, sizeof text) ? strtol(text, NULL, 10)
                                                                                           : otherwise;
}

/* ---- work on other threads ---- */

typedef struct work {
    http_exchange *x;
    atomic_bool gone;
} work;

static void on_gone(http_exchange *x, void *user) {
    work *w = user;
    (void)x;
    atomic_fetch_add(&n_gone, atomic_exchange(&w->gone, true) ? 1000000 : 1); /* twice would show */
}

static void on_free(void *user) {
    atomic_fetch_add(&n_freed, 1);
    free(user);
}

static work *own(http_exchange *x, const http_owner *functions) {
    work *w = calloc(1, sizeof *w);
    http_owner owner = *functions;
    if (!w) abort();
    w->x = x;
    owner.user = w;
    http_exchange_own(x, &owner);
    http_exchange_retain(x);
    return w;
}

/* Writes one piece, the last byte of which is a line break, however slowly it is read. False: the client is gone. */
static bool write_piece(work *w, const char *bytes, size_t n) {
    http_sent sent = http_stream_line(w->x, bytes, n - 1);
    if (sent == HTTP_SLOW) atomic_fetch_add(&n_slow, 1);
    while (sent == HTTP_SLOW && !atomic_load(&w->gone)) {
        sleep_ms(1);
        sent = http_stream_line(w->x, bytes, n - 1);
    }
    return sent == HTTP_SENT;
}

static void end_work(work *w) {
    atomic_fetch_sub(&n_waiting, 1);
    http_exchange_release(w->x);
}

static void *run_slow(void *user) {
    work *w = user;
    const long ms = parameter(w->x, "ms", 100);
    for (long i = 0; i < ms && !atomic_load(&w->gone); i += 10) sleep_ms(10);
    http_reply(w->x, 200, "text/plain", "slow", 4);
    end_work(w);
    return NULL;
}

static void *run_silent(void *user) {
    work *w = user;
    sleep_ms(parameter(w->x, "ms", 100));
    http_stream_end(w->x);
    end_work(w);
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
    end_work(w);
    return NULL;
}

static void start(http_exchange *x, void *(*run)(void *)) {
    pthread_t thread;
    pthread_attr_t attributes;
    work *w = own(x, &(http_owner){.gone = on_gone, .free = on_free});
    atomic_fetch_add(&n_waiting, 1);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 18);
    if (pthread_create(&thread, &attributes, run, w) != 0) abort();
    pthread_attr_destroy(&attributes);
}

/* ---- work on the server's thread ---- */

/* Of a stream without a thread: its reference is given back. */
static void endless_gone(http_exchange *x, void *user) {
    on_gone(x, user);
    http_exchange_release(x);
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
    own(x, &(http_owner){.gone = endless_gone, .expired = last_words, .free = on_free});
    http_stream_begin(x, &(http_stream_options){.content_type = "application/octet-stream"});
}

static void send_events(http_exchange *x) {
    http_stream_begin(x, &(http_stream_options){0});
    http_stream_event(x, "first", "one\ntwo\r\nthree", 14);
    http_stream_event(x, NULL, "", 0);
    if (http_stream_event(x, "bad\nname", "x", 1) != HTTP_GONE) abort();
    http_stream_event(x, NULL, "[DONE]", 6);
    http_stream_end(x);
}

/* Silence, with signs of life. */
static void be_silent(http_exchange *x) {
    const char *query = http_exchange_request(x)->head.query;
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
    const http_head *h = &http_exchange_request(x)->head;
    const int n = snprintf(text, sizeof text, "%s|%s|%s|%s|%s", h->method, h->path, h->query ? h->query : "-",
                           h->host ? h->host : "-", http_exchange_request(x)->id);
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

static void echo(http_exchange *x) {
    const http_request *r = http_exchange_request(x);
    http_reply(x, 200, "application/octet-stream", r->body, r->n_body);
}

static void begin_slow(http_exchange *x) { start(x, run_slow); }
static void begin_stream(http_exchange *x) { start(x, run_stream); }
static void begin_half(http_exchange *x) { http_stream_begin(x, &(http_stream_options){0}); /* and forgotten */ }
static void forget(http_exchange *x) { (void)x; }

static void handle(http_exchange *x, void *user) {
    static const struct {
        const char *path;
        void (*handle)(http_exchange *x);
    } paths[] = {
        {"/echo", echo},          {"/slow", begin_slow},  {"/stream", begin_stream}, {"/endless", begin_endless},
        {"/events", send_events}, {"/silent", be_silent}, {"/lines", send_lines},    {"/show", show},
        {"/stats", tell},         {"/half", begin_half},  {"/forget", forget}};
    (void)user;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(http_exchange_request(x)->head.path, paths[i].path) == 0) {
            paths[i].handle(x);
            return;
        }
    http_reply(x, 404, "text/plain", "no such path", 12);
}

static http_refusal admit(http_exchange *x, void *user) {
    (void)user;
    if (strcmp(http_exchange_request(x)->head.path, "/no-body") == 0)
        return (http_refusal){404, "There is no such path."};
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
    printf("log %s %s %d %llu %s %s %d\n", *r->method ? r->method : "-", *r->path ? r->path : "-", r->status,
           (unsigned long long)r->bytes, r->id, r->remote, r->complete);
    fflush(stdout);
}

/* ---- signals and arguments ---- */

static void on_signal(int signal) { http_server_drain(server, signal == SIGTERM ? drain_seconds : 0); }

static const char *value_of(const char *argument, const char *name) {
    const size_t n = strlen(name);
    return strncmp(argument, name, n) == 0 && argument[n] == '=' ? argument + n + 1 : NULL;
}

static void read_option(http_server_options *o, const char *argument) {
    const struct {
        const char *name;
        size_t *size;
        double *seconds;
        const char **text;
    } named[] = {{"connections", .size = &o->connections}, {"head", .seconds = &o->head_seconds},
                 {"body", .seconds = &o->body_seconds},    {"idle", .seconds = &o->idle_seconds},
                 {"write", .seconds = &o->write_seconds},  {"stream_bytes", .size = &o->stream_bytes},
                 {"body_bytes", .size = &o->body_bytes},   {"all_body_bytes", .size = &o->all_body_bytes},
                 {"certificate", .text = &o->certificate}, {"key", .text = &o->certificate_key},
                 {"drain", .seconds = &drain_seconds}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const char *value = value_of(argument, named[i].name);
        if (!value) continue;
        if (named[i].size) *named[i].size = strtoul(value, NULL, 10);
        if (named[i].seconds) *named[i].seconds = atof(value);
        if (named[i].text) *named[i].text = value;
    }
}

int main(int argc, char **argv) {
    static const http_handlers handlers = {handle, admit, refuse, finished, NULL};
    http_server_options options = {0};
    ht_error err = {0};
    for (int i = 1; i < argc; i++) read_option(&options, argv[i]);
    ht_status st = http_server_new(&options, &handlers, &server, &err);
    for (int i = 1; i < argc && !st; i++) {
        const char *address = value_of(argv[i], "listen");
        if (address) st = http_server_listen(server, address, &err);
    }
    if (st) {
        printf("error %s\n", err.message);
        http_server_free(server);
        return 1;
    }
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    for (size_t i = 0; http_server_address(server, i); i++) printf("listening %s\n", http_server_address(server, i));
    printf("ready\n");
    fflush(stdout);
    st = http_server_run(server, &err);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = SIG_IGN}, NULL); /* the server is about to go */
    sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    while (atomic_load(&n_waiting)) sleep_ms(1); /* they notice that nobody listens any more */
    http_server_free(server);
    printf("end %d\n", st);
    return st != HT_OK;
}
