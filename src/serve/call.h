/* A call: one request, from routing to its response. It lives as long as its exchange; workers retain the exchange. */
#ifndef HT_SERVE_CALL_H
#define HT_SERVE_CALL_H

#include "serve/fields.h"
#include "serve/metrics.h"
#include "serve/models.h"
#include "serve/server.h"
#include "serve/workers.h"

#include <hearth/cancel.h>

#include <pthread.h>
#include <stdatomic.h>

typedef struct serve_call serve_call;

enum {
    SERVE_MODEL = 1,     /* needs a model: the field "model" names it; the default is the first for the task */
    SERVE_BODY = 2,      /* has a JSON body */
    SERVE_AT_ONCE = 4,   /* runs on the server's thread, without queueing */
    SERVE_OPEN = 8,      /* needs no API key */
    SERVE_REFUSES = 32,  /* unsupported: the error names an alternative */
    SERVE_COMPUTES = 64, /* runs on a compute thread (serve_server.computers) */
    SERVE_SAYS = 128     /* requires a body, though no single field is required: one of several is */
    /* SERVE_TASKS (models.h) */
};

/* An endpoint. */
typedef struct serve_route {
    const char *method; /* "GET" also serves HEAD */
    const char *path;   /* a trailing "*" matches any suffix, which becomes the call's `rest` */
    serve_dialect_name dialect;
    unsigned flags;
    const serve_field *fields;                   /* table of the body's fields; NULL: the body is not read */
    bool (*needs_no_model)(const ht_json *body); /* with SERVE_MODEL: bodies that need no model; NULL: none */
    /* Replies, now or later, or returns false with a failure in the call. */
    bool (*run)(serve_call *c);
    /* For the OpenAPI description. */
    const char *summary;
    const char *type, *other_type; /* content types of a text response; NULL: JSON, and no second type */
    bool streams;                  /* can stream: server-sent events, or lines of JSON for Ollama */
    const serve_field *rest;       /* the path parameter that `*` matches; NULL: none */
    const serve_field *query;      /* query parameters; NULL: none */
} serve_route;

struct serve_server {
    serve_options o;
    http_server *http;
    struct http_keys *keys;
    serve_workers *workers;
    serve_workers *computers; /* threads for long computations, which must not delay other requests */
    serve_models *models;
    serve_metrics metrics;
    atomic_bool draining;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t quiet;
    size_t n_calls;          /* live calls */
    struct serve_seen *seen; /* names of unknown fields that have been logged */
};

struct serve_call {
    serve_work work; /* must stay first: serve_work pointers are cast to calls */
    serve_server *server;
    http_exchange *x;
    const serve_route *route;
    const char *rest; /* the part of the path after the route's prefix */
    serve_failure failure;
    ht_json *body; /* NULL: none */
    bool again;    /* has already waited for a model */
    bool (*compute)(serve_call *c);
    serve_lease lease;
    char salt[24]; /* per-key salt: response times must not reveal other clients' prompts */
    int n_ignored; /* fields reported as ignored, up to a limit */
    double begin;  /* seconds on the clock of ht_now_seconds */
    void *state;   /* of the route, freed with the call */
    void (*free_state)(void *state);
    _Atomic(void (*)(serve_call *)) gone; /* runs when the client disconnects, on the server's thread */
    /* Called likewise when the server shuts down before the response; NULL: nothing has been sent yet. */
    _Atomic(void (*)(serve_call *, const serve_failure *)) expired;
    atomic_bool is_gone; /* the client disconnected, or the shutdown deadline passed */
};

/* All routes; an entry without a method ends the table. */
extern const serve_route serve_routes[];

/* Starts a request of the server `user`. Runs on the server's thread. */
void serve_call_begin(http_exchange *x, void *user);
/* Queues `compute` for a compute thread: it replies, or returns false with a failure in the call. Returns false, with a
 * failure, when the queue is full. */
bool serve_call_compute(serve_call *c, bool (*compute)(serve_call *c));
/* The route for a method and path, or NULL. Method NULL: the first route of the path. */
const serve_route *serve_route_find(const char *method, const char *path, const char **rest);
/* The dialect of failures for a path: that of its route, or of the nearest routes for an unknown path. */
serve_dialect_name serve_route_dialect(const char *path);
/* The methods of a path, in the format of the header Allow; "" for an unknown path. */
enum { SERVE_METHODS = 64 };
void serve_route_methods(const char *path, char out[SERVE_METHODS]);
/* Makes a cancellation, the call's state, which is requested when the client has gone; NULL: a failure. */
ht_cancel *serve_call_cancel(serve_call *c);
/* Reports an ignored part of a request: in the response's header X-Ignored, and once as a warning. */
void serve_call_ignore(serve_call *c, const char *what);
/* Whether another ignored part would be reported. Check it before an expensive search for one. */
bool serve_call_may_ignore(const serve_call *c);

/* The limit on JSON values in a body. The default fits a prompt of a million token ids; a larger body limit allows one
 * value per eight bytes. A parsed value takes about 40 bytes. */
size_t serve_call_values_max(const serve_call *c);

/* New random identifiers: the prefix and 24 characters. */
enum { SERVE_ID = 48 };
void serve_random(void *bytes, size_t n);
void serve_new_id(const char *prefix, char out[SERVE_ID]);

#endif
