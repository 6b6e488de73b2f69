/* Checkpoint discovery in a tree of directories. The walk keeps a list of directories to come instead of calling
 * itself, so that a deep tree needs no deep stack. */
#include "base/error.h"
#include "base/file.h"
#include "formats/gguf_set.h"
#include "models/info.h"

#include <hearth/discover.h>

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct names {
    char **item;
    size_t n, capacity;
} names;

typedef struct identity { /* of a directory */
    dev_t device;
    ino_t inode;
    bool taken;
} identity;

typedef struct walk {
    ht_discover_fn *fn;
    void *user;
    names pending;      /* directories to search, the next one last */
    identity *searched; /* those that were, hashed; capacity a power of two */
    size_t n_searched, capacity;
} walk;

/* ---- lists ---- */

static bool add_name(names *list, const char *name) {
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        char **item = realloc(list->item, capacity * sizeof *item);
        if (!item) return false;
        list->item = item;
        list->capacity = capacity;
    }
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

static identity *place_of(identity *table, size_t capacity, dev_t device, ino_t inode) {
    size_t at = ((size_t)inode * 0x9e3779b1u ^ (size_t)device) & (capacity - 1);
    while (table[at].taken && (table[at].device != device || table[at].inode != inode)) at = (at + 1) & (capacity - 1);
    return &table[at];
}

static bool grow_table(walk *w) {
    size_t capacity = w->capacity ? 2 * w->capacity : 64;
    identity *table = calloc(capacity, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < w->capacity; i++)
        if (w->searched[i].taken)
            *place_of(table, capacity, w->searched[i].device, w->searched[i].inode) = w->searched[i];
    free(w->searched);
    w->searched = table;
    w->capacity = capacity;
    return true;
}

/* Notes that a directory is searched; *first is false when it was before. */
static bool note_search(walk *w, const struct stat *st, bool *first) {
    if (2 * (w->n_searched + 1) > w->capacity && !grow_table(w)) return false;
    identity *at = place_of(w->searched, w->capacity, st->st_dev, st->st_ino);
    *first = !at->taken;
    if (*first) {
        *at = (identity){st->st_dev, st->st_ino, true};
        w->n_searched++;
    }
    return true;
}

/* ---- one directory ---- */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static bool begins_with(const char *s, const char *begin) { return !strncmp(s, begin, strlen(begin)); }

/* What a directory holds, hidden things aside. */
typedef struct contents {
    names gguf, directories;
    bool safetensors; /* of a model, there or at least promised by an index */
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
    if (ends_with(name, ".gguf")) return begins_with(name, "mmproj") || add_name(&c->gguf, name);
    if (ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json"))
        c->safetensors = c->safetensors || !begins_with(name, "adapter");
    return true;
}

static ht_status read_contents(const char *path, contents *out, ht_error *err) {
    *out = (contents){0};
    DIR *dir = opendir(path);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: the directory cannot be read: %s", path, strerror(errno));
    bool room = true;
    for (const struct dirent *e; room && (e = readdir(dir));) room = sort_entry(path, e->d_name, out);
    closedir(dir);
    if (!room) return ht_fail_memory(err, sizeof *out, "the names in a directory");
    sort_names(&out->gguf);
    sort_names(&out->directories);
    return HT_OK;
}

static void free_contents(contents *c) {
    free_names(&c->gguf);
    free_names(&c->directories);
}

/* ---- finds ---- */

static ht_status hand_over(walk *w, const ht_find *find, ht_error *err) {
    if (w->fn(find, w->user)) return HT_OK;
    return ht_fail(err, HT_ERR_CANCELLED, "the search was stopped at %s", find->path);
}

static ht_status look_at(walk *w, const char *path, ht_error *err) {
    ht_error problem = {0};
    ht_model_info *info;
    ht_status broken = ht_model_info_glance(path, &info, &problem);
    if (broken == HT_ERR_MEMORY) return ht_fail(err, broken, "%s", problem.message);
    ht_status status = hand_over(w, &(ht_find){path, info, broken ? &problem : NULL}, err);
    ht_model_info_free(info);
    return status;
}

/* Whether a sorted list names an earlier part of the same model: any part opens all of it. */
static bool is_later_part(const names *gguf, size_t i) {
    int number, count, other_number, other_count;
    size_t n, other_n;
    if (i == 0 || !ht_gguf_part_name(gguf->item[i], &number, &count, &n)) return false;
    const char *before = gguf->item[i - 1];
    return ht_gguf_part_name(before, &other_number, &other_count, &other_n) && count == other_count && n == other_n &&
           !memcmp(before, gguf->item[i], n);
}

static ht_status look_at_all(walk *w, const char *path, const contents *c, ht_error *err) {
    ht_status status = c->safetensors ? look_at(w, path, err) : HT_OK;
    for (size_t i = 0; i < c->gguf.n && !status; i++) {
        if (is_later_part(&c->gguf, i)) continue;
        char *file = ht_path_join(path, c->gguf.item[i]);
        status = file ? look_at(w, file, err) : ht_fail_memory(err, strlen(path), "a path");
        free(file);
    }
    /* The next one to be searched is the last one of the list. */
    for (size_t i = c->directories.n; i-- > 0 && !status;) {
        char *inner = ht_path_join(path, c->directories.item[i]);
        if (!add_name(&w->pending, inner)) status = ht_fail_memory(err, strlen(path), "a path");
        free(inner);
    }
    return status;
}

static ht_status search(walk *w, const char *path, bool is_root, ht_error *err) {
    contents c;
    ht_error problem = {0};
    struct stat st;
    bool first = true;
    if (stat(path, &st) == 0 && !note_search(w, &st, &first))
        return ht_fail_memory(err, w->capacity * sizeof *w->searched, "the directories searched");
    if (!first) return HT_OK;
    ht_status status = read_contents(path, &c, &problem);
    if (!status)
        status = look_at_all(w, path, &c, err);
    else if (status == HT_ERR_IO && !is_root)
        status = hand_over(w, &(ht_find){path, NULL, &problem}, err);
    else
        status = ht_fail(err, status, "%s", problem.message);
    free_contents(&c);
    return status;
}

ht_status ht_discover(const char *directory, ht_discover_fn *fn, void *user, ht_error *err) {
    walk w = {.fn = fn, .user = user};
    ht_status status = search(&w, directory, true, err);
    while (!status && w.pending.n) {
        char *next = w.pending.item[--w.pending.n];
        status = search(&w, next, false, err);
        free(next);
    }
    free_names(&w.pending);
    free(w.searched);
    return status;
}
