/* Checkpoint discovery in a directory tree: depth-first with an explicit stack, so that a deep tree cannot exhaust the
 * call stack. */
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/table.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

#include <hearth/discover.h>
#include <hearth/model.h>

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct names {
    char **item;
    size_t n, capacity;
} names;

typedef struct identity { /* device and inode of a directory */
    dev_t device;
    ino_t inode;
} identity;

typedef struct traversal {
    ht_discover_fn *fn;
    void *user;
    names pending;      /* stack of directories to search */
    identity *searched; /* [index.n] directories, against symlink cycles */
    ht_table index;
} traversal;

/* ---- lists and sets ---- */

static bool add_name(names *list, const char *name) {
    if (!HT_GROW(list->item, list->capacity, list->n + 1)) return false;
    return name && (list->item[list->n] = strdup(name)) && ++list->n;
}

static void free_names(names *list) {
    while (list->n) free(list->item[--list->n]);
    free(list->item);
    *list = (names){0};
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void sort_names(names *list) {
    if (list->n) qsort(list->item, list->n, sizeof *list->item, by_name);
}

/* Adds a directory to the searched set; *first is false if the set had it already. */
static bool mark_searched(traversal *t, const struct stat *st, bool *first) {
    const uint64_t id[] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino}, hash = ht_hash_bytes(id, sizeof id);
    size_t probe = 0;
    *first = false;
    for (uint32_t i; (i = ht_table_next(&t->index, hash, &probe)) != HT_TABLE_END;)
        if (t->searched[i].device == st->st_dev && t->searched[i].inode == st->st_ino) return true;
    *first = true;
    const size_t n = t->index.n;
    if (!HT_GROW_ONE(t->searched, n) || ht_table_add(&t->index, hash, (uint32_t)n)) return false;
    t->searched[n] = (identity){st->st_dev, st->st_ino};
    return true;
}

/* ---- one directory ---- */

/* Visible entries of a directory. */
typedef struct contents {
    names gguf, directories;
    bool safetensors; /* has safetensors files, or an index of them */
} contents;

static bool is_directory(const char *directory, const char *name, bool *out) {
    char *path = ht_path_join(directory, name);
    if (path) *out = ht_path_is_directory(path);
    free(path);
    return path != NULL;
}

static bool sort_entry(const char *directory, const char *name, contents *c) {
    if (*name == '.') return true;
    bool inner = false;
    if (!is_directory(directory, name, &inner)) return false;
    if (inner) return add_name(&c->directories, name);
    const ht_file_role role = ht_file_role_of(name);
    if (ht_ends_with(name, ".gguf")) return role == HT_FILE_PROJECTOR || add_name(&c->gguf, name);
    if (ht_ends_with(name, ".safetensors") || ht_ends_with(name, ".safetensors.index.json"))
        c->safetensors = c->safetensors || role != HT_FILE_ADAPTER;
    return true;
}

static ht_status read_contents(const char *path, contents *out, ht_error *err) {
    *out = (contents){0};
    DIR *dir = opendir(path);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: the directory cannot be read: %s", path, strerror(errno));
    bool ok = true;
    for (const struct dirent *e; ok && (e = readdir(dir));) ok = sort_entry(path, e->d_name, out);
    closedir(dir);
    if (!ok) return ht_fail_memory(err, sizeof *out, "the names in a directory");
    sort_names(&out->gguf);
    sort_names(&out->directories);
    return HT_OK;
}

static void free_contents(contents *c) {
    free_names(&c->gguf);
    free_names(&c->directories);
}

/* ---- checkpoints ---- */

static ht_status report_find(traversal *t, const ht_find *find, ht_error *err) {
    if (t->fn(find, t->user)) return HT_OK;
    return ht_fail(err, HT_ERR_CANCELLED, "the search was stopped at %s", find->path);
}

/* Whether a GGUF file states that it is not a model but a LoRA adapter or an importance matrix. */
static bool is_no_model(const char *path) {
    char type[16] = "";
    if (ht_ends_with(path, ".gguf")) ht_gguf_file_type(path, type);
    return !strcmp(type, "adapter") || !strcmp(type, "imatrix");
}

static ht_status visit_checkpoint(traversal *t, const char *path, ht_error *err) {
    ht_error problem = {0};
    ht_model_info *info;
    ht_status broken = ht_model_info_glance(path, &info, &problem);
    if (broken == HT_ERR_MEMORY) return ht_fail(err, broken, "%s", problem.message);
    if (broken && is_no_model(path)) return HT_OK;
    ht_status status = report_find(t, &(ht_find){path, info, broken ? &problem : NULL}, err);
    ht_model_info_free(info);
    return status;
}

/* Whether a GGUF file is not the first part of its model; any part opens all. */
static bool is_later_part(const names *gguf, size_t i) {
    return i > 0 && ht_gguf_same_set(gguf->item[i - 1], gguf->item[i]);
}

static ht_status visit_contents(traversal *t, const char *path, const contents *c, ht_error *err) {
    ht_status status = c->safetensors ? visit_checkpoint(t, path, err) : HT_OK;
    for (size_t i = 0; i < c->gguf.n && !status; i++) {
        if (is_later_part(&c->gguf, i)) continue;
        char *file = ht_path_join(path, c->gguf.item[i]);
        status = file ? visit_checkpoint(t, file, err) : ht_fail_memory(err, strlen(path), "a path");
        free(file);
    }
    /* Pushed in reverse, to pop in sorted order. */
    for (size_t i = c->directories.n; i-- > 0 && !status;) {
        char *inner = ht_path_join(path, c->directories.item[i]);
        if (!add_name(&t->pending, inner)) status = ht_fail_memory(err, strlen(path), "a path");
        free(inner);
    }
    return status;
}

static ht_status search(traversal *t, const char *path, bool is_root, ht_error *err) {
    contents c;
    ht_error problem = {0};
    struct stat st;
    bool first = true;
    if (stat(path, &st) == 0 && !mark_searched(t, &st, &first))
        return ht_fail_memory(err, t->index.n * sizeof *t->searched, "the directories searched");
    if (!first) return HT_OK;
    ht_status status = read_contents(path, &c, &problem);
    if (!status)
        status = visit_contents(t, path, &c, err);
    else if (status == HT_ERR_IO && !is_root)
        status = report_find(t, &(ht_find){path, NULL, &problem}, err);
    else
        status = ht_fail(err, status, "%s", problem.message);
    free_contents(&c);
    return status;
}

ht_status ht_discover(const char *directory, ht_discover_fn *fn, void *user, ht_error *err) {
    traversal t = {.fn = fn, .user = user};
    ht_status status = search(&t, directory, true, err);
    while (!status && t.pending.n) {
        char *next = t.pending.item[--t.pending.n];
        status = search(&t, next, false, err);
        free(next);
    }
    free_names(&t.pending);
    free(t.searched);
    ht_table_free(&t.index);
    return status;
}
