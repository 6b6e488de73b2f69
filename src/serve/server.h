/* The server of the command: models over HTTP, with the APIs of OpenAI, Anthropic and Ollama. */
#ifndef HT_SERVE_SERVER_H
#define HT_SERVE_SERVER_H

#include "http/server.h"
#include "serve/models.h"

typedef struct serve_server serve_server;

/* Texts are lent until serve_free. */
typedef struct serve_options {
    http_server_options http;
    const char *const *listen; /* [n_listen], in the form of http_server_listen */
    size_t n_listen;
    int inherited;         /* number of inherited listening sockets, from descriptor 3 on */
    const char *keys_file; /* API keys (http/keys.h); NULL: none are needed */
    serve_models_options models;
    ht_sampler_options sampler; /* defaults of requests; unset values are the model's */
    bool seed_given;            /* sampler.seed is the default seed; else each request draws one */
    const char *system;         /* default system prompt; NULL: none */
    int32_t max_tokens;         /* default limit of an answer; 0: the dialect's default */
    const char *const *stop;    /* [n_stop], default stop strings */
    int n_stop;
    bool strict_params;   /* requests with unknown fields are rejected */
    bool lookup;          /* prompt-lookup speculative decoding */
    bool bounds_thinking; /* thinking_budget limits reasoning tokens of requests without a budget */
    int32_t thinking_budget;
    bool no_page;                /* no chat page at "/" */
    double drain_seconds;        /* time for running requests after serve_drain */
    const char *slots_directory; /* where clients may save the prefix cache; NULL: saving is disabled */
    /* Logs each finished request as a line of JSON, without a newline, on the server's thread. NULL: no log. */
    void (*log)(const char *line, void *user);
    void *log_user;
    /* Warns the operator, likewise; called from any thread. */
    void (*warn)(const char *sentence, void *user);
} serve_options;

/* Opens the sockets; the caller frees *out. Without a keys_file only loopback addresses and Unix sockets are allowed;
 * others return HT_ERR_ARGUMENT. */
ht_status serve_new(const serve_options *options, serve_server **out, ht_error *err);
/* The listening addresses, as http_server_address. */
const char *serve_address(const serve_server *s, size_t i);
/* Serves on the calling thread until serve_drain and the end of all requests. */
ht_status serve_run(serve_server *s, ht_error *err);
/* Accepts no more requests, and stops when running ones end. After options.drain_seconds, or on a second call, the rest
 * get an error; a third call closes at once. Any thread and signal handlers may call it. */
void serve_drain(serve_server *s);
/* Reloads certificates. Any thread. */
ht_status serve_reload(serve_server *s, ht_error *err);
void serve_free(serve_server *s); /* NULL is fine */

#endif
