/* Models of the server: known by name, loaded when they are first asked for, each with an engine; adapters have names of their own.
 *
 * Names are fixed from the start. One thread loads, one model at a time; models that nobody uses go, the least recently used first, when
 * another would not fit the budget beside them. All functions may be called from any thread. */
#ifndef HT_SERVE_MODELS_H
#define HT_SERVE_MODELS_H

#include "serve/failure.h"
#include "serve/grammars.h"
#include "serve/workers.h"

#include <hearth/engine.h>

typedef struct serve_models serve_models;

typedef struct serve_model_source {
    const char *name, *path;
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

/* A checkpoint that is there and cannot be used. */
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
    const serve_broken *broken; /* [n_broken], to be told of by who asks for one */
    size_t n_broken;
    bool any_name;            /* names that are not known mean the first model */
    bool first_at_once;       /* the first model is loaded before it is asked for */
    size_t memory_bytes;      /* of weights and K/V of all that are loaded; 0: three quarters of the machine's */
    ht_engine_options engine; /* of each; kv_bytes of several is a quarter of memory_bytes unless given */
    /* Loads a model; on the thread that loads. */
    ht_status (*load)(const char *path, void *user, ht_model **out, ht_error *err);
    /* A model was loaded, or could not be; on the same thread. NULL: nobody is told. */
    void (*loaded)(const char *name, ht_status status, const ht_error *err, void *user);
    void *user;
} serve_models_options;

/* HT_ERR_ARGUMENT for a name that occurs twice, and for aliases of nothing. Nothing is loaded yet. The caller frees *out. */
ht_status serve_models_new(const serve_models_options *options, serve_workers *workers, serve_models **out,
                           ht_error *err);
/* Begins to load what is asked for, and the first model when it is to be there at once: `load` and `loaded` are called from now on. Once. */
ht_status serve_models_start(serve_models *m, ht_error *err);
/* No lease is left. NULL is fine. */
void serve_models_free(serve_models *m);

/* A model in use: it stays until the lease is given back. */
typedef struct serve_lease {
    struct serve_loaded_model *of; /* NULL: none */
    ht_model *model;
    ht_engine *engine;
    serve_grammars *grammars;
    ht_adapter *adapter; /* of the name that was asked for; NULL: none */
    float scale;
    const char *name; /* of the model or the adapter; aliases are resolved. As long as the models */
} serve_lease;

typedef enum serve_leasing {
    SERVE_LEASED,
    SERVE_LATER,  /* it is being loaded: the work is queued again when it is, or could not be */
    SERVE_REFUSED /* as the failure says */
} serve_leasing;

/* Leases the model of that name; NULL or "": the first. `again`: the work has been queued again, so that a model that could not be loaded is
 * not tried once more. */
serve_leasing serve_models_lease(serve_models *m, const char *name, serve_work *work, bool again, serve_lease *out,
                                 serve_failure *f);
void serve_lease_end(serve_models *m, serve_lease *lease);
/* The adapters of a leased model, *n of them, lent as long as the lease. The caller frees the array; NULL: memory ran out. */
ht_adapter **serve_lease_adapters(const serve_models *m, const serve_lease *lease, int *n);
/* Unloads a model of that name once nobody uses it; false: there is none of that name. */
bool serve_models_unload(serve_models *m, const char *name);

/* A name that clients may ask for. */
typedef struct serve_model_name {
    const char *name;     /* as long as the models, as is the path */
    const char *path;     /* of the checkpoint, or of the adapter */
    const char *model;    /* whose adapter it is; NULL: it is a model */
    const char *alias_of; /* NULL: it is none */
    bool loaded;
    size_t bytes;    /* of weights, and of keys and values that are held; 0: it is not loaded */
    int64_t created; /* when its file was last changed, in seconds since 1970 */
} serve_model_name;

/* Name i, in the order in which they were given: models, adapters, aliases. False: there are fewer. */
bool serve_models_name(serve_models *m, size_t i, serve_model_name *out);
/* The same by the name itself; NULL: the first. */
bool serve_models_find(serve_models *m, const char *name, serve_model_name *out);

/* The same; false with a failure that says why the checkpoint cannot be used, or that there is none of that name. */
bool serve_models_get(serve_models *m, const char *name, serve_model_name *out, serve_failure *f);
/* Why the checkpoint of that name cannot be used; NULL: there is none of that name, or it can. As long as the models. */
const char *serve_models_broken(const serve_models *m, const char *name);

/* Details of checkpoints that lists of models show. */
typedef struct serve_details {
    char architecture[48], format[16], quantization[32]; /* "" when the checkpoint cannot be read */
    int64_t n_parameters, file_bytes, context;
} serve_details;

/* Those of a name's checkpoint, of an adapter's the model's; read again when the file has changed. */
serve_details serve_models_details(serve_models *m, const serve_model_name *name);

/* Whether the first model is there, or none is loaded at once. */
bool serve_models_ready(serve_models *m);

/* Of all engines that are there, added up: answers, keys and values, and the prefix cache; the rest is 0. */
ht_engine_statistics serve_models_statistics(serve_models *m, size_t *n_loaded, size_t *bytes);

#endif
