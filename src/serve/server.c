/* The server: creation, running and destruction; authentication and the text of rejections. */
#include "base/clock.h"
#include "base/error.h"
#include "http/keys.h"
#include "http/text.h"
#include "serve/call.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { MOST_WORKERS = 32, MOST_COMPUTERS = 8, WORK_QUEUE = 1024 };

/* ---- callbacks of the HTTP server ---- */

static http_refusal admit(http_exchange *x, void *user) {
    const serve_server *s = user;
    const http_head *h = &http_exchange_request(x)->head;
    const char *rest;
    const serve_route *route = serve_route_find(h->method, h->path, &rest);
    const bool open = route && (route->flags & SERVE_OPEN);
    if (s->keys && !open && http_keys_admit(s->keys, h) < 0)
        return (http_refusal){401, "This server wants a key, as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"."};
    return (http_refusal){0};
}

/* Names the option that would allow the rejected request. */
static void describe_refusal(const http_head *h, const http_refusal *why, serve_failure *f) {
    const char *host = h->host ? h->host : "", *origin = http_head_value(h, "origin");
    const int name = (int)(*host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":")); /* without a port */
    enum { SHOWN = 128 };
    if (why->sentence == http_host_refused && name > 0)
        serve_fail(f, why->status, NULL,
                   "The host name \"%.*s\" is not allowed: start the server with `--allow-host %.*s` to allow it.",
                   name < SHOWN ? name : SHOWN, host, name < SHOWN ? name : SHOWN, host);
    else if (why->sentence == http_origin_refused && origin && http_utf8_valid(origin, strlen(origin)))
        serve_fail(f, why->status, NULL,
                   "The origin \"%.128s\" is not allowed: start the server with `--allow-origin %.128s` to allow it.",
                   origin, origin);
    else
        serve_fail(f, why->status, NULL, "%s", why->sentence);
}

static void refuse(http_exchange *x, const http_refusal *why, void *user) {
    const http_head *h = &http_exchange_request(x)->head;
    serve_failure f = {0};
    (void)user;
    describe_refusal(h, why, &f);
    serve_failure_reply(x, &f, h->path ? serve_route_dialect(h->path) : SERVE_OPENAI);
}

static void write_log(const serve_server *s, const http_record *r) {
    struct timeval now;
    struct tm utc;
    char time[40];
    gettimeofday(&now, NULL);
    gmtime_r(&now.tv_sec, &utc);
    const size_t n = strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(time + n, sizeof time - n, ".%03dZ", (int)(now.tv_usec / 1000));
    ht_json *line = ht_json_pack("{ss ss ss ss ss si sI sf sb}", "time", time, "id", r->id, "remote", r->remote,
                                 "method", r->method, "path", r->path, "status", r->status, "bytes", (int64_t)r->bytes,
                                 "milliseconds", r->milliseconds, "complete", r->complete);
    char *text = line ? ht_json_dump(line, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(7)) : NULL;
    if (text) s->o.log(text, s->o.log_user);
    free(text);
    ht_json_decref(line);
}

static void finished(const http_record *r, void *user) {
    serve_server *s = user;
    const int class = r->status >= 100 && r->status < 600 ? r->status / 100 : 0;
    atomic_fetch_add(&s->metrics.requests[class], 1);
    serve_histogram_add(&s->metrics.whole, r->milliseconds * 1e-3);
    if (s->o.log) write_log(s, r);
}

/* ---- creation ---- */

/* Whether an address is local to this machine. A host name may begin with "127.", hence the numeric parse. */
static bool is_local(const char *address) {
    char host[16];
    struct in_addr v4;
    const size_t n = strcspn(address, ":");
    if (strncmp(address, "unix:", 5) == 0 || strncmp(address, "localhost:", 10) == 0 ||
        strncmp(address, "[::1]:", 6) == 0)
        return true;
    if (n >= sizeof host) return false;
    memcpy(host, address, n);
    host[n] = '\0';
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static ht_status listen_all(serve_server *s, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; i < s->o.n_listen && !status; i++) {
        if (!s->keys && !is_local(s->o.listen[i]))
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "%s is reachable from other machines: set API keys (--api-key-file), or listen on 127.0.0.1",
                           s->o.listen[i]);
        status = http_server_listen(s->http, s->o.listen[i], err);
    }
    for (int i = 0; i < s->o.inherited && !status; i++) status = http_server_adopt(s->http, 3 + i, err);
    return status;
}

static ht_status open_all(serve_server *s, ht_error *err) {
    static const http_handlers handlers = {serve_call_begin, admit, refuse, finished, NULL};
    http_handlers mine = handlers;
    mine.user = s;
    ht_status status = s->o.keys_file ? http_keys_load(s->o.keys_file, &s->keys, err) : HT_OK;
    if (!status) status = http_server_new(&s->o.http, &mine, &s->http, err);
    if (!status) status = listen_all(s, err);
    if (!status) status = serve_workers_new(MOST_WORKERS, WORK_QUEUE, &s->workers, err);
    if (!status) status = serve_workers_new(MOST_COMPUTERS, WORK_QUEUE, &s->computers, err);
    if (!status) status = serve_models_new(&s->o.models, s->workers, &s->models, err);
    return status;
}

ht_status serve_new(const serve_options *options, serve_server **out, ht_error *err) {
    *out = NULL;
    serve_server *s = calloc(1, sizeof *s);
    if (!s) return ht_fail_memory(err, sizeof *s, "the server");
    s->o = *options;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->quiet, NULL);
    const ht_status status = open_all(s, err);
    if (status)
        serve_free(s);
    else
        *out = s;
    return status;
}

const char *serve_address(const serve_server *s, size_t i) { return http_server_address(s->http, i); }

/* ---- running ---- */

ht_status serve_run(serve_server *s, ht_error *err) {
    /* Not earlier: the callback of a loaded model needs the server that serve_new returns. */
    ht_status status = serve_models_start(s->models, err);
    if (status) return status;
    status = http_server_run(s->http, err);
    /* All clients are disconnected and running work is cancelled; wait for it. */
    pthread_mutex_lock(&s->lock);
    while (s->n_calls) pthread_cond_wait(&s->quiet, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return status;
}

void serve_drain(serve_server *s) {
    const bool again = atomic_exchange(&s->draining, true);
    http_server_drain(s->http, again ? 0 : s->o.drain_seconds);
}

ht_status serve_reload(serve_server *s, ht_error *err) {
    return s->o.http.certificate ? http_server_reload(s->http, err) : HT_OK;
}

void serve_free(serve_server *s) {
    if (!s) return;
    serve_models_free(s->models);
    serve_workers_free(s->workers);
    serve_workers_free(s->computers); /* the other pool queues work here */
    http_server_free(s->http);
    http_keys_free(s->keys);
    free(s->seen);
    pthread_cond_destroy(&s->quiet);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
