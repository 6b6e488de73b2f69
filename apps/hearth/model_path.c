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

static const char suffix[] = ".gguf";

size_t model_name(const char *models, const char *path, const char **name) {
    const size_t n = strlen(models), end = strlen(suffix);
    *name = strncmp(path, models, n) == 0 && path[n] == '/' ? path + n + 1 : path;
    const size_t length = strlen(*name);
    return length > end && strcmp(*name + length - end, suffix) == 0 ? length - end : length;
}

/* The model of that name in the cache: its path in fresh memory, or NULL. */
static char *cached(const char *name) {
    char *within = NULL, *path = NULL;
    ht_error ignored = {0};
    for (int i = 0; i < 2 && !path; i++) {
        if (asprintf(&within, "models/%s%s", name, i ? suffix : "") < 0) return NULL;
        if (cache_path(within, &path, &ignored) == HT_OK && access(path, F_OK) != 0) {
            free(path);
            path = NULL;
        }
        free(within);
    }
    return path;
}

ht_status model_path(const char *model, char **path, ht_error *err) {
    *path = NULL;
    if (strcmp(model, "default") != 0) {
        if (*model && *model != '/' && access(model, F_OK) != 0) *path = cached(model);
        if (!*path) *path = strdup(model);
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
