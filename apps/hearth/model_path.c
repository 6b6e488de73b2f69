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

/* The same place as models_directory in scripts/common.sh. */
static ht_status default_path(char **path, ht_error *err) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && *cache == '/')
        n = asprintf(path, "%s/hearth/models/%s", cache, HEARTH_DEFAULT_MODEL);
    else if (home && *home)
        n = asprintf(path, "%s/.cache/hearth/models/%s", home, HEARTH_DEFAULT_MODEL);
    else
        return fail(err, HT_ERR_IO, "the place of the %s model is unknown: neither XDG_CACHE_HOME nor HOME is set",
                    "default");
    if (n < 0) {
        *path = NULL;
        return fail(err, HT_ERR_MEMORY, "out of memory for the path of the %s model", "default");
    }
    return HT_OK;
}

ht_status model_path(const char *model, char **path, ht_error *err) {
    *path = NULL;
    if (strcmp(model, "default") != 0) {
        *path = strdup(model);
        return *path ? HT_OK : fail(err, HT_ERR_MEMORY, "out of memory for the path %s", model);
    }
    ht_status st = default_path(path, err);
    if (st || access(*path, F_OK) == 0) return st;
    st = fail(
        err, HT_ERR_IO,
        "the default model is not there yet: run scripts/fetch-model, which puts it at %s, or give the path of a model",
        *path);
    free(*path);
    *path = NULL;
    return st;
}
