/* The server of the command: models behind HTTP, in the formats of OpenAI, Anthropic and Ollama. */
#ifndef HT_SERVE_SERVER_H
#define HT_SERVE_SERVER_H

#include "http/server.h"
#include "serve/models.h"

typedef struct serve_server serve_server;

/* Texts are lent until serve_free. */
typedef struct serve_options {
    http_server_options http;
    const char *const *listen; /* [n_listen], as http_server_listen takes them */
    size_t n_listen;
    int inherited;         /* sockets from descriptor 3 on that listen already */
    const char *keys_file; /* keys that clients have to show (http/keys.h); NULL: none */
    serve_models_options models;
    ht_sampler_options sampler; /* for requests without values; unset ones are the model's */
    bool seed_given;            /* sampler.seed is that of requests without one; else a new one is drawn for each */
    const char *system;         /* system prompt of conversations that have none; NULL: none */
    int32_t max_tokens;         /* of an answer, where requests set none; 0: what the dialect does by default */
    const char *const *stop;    /* [n_stop] likewise */
    int n_stop;
    bool strict_params;   /* requests with members that are not known are refused */
    bool lookup;          /* speculation by lookup */
    bool bounds_thinking; /* thoughts have thinking_budget tokens at most, where requests say nothing of them */
    int32_t thinking_budget;
    bool no_page;                /* there is no page at "/" */
    double drain_seconds;        /* for what is under way when the server is told to end */
    const char *slots_directory; /* where clients may save the prefix cache to; NULL: they may not */
    /* One line of JSON for each request that is over, without a newline; on the server's thread. NULL: nobody wants them. */
    void (*log)(const char *line, void *user);
    void *log_user;
    /* A warning for who runs the server, likewise; from any thread. */
    void (*warn)(const char *sentence, void *user);
} serve_options;

/* Opens the sockets; the caller frees *out. A port of this machine's alone is served without keys; HT_ERR_ARGUMENT for another address and
 * no keys_file. */
ht_status serve_new(const serve_options *options, serve_server **out, ht_error *err);
/* The addresses, as http_server_address. */
const char *serve_address(const serve_server *s, size_t i);
/* Serves on the calling thread until it is told to stop and all requests have ended. */
ht_status serve_run(serve_server *s, ht_error *err);
/* No more requests, and the end once those under way are answered. Clients of those that are not within options.drain_seconds, or when it is called
 * again, are told so; a third call does not wait for that. Any thread, and from a signal handler. */
void serve_drain(serve_server *s);
/* Reads certificates again. Any thread. */
ht_status serve_reload(serve_server *s, ht_error *err);
void serve_free(serve_server *s); /* NULL is fine */

#endif
