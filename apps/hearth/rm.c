/* hearth rm: removes models from the cache. */
#include "command.h"
#include "model_path.h"
#include "pull_store.h"
#include "terminal.h"
#include "tree.h"

#include <hearth/discover.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct search {
    const char *models, *name;
    char *path;     /* of the model of that name; NULL: there is none */
    ht_text others; /* names of the other models, for the error message */
    bool out_of_memory;
} search;

static bool on_find(const ht_find *f, void *user) {
    search *s = user;
    const char *name;
    const size_t n = model_name(s->models, f->path, &name);
    if (strlen(s->name) == n && memcmp(s->name, name, n) == 0) {
        s->path = strdup(f->path);
        s->out_of_memory = !s->path;
        return false;
    }
    if (f->info && !f->info->has_weights) return true;
    if (s->others.len) ht_text_append_str(&s->others, ", ");
    ht_text_append(&s->others, name, n);
    s->out_of_memory = s->others.failed;
    return !s->out_of_memory;
}

static int cannot(const char *path) {
    warn("%s cannot be removed: %s", path, strerror(errno));
    return EXIT_FAILED;
}

/* Removes all parts of a GGUF file. */
static int remove_parts(const char *path, int parts, size_t prefix) {
    int status = EXIT_OK;
    for (int i = 1; i <= parts && status == EXIT_OK; i++) {
        char *each;
        if (asprintf(&each, "%.*s-%05d-of-%05d.gguf", (int)prefix, path, i, parts) < 0) {
            errno = ENOMEM;
            return cannot(path);
        }
        if (unlink(each) != 0 && errno != ENOENT) status = cannot(each);
        free(each);
    }
    return status;
}

/* Removes a model, the files fetched for it, and directories left empty. */
static int remove_model(const char *models, char *path) {
    struct stat s;
    size_t prefix;
    const int parts = gguf_parts(path, &prefix);
    int status = EXIT_OK;
    if (lstat(path, &s) == 0 && S_ISDIR(s.st_mode))
        status = tree_remove(path) ? EXIT_OK : cannot(path);
    else
        status = parts > 1 ? remove_parts(path, parts, prefix) : unlink(path) ? cannot(path) : EXIT_OK;
    for (char *slash; status == EXIT_OK && (slash = strrchr(path, '/')) && slash > path + strlen(models);) {
        *slash = '\0';
        pull_store_sweep(path);
        rmdir(path);
    }
    return status;
}

/* Removes a pulled repository, also an incomplete one, or else a single model. */
static int remove_named(const char *models, const char *name) {
    ht_error err = {0};
    search s = {.models = models, .name = name};
    pull_name parsed;
    bool pulled = false;
    ht_status st = pull_name_parse(name, NULL, &parsed, &err);
    const bool is_of_hub = !st, is_one = is_of_hub && (parsed.quantization || parsed.file);
    if (st == HT_ERR_ARGUMENT) st = HT_OK;
    if (is_of_hub && !is_one && !parsed.revision) st = pull_store_remove(models, parsed.repo, &pulled, &err);
    pull_name_free(&parsed);
    if (st) return report(&err);
    if (pulled) return EXIT_OK;
    st = access(models, F_OK) == 0 ? ht_discover(models, on_find, &s, &err) : HT_OK;
    if (!st && is_one) st = model_in_cache(name, &s.path, &err);
    int status = EXIT_FAILED;
    if (s.out_of_memory)
        warn("out of memory for the names of models");
    else if (s.path)
        status = remove_model(models, s.path);
    else if (st)
        status = report(&err);
    else
        warn("there is no model %.200s in the cache%s%.700s", name, s.others.len ? "; there are " : "",
             s.others.len ? s.others.data : "");
    free(s.path);
    ht_text_discard(&s.others);
    return status;
}

int rm_command(const options *o) {
    char *models;
    ht_error err = {0};
    int status = EXIT_OK;
    if (!o->arguments.n) return usage_error(o, "the name of a model is needed");
    if (cache_path("models", &models, &err)) return report(&err);
    for (int i = 0; i < o->arguments.n; i++)
        if (remove_named(models, o->arguments.items[i]) != EXIT_OK) status = EXIT_FAILED;
    free(models);
    return output_finish(status);
}
