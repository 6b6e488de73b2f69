/* Installation of a fetched model: its directory is assembled from links beside the old one, and then takes its name. */
#define _GNU_SOURCE
#include "fail.h"
#include "pull_state.h"
#include "pull_store.h"
#include "tree.h"

#include <hearth/discover.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct assembly {
    pull_store *s;
    const pull_choice *c;
    char *fresh, *old; /* the new form of the directory, and what the old one is called for a moment */
    ht_json *record;   /* of the new form */
} assembly;

static bool is_chosen(const pull_choice *c, const char *path, const hub_file **out) {
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->file[i]->path, path) == 0) {
            *out = c->file[i];
            return true;
        }
    return false;
}

static bool is_gguf(const char *path) {
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* Whether a file of the old form stays: files that this command did not bring always do. */
static bool stays(const char *within, void *user) {
    const assembly *a = user;
    const hub_file *f;
    if (strcmp(within, pull_state_name) == 0) return false;
    if (is_chosen(a->c, within, &f)) return pull_store_has(a->s, f);
    return a->c->gguf || is_gguf(within) || !ht_json_object_get(ht_json_object_get(a->s->installed, "files"), within);
}

/* Links a fetched file into a directory, the new form of the model's. */
static ht_status put(assembly *a, const char *directory, const hub_file *f, ht_error *err) {
    char *from = pull_store_path(a->s->stage, f->path, ""), *to = pull_store_path(directory, f->path, "");
    ht_status st = HT_OK;
    if (!from || !to)
        st = fail_memory(err, "a path");
    else if (!tree_make_parents(to, strlen(directory)))
        st = fail_system(err, to, "made");
    else
        st = tree_link_or_move(from, to, err);
    free(from);
    free(to);
    return st ? st : pull_state_add(a->record, directory, f, err);
}

static ht_status copy_record(assembly *a, ht_error *err) {
    const char *path;
    ht_json *entry, *files = ht_json_new_object();
    a->record = ht_json_copy(a->s->installed);
    if (!a->record || ht_json_object_set_new(a->record, "files", files)) return fail_memory(err, "a record of files");
    ht_json_object_foreach(ht_json_object_get(a->s->installed, "files"), path, entry) {
        if (stays(path, a) && ht_json_object_set(files, path, entry)) return fail_memory(err, "a record of files");
    }
    return HT_OK;
}

static void sync_directory(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* The chosen files and the record into a directory that has the others. */
static ht_status fill(assembly *a, const char *directory, ht_error *err) {
    ht_status st = copy_record(a, err);
    for (size_t i = 0; i < a->c->n && !st; i++)
        if (!pull_store_has(a->s, a->c->file[i])) st = put(a, directory, a->c->file[i], err);
    if (!st) st = pull_state_write(directory, a->record, err);
    if (!st) sync_directory(directory);
    return st;
}

/* Where there are no hard links: file by file into the old form, which a kill in between leaves for the next call to finish. */
static ht_status fill_in_place(assembly *a, ht_error *err) {
    const char *path;
    ht_json *entry;
    *err = (ht_error){0};
    if (!tree_remove(a->fresh)) return fail_system(err, a->fresh, "removed");
    const ht_status st = fill(a, a->s->target, err);
    const ht_json *files = ht_json_object_get(a->record, "files");
    ht_json_object_foreach(ht_json_object_get(a->s->installed, "files"), path, entry) {
        char *old = st || ht_json_object_get(files, path) ? NULL : pull_store_path(a->s->target, path, "");
        if (old) unlink(old);
        free(old);
    }
    return st;
}

static ht_status assemble(assembly *a, ht_error *err) {
    const bool there = access(a->s->target, F_OK) == 0;
    ht_status st = mkdir(a->fresh, 0777) == 0 ? HT_OK : fail_system(err, a->fresh, "made");
    if (!st && there) st = tree_link(a->s->target, a->fresh, stays, a, err);
    if (st == HT_ERR_UNSUPPORTED) return fill_in_place(a, err);
    if (!st) st = fill(a, a->fresh, err);
    if (st) return st;
    if (there && rename(a->s->target, a->old) != 0) return fail_system(err, a->s->target, "replaced");
    if (rename(a->fresh, a->s->target) == 0) return HT_OK;
    st = fail_system(err, a->s->target, "made");
    if (there && rename(a->old, a->s->target) != 0) return st; /* the next call puts it back */
    return st;
}

/* Takes the chosen files out of the stage. */
static ht_status clear_stage(assembly *a, ht_error *err) {
    for (size_t i = 0; i < a->c->n; i++) {
        char *path = pull_store_path(a->s->stage, a->c->file[i]->path, "");
        if (!path) return fail_memory(err, "a path");
        if (ht_json_object_del(ht_json_object_get(a->s->staged, "files"), a->c->file[i]->path) == 0) {
            unlink(path);
            tree_remove_parents(path, strlen(a->s->stage));
        }
        free(path);
    }
    return pull_state_write(a->s->stage, a->s->staged, err);
}

static char *hidden(const pull_store *s, const char *ending) {
    const size_t n = strlen(s->stage) - strlen("pull");
    char *path;
    return asprintf(&path, "%.*s%s", (int)n, s->stage, ending) < 0 ? NULL : path;
}

ht_status pull_store_install(pull_store *s, const hub *h, const char *revision, const pull_choice *c, ht_error *err) {
    assembly a = {.s = s, .c = c, .fresh = hidden(s, "new"), .old = hidden(s, "old")};
    ht_status st =
        a.fresh && a.old ? pull_state_set_source(s->installed, h, revision, err) : fail_memory(err, "a path");
    if (!st) st = assemble(&a, err);
    if (!st) {
        if (access(a.old, F_OK) == 0) tree_remove(a.old); /* or the next call does */
        ht_json_decref(s->installed);
        s->installed = ht_json_incref(a.record);
        st = clear_stage(&a, err);
    } else if (a.fresh && access(a.fresh, F_OK) == 0)
        tree_remove(a.fresh);
    ht_json_decref(a.record);
    free(a.fresh);
    free(a.old);
    return st;
}

/* ---- removal ---- */

ht_status pull_store_remove(const char *models, const char *repo, bool *found, ht_error *err) {
    static const char *const endings[] = {"pull", "new", "old"};
    pull_store s;
    *found = false;
    ht_status st = pull_store_open(models, repo, &s, err);
    char *state = st ? NULL : pull_store_path(s.target, pull_state_name, "");
    if (!st && !state) st = fail_memory(err, "a path");
    const bool pulled = state && access(state, F_OK) == 0, begun = !st && access(s.stage, F_OK) == 0;
    if (!st && (pulled || begun)) st = pull_store_lock(&s, err);
    if (!st && pulled && !tree_remove(s.target)) st = fail_system(err, s.target, "removed");
    for (size_t i = 0; i < 3 && !st && (pulled || begun); i++) {
        char *path = hidden(&s, endings[i]);
        if (!path)
            st = fail_memory(err, "a path");
        else if (access(path, F_OK) == 0 && !tree_remove(path))
            st = fail_system(err, path, "removed");
        free(path);
    }
    *found = pulled || begun;
    if (!st && *found && s.models) tree_remove_parents(s.stage, s.models);
    free(state);
    pull_store_close(&s);
    return st;
}

static bool note_model(const ht_find *find, void *user) {
    const bool weights = !find->info || find->info->has_weights;
    if (weights) *(bool *)user = true;
    return !weights;
}

void pull_store_sweep(const char *directory) {
    ht_error ignored = {0};
    bool left = false;
    const char *path;
    ht_json *state = pull_state_read(directory), *entry;
    char *name = pull_store_path(directory, pull_state_name, "");
    const ht_status st =
        name && state && access(name, F_OK) == 0 ? ht_discover(directory, note_model, &left, &ignored) : HT_ERR_IO;
    if (!st && !left) {
        ht_json_object_foreach(ht_json_object_get(state, "files"), path, entry) {
            char *file = pull_store_path(directory, path, "");
            if (file && !strstr(path, "..")) unlink(file), tree_remove_parents(file, strlen(directory));
            free(file);
        }
        unlink(name);
    }
    ht_json_decref(state);
    free(name);
}
