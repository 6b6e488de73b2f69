/* Paths of models and of what is kept for them: the word `default` stands for the model that scripts/quickstart fetches. */
#ifndef HEARTH_APP_MODEL_PATH_H
#define HEARTH_APP_MODEL_PATH_H

#include <hearth/status.h>

#include <stddef.h>

/* The path that MODEL means, in fresh memory that the caller frees: a path, or where there is none a name of a model in the cache.
 * HT_ERR_IO when it is `default` and that one has not been fetched, or a name as of a hub and nothing is there. */
ht_status model_path(const char *model, char **path, ht_error *err);

/* The path of the model of that name in the cache, NULL for none: a name of `hearth list`, or one as `hearth pull` takes it, of
 * which the model is chosen as pulling chooses. HT_ERR_ARGUMENT when there are several, or none of that quantisation. */
ht_status model_in_cache(const char *name, char **path, ht_error *err);

/* The name of a model at `path` in the cache's directory of models, which is the path from there on without ".gguf": its length, from
 * *name on, which is in `path`. */
size_t model_name(const char *models, const char *path, const char **name);

/* The place of `within` in the user's cache, in fresh memory that the caller frees: the same as models_directory in
 * scripts/common.sh. HT_ERR_IO when the environment names none. */
ht_status cache_path(const char *within, char **path, ht_error *err);

#endif
