#define _GNU_SOURCE
#include "pull_store.h"

#include "fail.h"
#include "pull_state.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

char *pull_store_path(const char *directory, const char *within, const char *suffix) {
    char *path;
    return asprintf(&path, "%s/%s%s", directory, within, suffix) < 0 ? NULL : path;
}

/* A hidden name beside the model's directory: ".REPO" and the suffix. */
static char *beside(const char *target, const char *suffix) {
    const char *slash = strrchr(target, '/');
    char *path;
    return asprintf(&path, "%.*s/.%s%s", (int)(slash - target), target, slash + 1, suffix) < 0 ? NULL : path;
}

ht_status pull_store_open(const char *models, const char *repo, pull_store *out, ht_error *err) {
    *out = (pull_store){.lock = -1, .models = strlen(models)};
    char *path = pull_store_path(models, repo, "");
    if (!path) return fail_memory(err, "a path");
    out->target = realpath(path, NULL); /* a link leads to another disk, where the stage has to be, too */
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

/* Locks the directory of that name: while waiting its name may have become another one's. */
static ht_status lock_stage(pull_store *s, bool *again, ht_error *err) {
    struct stat opened, named;
    *again = false;
    if (!tree_make_parents(s->stage, 0) || (mkdir(s->stage, 0777) != 0 && errno != EEXIST))
        return fail_system(err, s->stage, "made");
    s->lock = open(s->stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock < 0) return fail_system(err, s->stage, "opened");
    if (flock(s->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return fail_with(err, HT_ERR_BUSY, "another hearth pull is fetching %.400s: let it end, or end it", s->target);
    *again = fstat(s->lock, &opened) != 0 || stat(s->stage, &named) != 0 || opened.st_ino != named.st_ino ||
             opened.st_dev != named.st_dev;
    return HT_OK;
}

/* A process that was killed while it replaced the model's directory has left its new form, which is made again, and maybe the old one. */
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
    if (!st && again) st = fail_with(err, HT_ERR_BUSY, "%.400s is made and removed all the time", s->stage);
    if (!st) st = recover(s, err);
    if (st) {
        if (s->lock >= 0) close(s->lock);
        s->lock = -1;
        return st;
    }
    ht_json_decref(s->installed);
    s->installed = pull_state_read(s->target); /* another process may have been here */
    s->staged = pull_state_read(s->stage);
    return s->installed && s->staged ? HT_OK : fail_memory(err, "a record of files");
}

/* Files of one table of the record, "files" or "parts", whose names end with `suffix`. */
static ht_status drop_stale(const pull_store *s, const hub_listing *l, const char *table, const char *suffix,
                            ht_error *err) {
    ht_json *files = ht_json_object_get(s->staged, table);
    for (size_t i = ht_json_object_size(files); i-- > 0;) { /* from the last one: some are removed */
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

/* ---- what is there ---- */

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
