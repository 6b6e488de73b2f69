/* The server's models: each is loaded on its first request and has an engine. Adapters have separate names.
 *
 * Names are fixed at start. One thread loads one model at a time. It evicts idle models, least recently used first,
 * when the next exceeds the memory budget. All functions are thread-safe. */
#ifndef HT_SERVE_MODELS_H
#define HT_SERVE_MODELS_H

#include "serve/failure.h"
#include "serve/grammars.h"
#include "serve/workers.h"

#include <hearth/engine.h>

typedef struct serve_models serve_models;

/* Tasks of a model, and of a route (serve_route.flags, which have these bits). */
enum {
    SERVE_GENERATES = 1 << 8, /* all but text encoders */
    SERVE_EMBEDS = 1 << 9,    /* encoders without a head, models with a stated pooling; others can embed, too */
    SERVE_RERANKS = 1 << 10,  /* encoders with one score, models with the pooling "rank"; other rerankers can, too */
    SERVE_TASKS = SERVE_GENERATES | SERVE_EMBEDS | SERVE_RERANKS
};
unsigned serve_tasks_of(const ht_model_info *info);
/* A list for clients, in the words of Ollama: "completion", "embedding"; and "rerank". NULL: out of memory. */
ht_json *serve_tasks_json(unsigned tasks);

typedef struct serve_model_source {
    const char *name, *path;
    unsigned tasks; /* it is made for */
} serve_model_source;

/* An adapter of the first model. */
typedef struct serve_adapter_source {
    const char *name, *path;
    float scale;
} serve_adapter_source;

/* Another name of a model or an adapter. */
typedef struct serve_alias {
    const char *name, *of;
} serve_alias;

/* A checkpoint that exists but cannot be used. */
typedef struct serve_broken {
    const char *name, *why;
} serve_broken;

/* Arrays and texts are lent until serve_models_free. */
typedef struct serve_models_options {
    const serve_model_source *model; /* [n_models], 1 or more */
    size_t n_models;
    const serve_adapter_source *adapter; /* [n_adapters] */
    size_t n_adapters;
    const serve_alias *alias; /* [n_aliases] */
    size_t n_aliases;
    const serve_broken *broken; /* [n_broken], reported when a client requests one */
    size_t n_broken;
    bool any_name;            /* unknown names mean what no name means */
    bool first_at_once;       /* the first model is loaded at start */
    size_t memory_bytes;      /* limit for weights and KV cache; 0: three quarters of the machine's memory */
    ht_engine_options engine; /* for each model; kv_bytes of several defaults to memory_bytes / 4 */
    /* Loads a model, on the loading thread. */
    ht_status (*load)(const char *path, void *user, ht_model **out, ht_error *err);
    /* Called on the same thread after each load, failed or not. NULL: no callback. */
    void (*loaded)(const char *name, ht_status status, const ht_error *err, void *user);
    void *user;
} serve_models_options;

/* HT_ERR_ARGUMENT for a duplicate name, or an alias of an unknown one. Loads nothing. The caller frees *out. */
ht_status serve_models_new(const serve_models_options *options, serve_workers *workers, serve_models **out,
                           ht_error *err);
/* Starts the loading thread, which calls `load` and `loaded`; it first loads a first_at_once model. Call it once. */
ht_status serve_models_start(serve_models *m, ht_error *err);
/* All leases must have ended. NULL is fine. */
void serve_models_free(serve_models *m);

/* A model in use: it stays loaded until the lease ends. */
typedef struct serve_lease {
    struct serve_loaded_model *of; /* NULL: none */
    ht_model *model;
    ht_engine *engine;
    serve_grammars *grammars;
    ht_adapter *adapter; /* of the requested name; NULL: none */
    float scale;
    const char *name; /* of the model or adapter, with aliases resolved; lives as long as the models */
} serve_lease;

typedef enum serve_leasing {
    SERVE_LEASED,
    SERVE_LATER,  /* loading: the work is queued again after the load, failed or not */
    SERVE_REFUSED /* the failure has the reason */
} serve_leasing;

/* Leases the model of that name; NULL or "": the first that is made for one of the tasks, else the first of all. A text
 * encoder is refused for SERVE_GENERATES. `again`: the work waited before; a failed load is final. */
serve_leasing serve_models_lease(serve_models *m, const char *name, unsigned tasks, serve_work *work, bool again,
                                 serve_lease *out, serve_failure *f);
void serve_lease_end(serve_models *m, serve_lease *lease);
/* The *n adapters of a leased model, lent as long as the lease. The caller frees the array; NULL: out of memory. */
ht_adapter **serve_lease_adapters(const serve_models *m, const serve_lease *lease, int *n);
/* Unloads a model of that name once its leases end; false for an unknown name. */
bool serve_models_unload(serve_models *m, const char *name);

/* A name that clients may request. */
typedef struct serve_model_name {
    const char *name;     /* lives as long as the models, as does the path */
    const char *path;     /* of the checkpoint, or of the adapter */
    const char *model;    /* the adapter's model; NULL: the name is a model */
    const char *alias_of; /* NULL: not an alias */
    unsigned tasks;       /* the model is made for */
    bool loaded;
    size_t bytes;    /* weights and KV cache in use; 0: not loaded */
    int64_t created; /* modification time of its file, in seconds since 1970 */
} serve_model_name;

/* Name i in the given order: models, adapters, aliases. False when i is past the end. */
bool serve_models_name(serve_models *m, size_t i, serve_model_name *out);
/* The same by name; NULL: the first. */
bool serve_models_find(serve_models *m, const char *name, serve_model_name *out);

/* The same; false with a failure for an unknown name or a broken checkpoint. */
bool serve_models_get(serve_models *m, const char *name, serve_model_name *out, serve_failure *f);
/* Why a broken checkpoint of that name cannot be used, or NULL. The text lives as long as the models. */
const char *serve_models_broken(const serve_models *m, const char *name);

/* Details of a checkpoint for lists of models. */
typedef struct serve_details {
    char architecture[48], format[16], quantization[32]; /* "" when the checkpoint cannot be read */
    int64_t n_parameters, file_bytes, context;
} serve_details;

/* Details of a model, or of an adapter's model. They are read again when the file changes. */
serve_details serve_models_details(serve_models *m, const serve_model_name *name);

/* Whether the first model is loaded, or needs no load at start. */
bool serve_models_ready(serve_models *m);

/* Sums over all loaded engines: answers, KV cache and prefix cache; other fields are 0. */
ht_engine_statistics serve_models_statistics(serve_models *m, size_t *n_loaded, size_t *bytes);

#endif
