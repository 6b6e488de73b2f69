#include "serve_names.h"

#include "adapters.h"
#include "base/grow.h"
#include "fail.h"
#include "model_path.h"
#include "terminal.h"

#include <hearth/discover.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- texts ---- */

/* Owns a text from malloc, NULL for one that there was no memory for; and gives it back. */
static char *keep(serve_names *n, char *text) {
    if (!text || !HT_GROW_ONE(n->text, n->n_texts)) {
        free(text);
        return NULL;
    }
    return n->text[n->n_texts++] = text;
}

void serve_names_free(serve_names *n) {
    for (size_t i = 0; i < n->n_texts; i++) free(n->text[i]);
    free(n->text);
    free(n->model);
    free(n->adapter);
    free(n->alias);
    free(n->broken);
    *n = (serve_names){0};
}

static bool is_model(const serve_names *n, const char *name) {
    for (size_t i = 0; i < n->n_models; i++)
        if (strcmp(n->model[i].name, name) == 0) return true;
    return false;
}

/* ---- models ---- */

static ht_status add_model(serve_names *n, const char *name, size_t length, const char *path, ht_error *err) {
    char *copy = keep(n, strndup(name, length));
    if (copy && is_model(n, copy)) return HT_OK;
    char *place = copy ? keep(n, strdup(path)) : NULL;
    if (!place || !HT_GROW_ONE(n->model, n->n_models)) return fail_memory(err, "the names of models");
    n->model[n->n_models++] = (serve_model_source){copy, place};
    return HT_OK;
}

static ht_status add_alias(serve_names *n, const char *name, const char *of, ht_error *err) {
    if (!HT_GROW_ONE(n->alias, n->n_aliases)) return fail_memory(err, "the names of models");
    n->alias[n->n_aliases++] = (serve_alias){name, of};
    return HT_OK;
}

/* A model of the cache has the name that `hearth list` shows, another one that of its file or directory. What was typed is a name, too, when it
 * is no path. */
static ht_status add_typed(serve_names *n, const char *typed, ht_error *err) {
    char *path = NULL, *models = NULL;
    const char *name;
    ht_status st = model_path(typed, &path, err);
    if (st) return st;
    (void)cache_path("models", &models, NULL);
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') path[--end] = '\0';
    size_t length = model_name(models ? models : "/", path, &name);
    if (name == path || (models && strncmp(path, models, strlen(models)) != 0)) {
        const char *slash = strrchr(path, '/');
        if (slash) {
            length -= (size_t)(slash + 1 - name);
            name = slash + 1;
        }
    }
    st = add_model(n, name, length, path, err);
    if (!st && !strchr(typed, '/') && strcmp(n->model[0].name, typed) != 0 && strcmp(path, typed) != 0)
        st = add_alias(n, typed, n->model[0].name, err);
    free(path);
    free(models);
    return st;
}

typedef struct search {
    serve_names *names;
    const char *directory;
    bool quiet;
    ht_status status;
    ht_error *err;
} search;

static ht_status add_broken(serve_names *n, const char *name, size_t length, const char *why, ht_error *err) {
    char *copy = keep(n, strndup(name, length)), *reason = copy ? keep(n, strdup(why)) : NULL;
    if (!reason || !HT_GROW_ONE(n->broken, n->n_broken)) return fail_memory(err, "the names of models");
    n->broken[n->n_broken++] = (serve_broken){copy, reason};
    return HT_OK;
}

/* Why a find cannot be used, in `out` or the find; NULL: it can. */
static const char *problem_of(const ht_find *f, char *out, size_t room) {
    if (!f->info) return f->problem->message;
    if (!f->info->has_weights) return "it is a vocabulary without weights";
    if (f->info->runs) return NULL;
    snprintf(out, room, "this build cannot run the architecture \"%.64s\"", f->info->architecture);
    return out;
}

static void warn(const char *path, const char *why) {
    char line[8192];
    snprintf(line, sizeof line, "hearth: %s: %s", path, why);
    make_printable(line);
    fprintf(stderr, "%s\n", line);
}

static bool on_find(const ht_find *f, void *user) {
    search *s = user;
    const char *name;
    char text[160];
    const char *why = problem_of(f, text, sizeof text);
    const size_t length = model_name(s->directory, f->path, &name);
    /* Vocabularies lie beside models on purpose. */
    if (why && !s->quiet && !(f->info && !f->info->has_weights)) warn(f->path, why);
    if (why)
        s->status = add_broken(s->names, name, length, why, s->err);
    else
        s->status = add_model(s->names, name, length, f->path, s->err);
    return !s->status;
}

static ht_status add_directory(serve_names *n, const char *directory, bool quiet, ht_error *err) {
    char *path = keep(n, strdup(directory));
    if (!path) return fail_memory(err, "the names of models");
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';) path[--end] = '\0';
    search s = {.names = n, .directory = path, .quiet = quiet, .err = err};
    const ht_status st = ht_discover(path, on_find, &s, err);
    return s.status ? s.status : st;
}

/* What `hearth list` lists. */
static ht_status add_cache(serve_names *n, bool quiet, ht_error *err) {
    char *models;
    ht_status st = cache_path("models", &models, err);
    if (st) return st;
    if (access(models, F_OK) == 0) st = add_directory(n, models, quiet, err);
    if (!st && !n->n_models)
        st = fail_with(
            err, HT_ERR_ARGUMENT,
            "there is nothing to serve: %s has no model that this build runs; give a MODEL or --models DIR, or "
            "fetch a model with hearth pull ORG/REPO",
            models);
    free(models);
    return st;
}

/* ---- adapters and other names ---- */

static ht_status add_adapters(const options *o, serve_names *n, ht_error *err) {
    n->adapter = calloc((size_t)o->adapters.n + 1, sizeof *n->adapter);
    if (!n->adapter) return fail_memory(err, "the names of adapters");
    for (int i = 0; i < o->adapters.n; i++) {
        const char *word = o->adapters.items[i], *equals = strchr(word, '=');
        serve_adapter_source *a = &n->adapter[n->n_adapters++];
        a->path = keep(n, adapter_path(word, &a->scale));
        if (!a->path) return fail_memory(err, "the names of adapters");
        const char *slash = strrchr(a->path, '/');
        a->name = equals ? keep(n, strndup(word, (size_t)(equals - word))) : slash ? slash + 1 : a->path;
        if (!a->name) return fail_memory(err, "the names of adapters");
    }
    return HT_OK;
}

static ht_status add_aliases(const options *o, serve_names *n, ht_error *err) {
    ht_status st = HT_OK;
    for (int i = 0; i < o->aliases.n && !st; i++) {
        const char *word = o->aliases.items[i], *equals = strchr(word, '=');
        const char *name = equals ? keep(n, strndup(word, (size_t)(equals - word))) : word;
        if (!name) return fail_memory(err, "the names of models");
        st = add_alias(n, name, equals ? equals + 1 : n->model[0].name, err);
    }
    return st;
}

ht_status serve_names_collect(const options *o, serve_names *out, ht_error *err) {
    *out = (serve_names){0};
    ht_status st = HT_OK;
    if (o->arguments.n) st = add_typed(out, o->arguments.items[0], err);
    if (!o->arguments.n && !o->models) st = add_cache(out, o->quiet, err);
    if (!st && o->models) st = add_directory(out, o->models, o->quiet, err);
    if (!st && !out->n_models)
        st = fail_with(err, HT_ERR_ARGUMENT, "there is nothing to serve: %s has no model that this build runs",
                       o->models);
    if (!st) st = add_adapters(o, out, err);
    return st ? st : add_aliases(o, out, err);
}
