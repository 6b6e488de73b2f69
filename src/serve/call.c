#include "serve/call.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/text.h"
#include "http/keys.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

/* ---- end ---- */

static void free_call(void *user) {
    serve_call *c = user;
    serve_server *s = c->server;
    if (c->free_state) c->free_state(c->state);
    serve_lease_end(s->models, &c->lease);
    ht_json_decref(c->body);
    free(c);
    pthread_mutex_lock(&s->lock);
    if (--s->n_calls == 0) pthread_cond_broadcast(&s->quiet);
    pthread_mutex_unlock(&s->lock);
}

static void on_gone(http_exchange *x, void *user) {
    serve_call *c = user;
    (void)x;
    atomic_store(&c->is_gone, true);
    if (c->gone) c->gone(c);
}

/* Runs for calls still open at the shutdown deadline. */
static void on_expired(http_exchange *x, void *user) {
    serve_call *c = user;
    serve_failure f = {0};
    void (*expired)(serve_call *, const serve_failure *) = atomic_load(&c->expired);
    serve_fail(&f, 503, NULL, "server is shutting down; response incomplete");
    if (expired)
        expired(c, &f);
    else
        serve_failure_reply(x, &f, c->route->dialect);
    on_gone(x, c); /* cancels the work */
}

/* ---- work ---- */

static void answer_failure(serve_call *c) { serve_failure_reply(c->x, &c->failure, c->route->dialect); }

static void on_unknown(const char *name, void *user) { serve_call_ignore(user, name); }

size_t serve_call_values_max(const serve_call *c) {
    return ht_max_size((size_t)1 << 20, c->server->o.http.body_bytes / 8);
}

static bool read_body(serve_call *c) {
    ht_json_replaced replaced = {0};
    const http_request *r = http_exchange_request(c->x);
    if (c->body || !(c->route->flags & SERVE_BODY)) return true;
    c->body = r->n_body ? serve_json_parse(r->body, r->n_body, serve_call_values_max(c), &replaced, &c->failure)
                        : ht_json_new_object();
    if (replaced.nul) serve_call_ignore(c, "NUL in texts");
    if (replaced.surrogate) serve_call_ignore(c, "halves of characters in texts");
    if (!c->body) return serve_fail_memory(&c->failure); /* unless parsing has failed already */
    return serve_fields_check(c->body, c->route->fields, c->server->o.strict_params, on_unknown, c, &c->failure);
}

static bool needs_model(const serve_call *c) {
    const serve_route *r = c->route;
    return (r->flags & SERVE_MODEL) && !c->lease.of && !(r->needs_no_model && r->needs_no_model(c->body));
}

static void run_compute(serve_work *work) {
    serve_call *c = (serve_call *)work;
    http_exchange *x = c->x;
    if (!atomic_load(&c->is_gone) && !c->compute(c)) answer_failure(c);
    http_exchange_release(x);
}

static bool fail_full(serve_call *c) {
    return serve_fail(&c->failure, 503, NULL, "too many queued requests; try again later");
}

bool serve_call_compute(serve_call *c, bool (*compute)(serve_call *c)) {
    http_exchange *x = c->x;
    c->compute = compute;
    c->work.run = run_compute;
    http_exchange_retain(x);
    if (serve_workers_put(c->server->computers, &c->work, false)) return true;
    http_exchange_release(x);
    return fail_full(c);
}

/* True: the call runs or has replied. False: it failed, or waits for a model, with *later set. */
static bool work_on(serve_call *c, bool *later) {
    *later = false;
    if (!read_body(c)) return false;
    if (needs_model(c)) {
        const char *name = serve_text(c->body, "model");
        const bool again = c->again;
        c->again = true; /* before another thread can take the work */
        const serve_leasing leasing = serve_models_lease(c->server->models, name, c->route->flags & SERVE_TASKS,
                                                         &c->work, again, &c->lease, &c->failure);
        *later = leasing == SERVE_LATER;
        if (leasing != SERVE_LEASED) return false;
    }
    return c->route->flags & SERVE_COMPUTES ? serve_call_compute(c, c->route->run) : c->route->run(c);
}

static void run(serve_work *work) {
    serve_call *c = (serve_call *)work;
    http_exchange *x = c->x;
    bool later = false;
    if (!atomic_load(&c->is_gone) && !work_on(c, &later) && !later) answer_failure(c);
    if (!later) http_exchange_release(x);
}

/* ---- begin ---- */

static void refuse_route(http_exchange *x) {
    serve_failure f = {0};
    char methods[SERVE_METHODS];
    const http_head *h = &http_exchange_request(x)->head;
    serve_route_methods(h->path, methods);
    if (*methods) (void)http_exchange_field(x, "Allow", methods);
    if (*methods)
        serve_fail(&f, 405, NULL, "method %s is not allowed for %.256s", h->method, h->path);
    else
        serve_fail(&f, 404, NULL, "%.256s is not an endpoint of this server", h->path);
    serve_failure_reply(x, &f, serve_route_dialect(h->path));
}

void serve_call_begin(http_exchange *x, void *user) {
    serve_server *s = user;
    const http_head *h = &http_exchange_request(x)->head;
    const char *rest;
    const serve_route *route = serve_route_find(h->method, h->path, &rest);
    serve_call *c = route ? calloc(1, sizeof *c) : NULL;
    if (!route) {
        refuse_route(x);
        return;
    }
    serve_failure f = {0};
    if (!c) {
        serve_fail_memory(&f);
        serve_failure_reply(x, &f, route->dialect);
        return;
    }
    c->work.run = run;
    c->server = s;
    c->x = x;
    c->route = route;
    c->rest = rest;
    snprintf(c->salt, sizeof c->salt, "%zd", s->keys ? http_keys_admit(s->keys, h) : -1);
    c->begin = ht_now_seconds();
    pthread_mutex_lock(&s->lock);
    s->n_calls++;
    pthread_mutex_unlock(&s->lock);
    http_exchange_own(x, &(http_owner){.gone = on_gone, .expired = on_expired, .free = free_call, .user = c});
    http_exchange_retain(x);
    if (route->flags & SERVE_AT_ONCE) {
        run(&c->work);
    } else if (!serve_workers_put(s->workers, &c->work, false)) {
        (void)fail_full(c);
        answer_failure(c);
        http_exchange_release(x);
    }
}

/* ---- notes ---- */

/* Ignored fields that have been logged once. Clients choose their names, so MOST_SEEN bounds them. */
enum { MOST_SEEN = 64, SEEN_LENGTH = 64, MOST_IGNORED = 16 };
struct serve_seen {
    int n;
    char name[MOST_SEEN][SEEN_LENGTH];
};

static bool is_new(serve_server *s, const char *what) {
    bool found = false;
    pthread_mutex_lock(&s->lock);
    if (!s->seen) s->seen = calloc(1, sizeof *s->seen);
    struct serve_seen *seen = s->seen;
    for (int i = 0; seen && i < seen->n && !found; i++) found = strncmp(seen->name[i], what, SEEN_LENGTH - 1) == 0;
    const bool added = seen && !found && seen->n < MOST_SEEN;
    if (added) snprintf(seen->name[seen->n++], SEEN_LENGTH, "%s", what);
    pthread_mutex_unlock(&s->lock);
    return added;
}

static void cancel_state(serve_call *c) { ht_cancel_request(c->state); }

ht_cancel *serve_call_cancel(serve_call *c) {
    c->state = calloc(1, sizeof(ht_cancel));
    c->free_state = free;
    if (!c->state) {
        serve_fail_memory(&c->failure);
        return NULL;
    }
    atomic_store(&c->gone, cancel_state);
    if (atomic_load(&c->is_gone)) cancel_state(c);
    return c->state;
}

bool serve_call_may_ignore(const serve_call *c) { return c->n_ignored < MOST_IGNORED && !atomic_load(&c->is_gone); }

void serve_call_ignore(serve_call *c, const char *what) {
    if (c->n_ignored == MOST_IGNORED) return;
    c->n_ignored++;
    char name[96]; /* characters that are invalid in a header become question marks */
    snprintf(name, sizeof name, "%s", what);
    for (char *at = name; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    (void)http_exchange_field(c->x, "X-Ignored", name);
    if (!c->server->o.warn || !is_new(c->server, what)) return;
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s: ignored \"%.64s\"", c->route->path, what);
    ht_utf8_trim(sentence);
    c->server->o.warn(sentence, c->server->o.log_user);
}

/* Random bytes, or zeros if the source fails: ids are then valid but not unique. */
void serve_random(void *bytes, size_t n) {
    if (RAND_bytes(bytes, (int)n) != 1) memset(bytes, 0, n);
}

void serve_new_id(const char *prefix, char out[SERVE_ID]) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[24];
    serve_random(random, sizeof random);
    size_t n = (size_t)snprintf(out, SERVE_ID - sizeof random, "%s", prefix);
    for (size_t i = 0; i < sizeof random; i++) out[n++] = letters[random[i] % (sizeof letters - 1)];
    out[n] = '\0';
}
