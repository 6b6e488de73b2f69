/* Paths of models and of their cached data. `default` is the model that scripts/quickstart fetches. */
#ifndef HEARTH_APP_MODEL_PATH_H
#define HEARTH_APP_MODEL_PATH_H

#include <hearth/status.h>

#include <stddef.h>

/* Resolves MODEL, a path or else a model's name in the cache, to a path that the caller frees.
 * HT_ERR_IO when `default` or a hub name has not been fetched. */
ht_status model_path(const char *model, char **path, ht_error *err);

/* Finds a cached model by its name in `hearth list` or by its hub name, with the same choice as `hearth pull`. *path is
 * NULL if it is not cached. HT_ERR_ARGUMENT when the choice is ambiguous or has no such quantisation. */
ht_status model_in_cache(const char *name, char **path, ht_error *err);

/* The name of a cached model: its path relative to `models`, without ".gguf".
 * *name points into `path`; returns the length. */
size_t model_name(const char *models, const char *path, const char **name);

/* The path of `within` in the user's cache, as models_directory in scripts/common.sh computes it; the caller frees it.
 * HT_ERR_IO when the environment names no cache directory. */
ht_status cache_path(const char *within, char **path, ht_error *err);

#endif
