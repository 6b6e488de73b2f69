#include "model_path.h"

#include "base/grow.h"
#include "fail.h"
#include "pull_name.h"
#include "pull_store.h"

#include <hearth/discover.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ht_status cache_path(const char *within, char **path, ht_error *err) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool is_set = cache && *cache == '/';
    *path = NULL;
    if (!is_set && (!home || !*home))
        return ht_fail(err, HT_ERR_IO, "the place of %s is unknown: neither XDG_CACHE_HOME nor HOME is set", within);
    if (asprintf(path, "%s%s/hearth/%s", is_set ? cache : home, is_set ? "" : "/.cache", within) >= 0) return HT_OK;
    *path = NULL;
    return fail_memory(err, "a path in the cache");
}

static const char suffix[] = ".gguf";

size_t model_name(const char *models, const char *path, const char **name) {
    const size_t n = strlen(models);
    *name = strncmp(path, models, n) == 0 && path[n] == '/' ? path + n + 1 : path;
    return strlen(*name) - (ht_ends_with(*name, suffix) ? strlen(suffix) : 0);
}

/* ---- names in the cache ---- */

/* Finds NAME + END in the cache's models directory; *path stays NULL if it does not exist. */
static ht_status look_for(const char *name, const char *end, char **path, ht_error *err) {
    char *within = NULL, *found = NULL;
    *path = NULL;
    if (asprintf(&within, "models/%s%s", name, end) < 0) return fail_memory(err, "the path of a model");
    const ht_status st = cache_path(within, &found, err);
    free(within);
    if (!st && access(found, F_OK) == 0)
        *path = found;
    else
        free(found);
    return st == HT_ERR_IO ? HT_OK : st; /* no cache directory: not found */
}

/* The models of one directory. */
typedef struct models {
    const char *directory;
    char **path; /* those of one role */
    int n;
    ht_file_role role;
    bool whole; /* the directory itself is a model */
    bool out_of_memory;
} models;

static bool on_find(const ht_find *f, void *user) {
    models *m = user;
    const ht_file_role role = ht_file_role_of(f->path + strlen(m->directory));
    if (m->n && role > m->role) return true;
    while (m->n && role < m->role) free(m->path[--m->n]);
    m->role = role;
    m->whole = m->whole || strcmp(f->path, m->directory) == 0;
    char *copy = HT_GROW_ONE(m->path, m->n) ? strdup(f->path) : NULL;
    m->out_of_memory = !copy;
    if (copy) m->path[m->n++] = copy;
    return copy != NULL;
}

static ht_status not_one(const models *m, const char *name, const char *wanted, ht_error *err) {
    char list[400] = "";
    for (int i = 0; i < m->n; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                 m->path[i] + strlen(m->directory) + (m->path[i][strlen(m->directory)] == '/'));
    }
    if (wanted)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the cache's %.150s has not one model of %.40s, but %s; hearth pull %.150s:%.40s fetches it",
                       name, wanted, list, name, wanted);
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%.150s has several models and not one Q4_K_M, but %s: name one as %.150s/FILE", name, list, name);
}

/* In a pulled directory, selects the same model as `hearth pull`; any other directory is the model itself. */
static ht_status choose(const char *name, const char *wanted, char **path, ht_error *err) {
    models m = {.directory = *path};
    if (!wanted && !pull_state_exists(*path)) return HT_OK;
    ht_status st = ht_discover(*path, on_find, &m, err);
    if (m.out_of_memory) st = fail_memory(err, "the names of models");
    if (!st && m.n > 0 && (wanted || !m.whole)) {
        const int found = quantization_find((const char *const *)m.path, m.n, wanted);
        char *chosen = found < 0 ? NULL : strdup(m.path[found]);
        if (found < 0)
            st = not_one(&m, name, wanted, err);
        else if (!chosen)
            st = fail_memory(err, "the path of a model");
        else {
            free(*path);
            *path = chosen;
        }
    }
    for (int i = 0; i < m.n; i++) free(m.path[i]);
    free(m.path);
    return st;
}

/* Finds a pulled model by its hub name. */
static ht_status look_for_pulled(const pull_name *name, char **path, ht_error *err) {
    char *within = NULL;
    ht_status st = look_for(name->repo, "", path, err);
    if (!st && *path && name->revision && !pull_state_is_of(*path, name->revision)) {
        free(*path);
        *path = NULL;
    }
    if (st || !*path) return st;
    if (!name->file) return choose(name->repo, name->quantization, path, err);
    free(*path);
    *path = NULL;
    if (asprintf(&within, "%s/%s", name->repo, name->file) < 0) return fail_memory(err, "the path of a model");
    st = look_for(within, "", path, err);
    free(within);
    return st;
}

ht_status model_in_cache(const char *name, char **path, ht_error *err) {
    pull_name parsed;
    ht_error ignored = {0};
    ht_status st = look_for(name, "", path, err);
    if (!st && !*path) st = look_for(name, suffix, path, err);
    if (!st && *path)
        st = choose(name, NULL, path, err);
    else if (!st) {
        if (pull_name_parse(name, NULL, &parsed, &ignored) == HT_OK) st = look_for_pulled(&parsed, path, err);
        pull_name_free(&parsed);
    }
    if (st) {
        free(*path);
        *path = NULL;
    }
    return st;
}

/* ---- the MODEL argument ---- */

/* For a hub name that is not in the cache: an error with the command that fetches it. HT_OK for any other name. */
static ht_status not_here(const char *model, ht_error *err) {
    pull_name name;
    ht_error ignored = {0};
    const bool is_name = pull_name_parse(model, NULL, &name, &ignored) == HT_OK && !ht_ends_with(name.repo, suffix) &&
                         !ht_ends_with(name.repo, ".json") && !ht_ends_with(name.repo, ".safetensors");
    ht_status st = HT_OK;
    if (is_name)
        st = ht_fail(err, HT_ERR_IO,
                     "%.300s is neither a file nor a model of the cache; if it is one of the hub, this fetches it: "
                     "hearth pull %.300s",
                     model, model);
    pull_name_free(&name);
    return st;
}

ht_status model_path(const char *model, char **path, ht_error *err) {
    ht_status st = HT_OK;
    *path = NULL;
    if (strcmp(model, "default") != 0) {
        const bool here = !*model || *model == '/' || access(model, F_OK) == 0;
        if (!here) st = model_in_cache(model, path, err);
        if (!here && !st && !*path) st = not_here(model, err);
        if (st || *path) return st;
        *path = strdup(model);
        return *path ? HT_OK : fail_memory(err, "the path of a model");
    }
    st = cache_path("models/" HEARTH_DEFAULT_MODEL, path, err);
    if (st || access(*path, F_OK) == 0) return st;
    st = ht_fail(err, HT_ERR_IO,
                 "the default model has not been fetched: run scripts/fetch-model, which puts it at %s, or give the "
                 "path of a model",
                 *path);
    free(*path);
    *path = NULL;
    return st;
}
