/* A call: one request of a client, from its routing to its answer. It lives as long as its exchange, which whoever works on it holds. */
#ifndef HT_SERVE_CALL_H
#define HT_SERVE_CALL_H

#include "serve/fields.h"
#include "serve/metrics.h"
#include "serve/models.h"
#include "serve/server.h"
#include "serve/workers.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct serve_call serve_call;

enum {
    SERVE_MODEL = 1,     /* needs a model: that of the member "model", or the first */
    SERVE_BODY = 2,      /* has a body of JSON */
    SERVE_AT_ONCE = 4,   /* is answered on the server's thread */
    SERVE_OPEN = 8,      /* needs no key */
    SERVE_REFUSES = 32,  /* is not there, and says what is instead */
    SERVE_COMPUTES = 64, /* is answered on a thread of those that compute */
    SERVE_SAYS = 128     /* its body says something, though no member has to be there: one of several */
};

/* An endpoint. */
typedef struct serve_route {
    const char *method; /* "GET" is HEAD, too */
    const char *path;   /* one that ends with "*" takes all that begin so; what follows is the call's `rest` */
    serve_dialect_name dialect;
    unsigned flags;
    const serve_field *fields;                   /* table of the body's; NULL: it is not read */
    bool (*needs_no_model)(const ht_json *body); /* with SERVE_MODEL: whether it can do without; NULL: none can */
    /* Answers, at once or later, or returns false with a failure in the call. */
    bool (*run)(serve_call *c);
    /* For the description of the interface. */
    const char *summary;
    const char *type, *other_type; /* of the answer, which is a text; NULL: JSON, and no other */
    bool streams;                  /* a response may be a stream of events, or in Ollama's dialect of lines */
    const serve_field *rest;       /* what the `*` of the path is; NULL: none */
    const serve_field *query;      /* members of the query; NULL: none */
} serve_route;

struct serve_server {
    serve_options o;
    http_server *http;
    struct http_keys *keys;
    serve_workers *workers;
    serve_workers *computers; /* for what takes long beside the engines, so that nobody who asks them waits for it */
    serve_models *models;
    serve_metrics metrics;
    atomic_bool draining;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t quiet;
    size_t n_calls;          /* that live */
    struct serve_seen *seen; /* members that were not known, and have been reported */
};

struct serve_call {
    serve_work work; /* the first */
    serve_server *server;
    http_exchange *x;
    const serve_route *route;
    const char *rest; /* of the path, behind that of the route */
    serve_failure failure;
    ht_json *body; /* NULL: none */
    bool again;    /* has waited for a model */
    bool (*compute)(serve_call *c);
    serve_lease lease;
    char salt[24]; /* its key's: nobody shall learn by the time of an answer what clients with others have asked */
    int n_ignored; /* that have been told of, or were too many to be */
    double begin;  /* seconds on the clock of ht_now_seconds */
    void *state;   /* of the route, freed with the call */
    void (*free_state)(void *state);
    _Atomic(void (*)(serve_call *)) gone; /* the client has gone; on the server's thread. `state` is set before */
    /* The server ends before the answer: says so to the client. Likewise; NULL: nothing has been answered yet. */
    _Atomic(void (*)(serve_call *, const serve_failure *)) expired;
    atomic_bool is_gone; /* the client, or the time for it */
};

/* All routes; the last one has no method. */
extern const serve_route serve_routes[];

/* Takes a request over, of the server `user`. On the server's thread. */
void serve_call_begin(http_exchange *x, void *user);
/* Goes on with `compute` on a thread of those that compute: it answers, or returns false with a failure in the call. False: with a
 * failure, too many wait for one. */
bool serve_call_compute(serve_call *c, bool (*compute)(serve_call *c));
/* The route for a method and path; NULL: none. Method NULL: the first one of the path. */
const serve_route *serve_route_find(const char *method, const char *path, const char **rest);
/* The form that who asks for a path expects failures in: of its route, or of those that the path would lie beside. */
serve_dialect_name serve_route_dialect(const char *path);
/* The methods that a path takes, as a field Allow has them; "": there is no such path. */
enum { SERVE_METHODS = 64 };
void serve_route_methods(const char *path, char out[SERVE_METHODS]);
/* Tells of something in a request that has no effect: in a field X-Ignored of the answer's head, and once as a warning. */
void serve_call_ignore(serve_call *c, const char *what);
/* Whether there is room for more of that, and somebody to read it: looking for it may take long. */
bool serve_call_may_ignore(const serve_call *c);

/* Values that the JSON of a body may have: the most that anybody sends are the ids of a prompt of a million tokens. Where larger bodies are
 * taken than by default, it is one for eight bytes. Each takes some 40 bytes while the body is read. */
size_t serve_call_values_max(const serve_call *c);

/* Fresh identifiers: the prefix and 24 characters. */
enum { SERVE_ID = 48 };
void serve_random(void *bytes, size_t n);
void serve_new_id(const char *prefix, char out[SERVE_ID]);

#endif
