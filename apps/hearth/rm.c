/* hearth rm: takes models out of the cache. */
#define _GNU_SOURCE
#include "command.h"
#include "model_path.h"
#include "terminal.h"

#include <hearth/discover.h>

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct search {
    const char *models, *name;
    char *path;   /* of the model of that name; NULL: there is none */
    char *others; /* names that are there, a line for each; NULL: none */
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
    char *copy = strndup(name, n), *all = NULL;
    if (!copy || asprintf(&all, "%s%s%s", s->others ? s->others : "", s->others ? ", " : "", copy) < 0) {
        free(copy);
        s->out_of_memory = true;
        return false;
    }
    free(s->others);
    free(copy);
    s->others = all;
    return true;
}

static int cannot(const char *path) {
    char shown[512];
    snprintf(shown, sizeof shown, "%s cannot be removed: %s", path, strerror(errno));
    make_printable(shown);
    fprintf(stderr, "hearth: %s\n", shown);
    return EXIT_FAILED;
}

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *where) {
    (void)s, (void)type, (void)where;
    return remove(path);
}

/* "-00001-of-00003.gguf" at the end of a name: its length, 0 where it is none. */
static size_t part_suffix(const char *name) {
    enum { LENGTH = sizeof "-00001-of-00003.gguf" - 1 };
    const size_t n = strlen(name);
    int part, parts, end = 0;
    if (n <= LENGTH || sscanf(name + n - LENGTH, "-%5d-of-%5d.gguf%n", &part, &parts, &end) != 2) return 0;
    return end == LENGTH ? LENGTH : 0;
}

/* All parts of a GGUF file. */
static int remove_parts(const char *path, size_t suffix) {
    const char *base = strrchr(path, '/') + 1;
    const size_t directory = (size_t)(base - path), prefix = strlen(base) - suffix;
    char *folder = strndup(path, directory), *each = NULL;
    DIR *d = folder ? opendir(folder) : NULL;
    int status = d ? EXIT_OK : cannot(path);
    for (const struct dirent *e; d && status == EXIT_OK && (e = readdir(d));) {
        if (strncmp(e->d_name, base, prefix) != 0 || part_suffix(e->d_name) != suffix ||
            strlen(e->d_name) != prefix + suffix)
            continue;
        if (asprintf(&each, "%s%s", folder, e->d_name) < 0) {
            errno = ENOMEM;
            status = cannot(path);
            break;
        }
        if (unlink(each) != 0) status = cannot(each);
        free(each);
    }
    if (d) closedir(d);
    free(folder);
    return status;
}

/* And the directories that held nothing else. */
static int remove_model(const char *models, char *path) {
    struct stat s;
    const size_t suffix = part_suffix(path);
    int status = EXIT_OK;
    if (lstat(path, &s) == 0 && S_ISDIR(s.st_mode))
        status = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) ? cannot(path) : EXIT_OK;
    else
        status = suffix ? remove_parts(path, suffix) : unlink(path) ? cannot(path) : EXIT_OK;
    for (char *slash; status == EXIT_OK && (slash = strrchr(path, '/')) && slash > path + strlen(models);) {
        *slash = '\0';
        if (rmdir(path) != 0) break;
    }
    return status;
}

static int remove_named(const char *models, const char *name) {
    ht_error err = {0};
    search s = {.models = models, .name = name};
    const ht_status st = access(models, F_OK) == 0 ? ht_discover(models, on_find, &s, &err) : HT_OK;
    int status = EXIT_FAILED;
    if (s.out_of_memory)
        fprintf(stderr, "hearth: out of memory for the names of models\n");
    else if (s.path)
        status = remove_model(models, s.path);
    else if (st)
        status = report(&err);
    else {
        char shown[1024];
        snprintf(shown, sizeof shown, "there is no model %.200s in the cache%s%.700s", name,
                 s.others ? "; there are " : "", s.others ? s.others : "");
        make_printable(shown);
        fprintf(stderr, "hearth: %s\n", shown);
    }
    free(s.path);
    free(s.others);
    return status;
}

int rm_command(const options *o) {
    char *models;
    ht_error err = {0};
    int status = EXIT_OK;
    if (!o->arguments.n) {
        fprintf(stderr, "hearth rm: the name of a model is needed (see hearth rm --help)\n");
        return EXIT_USAGE;
    }
    if (cache_path("models", &models, &err)) return report(&err);
    for (int i = 0; i < o->arguments.n; i++)
        if (remove_named(models, o->arguments.items[i]) != EXIT_OK) status = EXIT_FAILED;
    free(models);
    return output_finish(status);
}
