#define _GNU_SOURCE
#include "model_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ht_status fail(ht_error *err, ht_status status, const char *sentence, const char *path) {
    err->status = status;
    snprintf(err->message, sizeof err->message, sentence, path);
    return status;
}

ht_status cache_path(const char *within, char **path, ht_error *err) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && *cache == '/')
        n = asprintf(path, "%s/hearth/%s", cache, within);
    else if (home && *home)
        n = asprintf(path, "%s/.cache/hearth/%s", home, within);
    else {
        *path = NULL;
        return fail(err, HT_ERR_IO, "the place of %s is unknown: neither XDG_CACHE_HOME nor HOME is set", within);
    }
    if (n >= 0) return HT_OK;
    *path = NULL;
    return fail(err, HT_ERR_MEMORY, "out of memory for the path of %s", within);
}

ht_status model_path(const char *model, char **path, ht_error *err) {
    *path = NULL;
    if (strcmp(model, "default") != 0) {
        *path = strdup(model);
        return *path ? HT_OK : fail(err, HT_ERR_MEMORY, "out of memory for the path %s", model);
    }
    ht_status st = cache_path("models/" HEARTH_DEFAULT_MODEL, path, err);
    if (st || access(*path, F_OK) == 0) return st;
    st = fail(
        err, HT_ERR_IO,
        "the default model is not there yet: run scripts/fetch-model, which puts it at %s, or give the path of a model",
        *path);
    free(*path);
    *path = NULL;
    return st;
}
