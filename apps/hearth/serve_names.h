/* Names of what `hearth serve` serves: the models and adapters of its options, and those of a directory. */
#ifndef HEARTH_APP_SERVE_NAMES_H
#define HEARTH_APP_SERVE_NAMES_H

#include "options.h"
#include "serve/models.h"

typedef struct serve_names {
    serve_model_source *model; /* [n_models] */
    serve_adapter_source *adapter;
    serve_alias *alias;
    serve_broken *broken; /* checkpoints of the directory that cannot be used */
    size_t n_models, n_adapters, n_aliases, n_broken;
    char **text; /* [n_texts] all texts of these that are owned */
    size_t n_texts;
} serve_names;

/* MODEL first, if it is given, then what lies under --models, or without both in the cache, of those of one name the first; --adapter and --alias. Tells of checkpoints that
 * cannot be used on standard error unless --quiet is given. To be freed after a failure, too. */
ht_status serve_names_collect(const options *o, serve_names *out, ht_error *err);
void serve_names_free(serve_names *n);

#endif
