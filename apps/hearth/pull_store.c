#include "pull_store.h"

#include "base/directory_writer.h"
#include "base/file.h"
#include "fail.h"
#include "json.h"
#include "tree.h"

#include <hearth/discover.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- records ---- */

/* Hidden, so that a search for models skips it. */
static const char pull_state_name[] = ".hearth-pull.json";

enum { FORMAT = 1, STATE_BYTES_MAX = 64 << 20 };

/* Reads a directory's record; an empty one if it is missing or invalid, NULL when memory ran out. */
static ht_json *pull_state_read(const char *directory) {
    char *path = ht_path_join(directory, pull_state_name);
    ht_json *state = NULL;
    if (path) (void)ht_json_read_as(path, STATE_BYTES_MAX, &(ht_json_options){0}, &state, NULL);
    const bool known = ht_json_integer_value(ht_json_object_get(state, "format")) == FORMAT &&
                       ht_json_is_object(ht_json_object_get(state, "files")) &&
                       ht_json_is_object(ht_json_object_get(state, "parts"));
    free(path);
    if (known) return state;
    ht_json_decref(state);
    return ht_json_pack("{si s{} s{}}", "format", FORMAT, "files", "parts");
}

bool pull_state_exists(const char *directory) {
    char *path = ht_path_join(directory, pull_state_name);
    const bool exists = path && access(path, F_OK) == 0;
    free(path);
    return exists;
}

ht_status pull_state_write(const char *directory, const ht_json *state, ht_error *err) {
    char *path = ht_path_join(directory, pull_state_name);
    const ht_status st = path ? json_write(path, state, HT_JSON_INDENT(1), false, err) : fail_memory(err, "a path");
    free(path);
    return st;
}

ht_status pull_state_set_source(ht_json *state, const hub *h, const char *revision, ht_error *err) {
    const bool failed = ht_json_object_set_new(state, "endpoint", ht_json_string(h->settings->endpoint)) ||
                        ht_json_object_set_new(state, "repo", ht_json_string(h->repo)) ||
                        ht_json_object_set_new(state, "revision", ht_json_string(revision ? revision : "main")) ||
                        ht_json_object_set_new(state, "commit", ht_json_string(h->commit));
    return failed ? fail_memory(err, "a record of files") : HT_OK;
}

bool pull_state_is_of(const char *directory, const char *revision) {
    ht_json *state = pull_state_read(directory);
    const char *asked = ht_json_string_value(ht_json_object_get(state, "revision")),
               *commit = ht_json_string_value(ht_json_object_get(state, "commit"));
    const bool is = (asked && strcmp(asked, revision) == 0) || (commit && strcmp(commit, revision) == 0);
    ht_json_decref(state);
    return is;
}

/* Size and modification time of a regular file; false if it does not exist. */
static bool look(const char *directory, const char *name, struct stat *out) {
    char *path = ht_path_join(directory, name);
    const bool there = path && stat(path, out) == 0 && S_ISREG(out->st_mode);
    free(path);
    return there;
}

ht_status pull_state_add(ht_json *state, const char *directory, const hub_file *f, ht_error *err) {
    struct stat s;
    if (!look(directory, f->path, &s))
        return ht_fail(err, HT_ERR_IO, "%.300s in %.300s has been removed", f->path, directory);
    ht_json *entry = ht_json_pack("{ss sI sI}", "hash", f->hash, "size", (int64_t)f->size, "time", (int64_t)s.st_mtime);
    return ht_json_object_set_new(ht_json_object_get(state, "files"), f->path, entry)
               ? fail_memory(err, "a record of files")
               : HT_OK;
}

/* Whether the record says that the file has f->hash, and size and time show that it has not changed since. */
static bool pull_state_has(const ht_json *state, const char *directory, const hub_file *f) {
    struct stat s;
    const ht_json *entry = ht_json_object_get(ht_json_object_get(state, "files"), f->path);
    const char *hash = ht_json_string_value(ht_json_object_get(entry, "hash"));
    return hash && strcmp(hash, f->hash) == 0 && look(directory, f->path, &s) && s.st_size == f->size &&
           ht_json_integer_value(ht_json_object_get(entry, "time")) == (int64_t)s.st_mtime;
}

const char *pull_state_etag(const ht_json *state, const hub_file *f) {
    const ht_json *entry = ht_json_object_get(ht_json_object_get(state, "parts"), f->path);
    const char *hash = ht_json_string_value(ht_json_object_get(entry, "hash")),
               *etag = ht_json_string_value(ht_json_object_get(entry, "etag"));
    return hash && etag && strcmp(hash, f->hash) == 0 ? etag : NULL;
}

ht_status pull_state_set_etag(ht_json *state, const hub_file *f, const char *etag, ht_error *err) {
    ht_json *text = ht_json_string(etag); /* NULL for invalid UTF-8, which counts as none */
    ht_json *entry = ht_json_pack("{ss so}", "hash", f->hash, "etag", text ? text : ht_json_string(""));
    return ht_json_object_set_new(ht_json_object_get(state, "parts"), f->path, entry)
               ? fail_memory(err, "a record of files")
               : HT_OK;
}

void pull_state_drop_part(ht_json *state, const char *path) {
    ht_json_object_del(ht_json_object_get(state, "parts"), path);
}

/* ---- paths ---- */

char *pull_store_path(const char *directory, const char *within, const char *suffix) {
    char *path;
    return asprintf(&path, "%s/%s%s", directory, within, suffix) < 0 ? NULL : path;
}

/* A hidden sibling of the model's directory: ".REPO" and the suffix. */
static char *beside(const char *target, const char *suffix) {
    const char *slash = strrchr(target, '/');
    char *path;
    return asprintf(&path, "%.*s/.%s%s", (int)(slash - target), target, slash + 1, suffix) < 0 ? NULL : path;
}

ht_status pull_store_open(const char *models, const char *repo, pull_store *out, ht_error *err) {
    *out = (pull_store){.lock = -1, .models = strlen(models)};
    char *path = ht_path_join(models, repo);
    if (!path) return fail_memory(err, "a path");
    out->target = realpath(path, NULL); /* a link may lead to another disk; the stage must be on that disk */
    if (out->target && strcmp(out->target, path) != 0) out->models = 0;
    if (out->target)
        free(path);
    else
        out->target = path;
    out->stage = beside(out->target, ".pull");
    out->installed = pull_state_read(out->target);
    return out->stage && out->installed ? HT_OK : fail_memory(err, "a path");
}

void pull_store_close(pull_store *s) {
    const bool nothing = s->staged && ht_json_object_size(ht_json_object_get(s->staged, "files")) == 0 &&
                         ht_json_object_size(ht_json_object_get(s->staged, "parts")) == 0;
    if (s->lock >= 0) {
        if (nothing && tree_remove(s->stage) && s->models) tree_remove_parents(s->stage, s->models);
        close(s->lock);
    }
    ht_json_decref(s->installed);
    ht_json_decref(s->staged);
    free(s->target);
    free(s->stage);
    *s = (pull_store){.lock = -1};
}

/* ---- the lock ---- */

/* Locks the stage. *again: another process has replaced the directory in the meantime. */
static ht_status lock_stage(pull_store *s, bool *again, ht_error *err) {
    struct stat opened, named;
    *again = false;
    if (!tree_make_parents(s->stage, 0) || (mkdir(s->stage, 0777) != 0 && errno != EEXIST))
        return fail_system(err, s->stage, "made");
    s->lock = open(s->stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock < 0) return fail_system(err, s->stage, "opened");
    if (flock(s->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return ht_fail(err, HT_ERR_BUSY, "another hearth pull is fetching %.400s: let it end, or end it", s->target);
    *again = fstat(s->lock, &opened) != 0 || stat(s->stage, &named) != 0 || opened.st_ino != named.st_ino ||
             opened.st_dev != named.st_dev;
    return HT_OK;
}

/* Repairs a killed replacement: restores the old directory if necessary, and removes the unfinished new one. */
static ht_status recover(const pull_store *s, ht_error *err) {
    char *fresh = beside(s->target, ".new"), *old = beside(s->target, ".old");
    ht_status st = HT_OK;
    if (!fresh || !old)
        st = fail_memory(err, "a path");
    else {
        if (access(old, F_OK) == 0 && access(s->target, F_OK) != 0 && rename(old, s->target) != 0)
            st = fail_system(err, old, "renamed");
        if (!st && access(old, F_OK) == 0 && !tree_remove(old)) st = fail_system(err, old, "removed");
        if (!st && access(fresh, F_OK) == 0 && !tree_remove(fresh)) st = fail_system(err, fresh, "removed");
    }
    free(fresh);
    free(old);
    return st;
}

ht_status pull_store_lock(pull_store *s, ht_error *err) {
    enum { TRIES = 100 };
    ht_status st = HT_OK;
    bool again = true;
    for (int i = 0; i < TRIES && again && !st; i++) {
        if (s->lock >= 0) close(s->lock);
        s->lock = -1;
        st = lock_stage(s, &again, err);
    }
    if (!st && again) st = ht_fail(err, HT_ERR_BUSY, "%.400s is made and removed all the time", s->stage);
    if (!st) st = recover(s, err);
    if (st) {
        if (s->lock >= 0) close(s->lock);
        s->lock = -1;
        return st;
    }
    ht_json_decref(s->installed);
    s->installed = pull_state_read(s->target); /* another process may have changed it */
    s->staged = pull_state_read(s->stage);
    return s->installed && s->staged ? HT_OK : fail_memory(err, "a record of files");
}

/* Drops stale files of one table of the record, "files" or "parts"; their names end with `suffix`. */
static ht_status drop_stale(const pull_store *s, const hub_listing *l, const char *table, const char *suffix,
                            ht_error *err) {
    ht_json *files = ht_json_object_get(s->staged, table);
    for (size_t i = ht_json_object_size(files); i-- > 0;) { /* backwards, because entries are removed */
        const char *path = ht_json_object_at(files, i)->name;
        const ht_json *entry = ht_json_object_at(files, i)->value;
        const hub_file *f = hub_find(l, path);
        const char *hash = ht_json_string_value(ht_json_object_get(entry, "hash"));
        if (f && hash && strcmp(hash, f->hash) == 0 && !pull_store_has(s, f)) continue;
        char *name = pull_store_path(s->stage, path, suffix);
        if (!name) return fail_memory(err, "a path");
        unlink(name);
        tree_remove_parents(name, strlen(s->stage));
        free(name);
        ht_json_object_del(files, path);
    }
    return HT_OK;
}

ht_status pull_store_drop_stale(pull_store *s, const hub_listing *l, ht_error *err) {
    const ht_status st = drop_stale(s, l, "files", "", err);
    return st ? st : drop_stale(s, l, "parts", ".part", err);
}

/* ---- queries ---- */

bool pull_store_is_begun(const pull_store *s) { return access(s->stage, F_OK) == 0; }

int64_t pull_store_free_bytes(const pull_store *s) {
    struct statvfs v;
    int64_t bytes;
    if (statvfs(s->stage, &v) != 0) return -1;
    return __builtin_mul_overflow((int64_t)v.f_bavail, (int64_t)v.f_frsize, &bytes) ? -1 : bytes;
}

bool pull_store_has(const pull_store *s, const hub_file *f) { return pull_state_has(s->installed, s->target, f); }

bool pull_store_has_staged(const pull_store *s, const hub_file *f) {
    return s->staged && pull_state_has(s->staged, s->stage, f);
}

int64_t pull_store_part_bytes(const pull_store *s, const hub_file *f) {
    struct stat st;
    if (!s->staged || !pull_state_etag(s->staged, f)) return 0;
    char *path = pull_store_path(s->stage, f->path, ".part");
    const int64_t bytes = path && stat(path, &st) == 0 && st.st_size <= f->size ? (int64_t)st.st_size : 0;
    free(path);
    return bytes;
}

/* ---- installation: a new directory of hard links is assembled and then renamed over the old one ---- */

typedef struct assembly {
    pull_store *s;
    const pull_choice *c;
    char *fresh, *old; /* paths of the new directory, and of the old one during the rename */
    ht_json *record;   /* of the new directory */
} assembly;

static const hub_file *chosen(const pull_choice *c, const char *path) {
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->file[i]->path, path) == 0) return c->file[i];
    return NULL;
}

/* Whether the new directory keeps an installed file; files that were not pulled always stay. */
static bool stays(const char *within, void *user) {
    const assembly *a = user;
    const hub_file *f = chosen(a->c, within);
    if (strncmp(within, pull_state_name, strlen(pull_state_name)) == 0) return false; /* also a partial one */
    if (f) return pull_store_has(a->s, f);
    return a->c->gguf || ht_ends_with(within, ".gguf") ||
           !ht_json_object_get(ht_json_object_get(a->s->installed, "files"), within);
}

/* Links a fetched file into the new directory. */
static ht_status put(assembly *a, const char *directory, const hub_file *f, ht_error *err) {
    char *from = ht_path_join(a->s->stage, f->path), *to = ht_path_join(directory, f->path);
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

/* Adds the chosen files and the record to a directory that already has the kept ones. */
static ht_status fill(assembly *a, const char *directory, ht_error *err) {
    ht_status st = copy_record(a, err);
    for (size_t i = 0; i < a->c->n && !st; i++)
        if (!pull_store_has(a->s, a->c->file[i])) st = put(a, directory, a->c->file[i], err);
    if (!st) st = pull_state_write(directory, a->record, err);
    if (!st) (void)ht_directory_flush(directory);
    return st;
}

/* Without hard links, updates the old directory file by file; after a kill the next call finishes it. */
static ht_status fill_in_place(assembly *a, ht_error *err) {
    const char *path;
    ht_json *entry;
    *err = (ht_error){0};
    if (!tree_remove(a->fresh)) return fail_system(err, a->fresh, "removed");
    const ht_status st = fill(a, a->s->target, err);
    const ht_json *files = ht_json_object_get(a->record, "files");
    ht_json_object_foreach(ht_json_object_get(a->s->installed, "files"), path, entry) {
        char *old = st || ht_json_object_get(files, path) ? NULL : ht_path_join(a->s->target, path);
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
    if (there) (void)rename(a->old, a->s->target); /* if this fails, the next call retries it */
    return st;
}

/* Removes the chosen files from the stage. */
static ht_status clear_stage(assembly *a, ht_error *err) {
    for (size_t i = 0; i < a->c->n; i++) {
        char *path = ht_path_join(a->s->stage, a->c->file[i]->path);
        if (!path) return fail_memory(err, "a path");
        if (ht_json_object_del(ht_json_object_get(a->s->staged, "files"), a->c->file[i]->path) == 0) {
            unlink(path);
            tree_remove_parents(path, strlen(a->s->stage));
        }
        free(path);
    }
    return pull_state_write(a->s->stage, a->s->staged, err);
}

ht_status pull_store_install(pull_store *s, const hub *h, const char *revision, const pull_choice *c, ht_error *err) {
    assembly a = {.s = s, .c = c, .fresh = beside(s->target, ".new"), .old = beside(s->target, ".old")};
    ht_status st =
        a.fresh && a.old ? pull_state_set_source(s->installed, h, revision, err) : fail_memory(err, "a path");
    if (!st) st = assemble(&a, err);
    if (!st) {
        if (access(a.old, F_OK) == 0) tree_remove(a.old); /* if this fails, the next call retries it */
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
    static const char *const endings[] = {".pull", ".new", ".old"};
    pull_store s;
    ht_status st = pull_store_open(models, repo, &s, err);
    const bool pulled = !st && pull_state_exists(s.target);
    *found = !st && (pulled || pull_store_is_begun(&s));
    if (*found) st = pull_store_lock(&s, err);
    if (!st && pulled && !tree_remove(s.target)) st = fail_system(err, s.target, "removed");
    for (size_t i = 0; i < 3 && !st && *found; i++) {
        char *path = beside(s.target, endings[i]);
        if (!path)
            st = fail_memory(err, "a path");
        else if (access(path, F_OK) == 0 && !tree_remove(path))
            st = fail_system(err, path, "removed");
        free(path);
    }
    if (!st && *found && s.models) tree_remove_parents(s.stage, s.models);
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
    char *name = ht_path_join(directory, pull_state_name);
    const ht_status st =
        name && state && access(name, F_OK) == 0 ? ht_discover(directory, note_model, &left, &ignored) : HT_ERR_IO;
    if (!st && !left) {
        ht_json_object_foreach(ht_json_object_get(state, "files"), path, entry) {
            char *file = ht_path_join(directory, path);
            if (file && !strstr(path, "..")) unlink(file), tree_remove_parents(file, strlen(directory));
            free(file);
        }
        unlink(name);
    }
    ht_json_decref(state);
    free(name);
}
